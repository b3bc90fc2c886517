//! Which values are the same for all invocations of a workgroup.

use super::kernel::{Attr, Block, Inst, Kernel, Space, Stmt};
use super::op::Op;

/// For each value of a kernel whose values exist, whether all invocations of a workgroup that compute it get
/// the same.
///
/// Values that loops carry are taken as uniform until something shows that they are not, so the walk is
/// repeated until nothing changes.
pub fn uniform_values(kernel: &Kernel) -> Vec<bool> {
    let mut uniform = vec![true; kernel.types.len()];
    loop {
        let before = uniform.clone();
        block(kernel, &kernel.body, &mut uniform);
        if uniform == before {
            return uniform;
        }
    }
}

fn block(kernel: &Kernel, of: &Block, uniform: &mut [bool]) {
    for stmt in &of.stmts {
        match stmt {
            Stmt::Inst(inst) => {
                if let Some(result) = inst.result {
                    uniform[result.index()] &= of_inst(kernel, inst, uniform);
                }
            }
            Stmt::If { condition, then, otherwise, results } => {
                let alike = uniform[condition.index()];
                block(kernel, then, uniform);
                block(kernel, otherwise, uniform);
                for (i, result) in results.iter().enumerate() {
                    let yields = uniform[then.yields[i].index()] && uniform[otherwise.yields[i].index()];
                    uniform[result.index()] &= alike && yields;
                }
            }
            Stmt::Loop { index, start, end, carried, body, .. } => {
                // Invocations that leave at different turns end with different values.
                let alike = uniform[start.index()] && uniform[end.index()];
                uniform[index.index()] &= uniform[start.index()];
                for carried in carried {
                    uniform[carried.inside.index()] &= uniform[carried.first.index()];
                }
                block(kernel, body, uniform);
                for (carried, next) in carried.iter().zip(&body.yields) {
                    uniform[carried.inside.index()] &= uniform[next.index()];
                    uniform[carried.result.index()] &= alike && uniform[carried.inside.index()];
                }
            }
        }
    }
}

fn of_inst(kernel: &Kernel, inst: &Inst, uniform: &[bool]) -> bool {
    let operands = inst.operands.iter().all(|operand| uniform[operand.index()]);
    match (inst.op, inst.attr) {
        (Op::LocalId, _) => false,
        // Each invocation has its own part of a matrix.
        (Op::Mma16 | Op::Mma32 | Op::LoadB, _) => false,
        // What nobody writes is the same for all who read the same place.
        (Op::Load | Op::LoadStream, Attr::Object(id)) => {
            operands && kernel.objects[id.index()].space == Space::Read
        }
        // Another lane's value is uniform if everybody's is.
        _ => operands,
    }
}
