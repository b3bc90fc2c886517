//! The text form of a kernel: what [`super::parse()`] reads back.
//!
//! ```text
//! kernel scale workgroup 64 {
//!   param n: u32
//!   read x: f32
//!   write y: f32
//!   %0 = group_id
//!   ...
//!   if %4 {
//!     %5 = load.f32 x[%3]
//!     store y[%3], %5
//!   }
//! }
//! ```

use std::fmt::{self, Write};

use super::kernel::{Attr, Block, Inst, Kernel, ObjectId, Space, Stmt, Value};
use super::op::Op;
use super::types::Scalar;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {} workgroup {}", self.name, self.workgroup)?;
        if let Some(resident) = self.resident {
            write!(f, " resident {resident}")?;
        }
        writeln!(f, " {{")?;
        for param in &self.params {
            writeln!(f, "  param {}: {}", param.name, param.scalar.name())?;
        }
        for object in &self.objects {
            let elem = object.elem.name();
            match object.space {
                Space::Read => writeln!(f, "  read {}: {elem}", object.name),
                Space::Write => writeln!(f, "  write {}: {elem}", object.name),
                Space::ReadWrite => writeln!(f, "  readwrite {}: {elem}", object.name),
                Space::Shared { len } => writeln!(f, "  shared {}: {elem}[{len}]", object.name),
            }?;
        }
        let mut text = String::new();
        self.put_block(&self.body, 1, &mut text)?;
        write!(f, "{text}}}")
    }
}

impl Kernel {
    fn put_block(&self, block: &Block, depth: usize, to: &mut String) -> fmt::Result {
        let indent = "  ".repeat(depth);
        for stmt in &block.stmts {
            to.push_str(&indent);
            match stmt {
                Stmt::Inst(inst) => writeln!(to, "{}", self.inst_text(inst))?,
                Stmt::If { condition, then, otherwise, results } => {
                    if !results.is_empty() {
                        write!(to, "{} = ", list(results))?;
                    }
                    writeln!(to, "if {condition} {{")?;
                    self.put_block(then, depth + 1, to)?;
                    if otherwise.stmts.is_empty() && otherwise.yields.is_empty() {
                        writeln!(to, "{indent}}}")?;
                    } else {
                        writeln!(to, "{indent}}} else {{")?;
                        self.put_block(otherwise, depth + 1, to)?;
                        writeln!(to, "{indent}}}")?;
                    }
                }
                Stmt::Loop { index, start, end, step, carried, body } => {
                    if !carried.is_empty() {
                        let results: Vec<Value> = carried.iter().map(|carried| carried.result).collect();
                        write!(to, "{} = ", list(&results))?;
                    }
                    write!(to, "loop {index} = {start} to {end} step {step}")?;
                    if !carried.is_empty() {
                        let pairs =
                            carried.iter().map(|carried| format!("{} = {}", carried.inside, carried.first));
                        write!(to, " carry {}", pairs.collect::<Vec<_>>().join(", "))?;
                    }
                    writeln!(to, " {{")?;
                    self.put_block(body, depth + 1, to)?;
                    writeln!(to, "{indent}}}")?;
                }
            }
        }
        if !block.yields.is_empty() {
            writeln!(to, "{indent}yield {}", list(&block.yields))?;
        }
        Ok(())
    }

    /// An operation as text; names that do not exist are shown by number, so that wrong kernels can be
    /// printed.
    pub fn inst_text(&self, inst: &Inst) -> String {
        let mut text = String::new();
        if let Some(result) = inst.result {
            text += &format!("{result} = ");
        }
        text += inst.op.row().mnemonic;
        let stated = inst.result.and_then(|result| self.types.get(result.index()));
        if let (Some(super::op::Pattern::Stated), Some(ty)) = (inst.op.row().result, stated) {
            text += &format!(".{ty}");
        }
        let operands = list(&inst.operands);
        match inst.attr {
            Attr::None if operands.is_empty() => {}
            Attr::None => text += &format!(" {operands}"),
            Attr::Word(word) => text += &format!(" {}", word_text(word, stated.map(|ty| ty.scalar))),
            Attr::Param(id) => {
                let name = self.params.get(id.index()).map(|param| param.name.clone());
                text += &format!(" {}", name.unwrap_or_else(|| format!("?{}", id.0)));
            }
            Attr::Object(id) => {
                let name = self.object_name(id);
                match (inst.op, &inst.operands[..]) {
                    (Op::Store, [index, value]) => text += &format!(" {name}[{index}], {value}"),
                    (_, [index]) => text += &format!(" {name}[{index}]"),
                    _ => text += &format!(" {name}[{operands}]"),
                }
            }
            Attr::Copy { to, from } => {
                let (to, from) = (self.object_name(to), self.object_name(from));
                let index = |at: usize| inst.operands.get(at).map_or("?".to_owned(), Value::to_string);
                text += &format!(" {to}[{}], {from}[{}]", index(0), index(1));
            }
            Attr::Columns { of, stride } => {
                text += &format!(" {}[{operands}] stride {stride}", self.object_name(of));
            }
            Attr::Index(index) if operands.is_empty() => text += &format!(" {index}"),
            Attr::Index(index) => text += &format!(" {operands}[{index}]"),
            Attr::Selector(selector) => text += &format!(" {operands} bytes {selector:04x}"),
            Attr::Cluster { width, lane } => text += &format!(" {operands} of {width} at {lane}"),
        }
        text
    }

    fn object_name(&self, id: ObjectId) -> String {
        match self.objects.get(id.index()) {
            Some(object) => object.name.clone(),
            None => format!("?{}", id.0),
        }
    }
}

fn list(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// A constant: numbers in decimal, floats in the shortest form that gives the same bits, the rest in
/// hexadecimal.
fn word_text(word: u32, scalar: Option<Scalar>) -> String {
    match scalar {
        Some(Scalar::Bool) if word < 2 => (word == 1).to_string(),
        Some(Scalar::U32) => word.to_string(),
        Some(Scalar::I32) => (word as i32).to_string(),
        Some(Scalar::F32) if f32::from_bits(word).is_finite() => format!("{:?}", f32::from_bits(word)),
        _ => format!("0x{word:08x}"),
    }
}
