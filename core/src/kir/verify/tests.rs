//! Kernels that no text and no builder makes: what the verifier says of data that is wrong.

use super::super::build::{Build, V, kernel};
use super::super::kernel::{Attr, Block, Carried, Inst, Object, ObjectId, Param, ParamId, Stmt};
use super::super::op::Op;
use super::super::types::Scalar;
use super::*;

/// A kernel with a bit of everything, right.
fn right() -> Kernel {
    kernel("right", 32, |k| {
        let n = k.param("n", Scalar::U32);
        let (x, y) = (k.read("x", Scalar::F32), k.write("y", Scalar::F32));
        let i = k.local_id();
        let [sum] = k.fold(k.u32(0), n, 1, [k.f32(0.0)], |turn, [sum]| [sum + x.load(turn)]);
        k.when(i.lt(n), || y.store(i, sum));
        k.barrier();
    })
}

fn rules(kernel: &Kernel) -> Vec<Rule> {
    verify(kernel).into_iter().map(|fault| fault.rule).collect()
}

#[track_caller]
fn breaks(rule: Rule, spoil: impl FnOnce(&mut Kernel)) {
    let mut kernel = right();
    spoil(&mut kernel);
    let found = rules(&kernel);
    assert!(found.contains(&rule), "{found:?}\n{kernel}");
}

fn inst(kernel: &mut Kernel, op: Op) -> &mut Inst {
    fn find(block: &mut Block, op: Op) -> Option<&mut Inst> {
        block.stmts.iter_mut().find_map(|stmt| match stmt {
            Stmt::Inst(inst) if inst.op == op => Some(inst),
            Stmt::Inst(_) => None,
            Stmt::If { then, .. } => find(then, op),
            Stmt::Loop { body, .. } => find(body, op),
        })
    }
    find(&mut kernel.body, op).expect("the kernel has such an operation")
}

fn the_loop(kernel: &mut Kernel) -> (&mut Value, &mut u32, &mut Vec<Carried>, &mut Block) {
    let found = kernel.body.stmts.iter_mut().find_map(|stmt| match stmt {
        Stmt::Loop { end, step, carried, body, .. } => Some((end, step, carried, body)),
        _ => None,
    });
    found.expect("the kernel has a loop")
}

#[test]
fn a_right_kernel_verifies() {
    assert_eq!(verify(&right()), []);
}

#[test]
fn every_rule_can_be_broken() {
    breaks(Rule::Name, |k| k.params[0].name = "a b".into());
    breaks(Rule::Name, |k| k.name = "2".into());
    breaks(Rule::Workgroup, |k| k.workgroup = 0);
    breaks(Rule::Workgroup, |k| k.resident = Some(0));
    breaks(Rule::Declaration, |k| k.params[0].scalar = Scalar::I8x4);
    breaks(Rule::SharedLen, |k| k.objects[1].space = Space::Shared { len: u32::MAX });
    breaks(Rule::RecordLen, |k| k.params.extend(params(1020)));
    breaks(Rule::Numbering, |k| k.types.push(Scalar::U32.into()));
    breaks(Rule::Numbering, |k| k.body.stmts.swap(0, 1));
    breaks(Rule::Scope, |k| inst(k, Op::FAdd).operands[0] = Value(9999));
    breaks(Rule::Scope, |k| k.types.truncate(2));
    breaks(Rule::Scope, |k| {
        let stmt = k.body.stmts[1].clone();
        k.body.stmts.push(stmt);
    });
    breaks(Rule::Type, |k| {
        let sum = the_loop(k).2[0].first;
        inst(k, Op::ILt).operands[0] = sum;
    });
    breaks(Rule::Type, |k| inst(k, Op::FAdd).op = Op::IAdd);
    breaks(Rule::Type, |k| inst(k, Op::FAdd).result = None);
    breaks(Rule::Type, |k| {
        let result = inst(k, Op::FAdd).result.expect("a sum");
        k.types[result.index()] = Scalar::U32.into();
    });
    breaks(Rule::Attribute, |k| inst(k, Op::LocalId).attr = Attr::Index(0));
    breaks(Rule::Attribute, |k| inst(k, Op::Load).attr = Attr::Object(ObjectId(7)));
    breaks(Rule::Attribute, |k| inst(k, Op::Param).attr = Attr::Param(ParamId(7)));
    breaks(Rule::Access, |k| k.objects[0].space = Space::Write);
    breaks(Rule::Access, |k| {
        let store = inst(k, Op::Store);
        store.operands[1] = store.operands[0];
    });
    breaks(Rule::Yield, |k| the_loop(k).3.yields.clear());
    breaks(Rule::Step, |k| *the_loop(k).1 = 0);
    breaks(Rule::Uniform, |k| {
        let id = inst(k, Op::LocalId).result.expect("a number");
        let barrier = k.body.stmts.pop().expect("the barrier");
        let (end, _, _, body) = the_loop(k);
        *end = id;
        body.stmts.push(barrier);
    });
    breaks(Rule::WaitLaunches, |k| {
        k.objects[0].space = Space::ReadWrite;
        inst(k, Op::Barrier).op = Op::WaitLaunches;
    });
    breaks(Rule::WaitLaunches, |k| {
        inst(k, Op::Barrier).op = Op::WaitLaunches;
        let wait = k.body.stmts.pop().expect("the wait");
        k.body.stmts.insert(0, wait.clone());
        k.body.stmts.push(wait);
    });
    breaks(Rule::Cluster, |k| {
        k.workgroup = 8;
        let sum = inst(k, Op::FAdd);
        *sum = Inst {
            op: Op::Broadcast,
            attr: Attr::Cluster { width: 16, lane: 0 },
            operands: vec![sum.operands[0]],
            result: sum.result,
        };
    });
    breaks(Rule::Depth, |k| {
        for _ in 0..=MAX_DEPTH {
            let condition = inst(k, Op::ILt).result.expect("a bool");
            let then = std::mem::take(&mut k.body);
            k.body.stmts.push(Stmt::If { condition, then, otherwise: Block::default(), results: vec![] });
        }
    });
}

/// Parameters with names of their own.
fn params(count: u32) -> impl Iterator<Item = Param> {
    (0..count).map(|number| Param { name: format!("p{number}"), scalar: Scalar::F32 })
}

/// A record of 4096 bytes: two addresses and 1020 parameters.
#[test]
fn a_record_as_long_as_allowed_is_right() {
    let mut kernel = right();
    kernel.objects.push(Object { name: "s".into(), elem: Scalar::F32, space: Space::Shared { len: 1 } });
    kernel.params.extend(params(1019));
    assert_eq!(rules(&kernel), []);
    kernel.params.extend([Param { name: "last".into(), scalar: Scalar::I32 }]);
    assert_eq!(rules(&kernel), [Rule::RecordLen]);
}

/// Each array begins at 16 bytes: a hundred words take 1600 bytes.
#[test]
fn shared_memory_as_long_as_allowed_is_right() {
    let mut kernel = right();
    let words = (MAX_SHARED_LEN_BYTES / WORD_LEN_BYTES) as u32 - 400;
    for (number, len) in std::iter::repeat_n(1, 100).chain([words]).enumerate() {
        let space = Space::Shared { len };
        kernel.objects.push(Object { name: format!("s{number}"), elem: Scalar::F32, space });
    }
    assert_eq!(rules(&kernel), []);
    let last = kernel.objects.last_mut().expect("an array");
    last.space = Space::Shared { len: words + 1 };
    assert_eq!(rules(&kernel), [Rule::SharedLen]);
}

/// A kernel with branches and loops in each other by turns, so deep.
fn nested(depth: usize) -> Kernel {
    fn level(k: &Build, left: usize) {
        let (zero, three) = (k.u32(0), k.u32(3));
        match left {
            0 => {}
            _ if left.is_multiple_of(2) => k.each(zero, three, 1, |_| level(k, left - 1)),
            _ => k.when(zero.lt(three), || level(k, left - 1)),
        }
    }
    kernel("nested", 32, |k| level(k, depth))
}

#[test]
fn blocks_as_deep_as_allowed_are_right() {
    assert_eq!(rules(&nested(MAX_DEPTH)), []);
    assert!(rules(&nested(MAX_DEPTH + 1)).contains(&Rule::Depth));
}

/// A kernel that waits in the first turn of all of so many loops in each other, and then writes.
fn waits_in_first_turn(loops: u32) -> Kernel {
    fn level<'k>(k: &'k Build, left: u32, turn: V<'k>, then: &dyn Fn()) {
        if left == 0 {
            k.when(turn.eq(k.u32(0)), || k.wait_launches());
            return then();
        }
        k.each(k.u32(0), k.u32(2), 1, |index| level(k, left - 1, turn + index, then));
    }
    kernel("waits", 32, |k| {
        let y = k.write("y", Scalar::U32);
        level(k, loops, k.u32(0), &|| y.store(k.local_id(), k.local_id()));
    })
}

/// The first turns of four loops in each other are looked at by themselves; of more it would take too long.
#[test]
fn waits_in_the_first_turn_of_four_loops_are_seen() {
    for loops in 1..=4 {
        assert_eq!(rules(&waits_in_first_turn(loops)), [], "{loops} loops");
    }
    assert!(rules(&waits_in_first_turn(5)).contains(&Rule::WaitLaunches));
}

/// What the text form cannot say is a fault, told once: which type has which number, and types of nobody.
#[test]
fn what_verifies_is_what_its_text_says() {
    let mut kernel = right();
    kernel.types.push(Scalar::U32.into());
    assert_eq!(rules(&kernel), [Rule::Numbering]);
    let mut kernel = right();
    kernel.body.stmts.swap(0, 1);
    assert_eq!(rules(&kernel), [Rule::Numbering]);
}

/// Every fault is told, not the first.
#[test]
fn all_faults_are_collected() {
    let mut kernel = right();
    kernel.workgroup = 0;
    *the_loop(&mut kernel).1 = 0;
    inst(&mut kernel, Op::FAdd).op = Op::IAdd;
    let found = rules(&kernel);
    assert!([Rule::Workgroup, Rule::Step, Rule::Type].iter().all(|rule| found.contains(rule)), "{found:?}");
}
