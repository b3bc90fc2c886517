//! A kernel as data: structured statements over values that are each defined once.

use super::op::Op;
use super::types::{Scalar, Type};

/// A value: index into [`Kernel::types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A parameter: index into [`Kernel::params`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParamId(pub u32);

/// An object: index into [`Kernel::objects`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(pub u32);

impl Value {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ParamId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ObjectId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Name: letters, digits and underscores.
    pub name: String,
    /// Invocations of a workgroup, in one dimension.
    pub workgroup: u32,
    /// Workgroups that should be resident on a multiprocessor at a time: so many registers an invocation may
    /// have. A hint.
    pub resident: Option<u32>,
    /// Words that the caller gives, the same for all invocations.
    pub params: Vec<Param>,
    /// Memory.
    pub objects: Vec<Object>,
    /// Type of each value.
    pub types: Vec<Type>,
    /// What an invocation does.
    pub body: Block,
}

impl Kernel {
    /// The same without an operation that has no result.
    pub fn without(&self, op: Op) -> Self {
        fn leave_out(block: &mut Block, op: Op) {
            block
                .stmts
                .retain(|stmt| !matches!(stmt, Stmt::Inst(inst) if inst.op == op && inst.result.is_none()));
            for stmt in &mut block.stmts {
                match stmt {
                    Stmt::Inst(_) => {}
                    Stmt::If { then, otherwise, .. } => {
                        leave_out(then, op);
                        leave_out(otherwise, op);
                    }
                    Stmt::Loop { body, .. } => leave_out(body, op),
                }
            }
        }
        let mut kernel = self.clone();
        leave_out(&mut kernel.body, op);
        kernel
    }
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name.
    pub name: String,
    /// `u32`, `i32` or `f32`.
    pub scalar: Scalar,
}

/// A named array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name.
    pub name: String,
    /// Type of an element.
    pub elem: Scalar,
    /// Where it lies.
    pub space: Space,
}

/// Where an object lies and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// A buffer that no invocation writes.
    Read,
    /// A buffer that invocations write and do not read.
    Write,
    /// A buffer that invocations read and write.
    ReadWrite,
    /// Memory of a workgroup, this many elements, undefined until written.
    Shared {
        /// Elements.
        len: u32,
    },
}

impl Space {
    /// Whether an operation may read it.
    pub fn is_readable(self) -> bool {
        self != Space::Write
    }

    /// Whether an operation may write it.
    pub fn is_writable(self) -> bool {
        self != Space::Read
    }
}

/// Statements in order, and what the block hands to the statement that holds it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Statements.
    pub stmts: Vec<Stmt>,
    /// Values of the results of an `if`, or of the next turn of a `loop`.
    pub yields: Vec<Value>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// An operation of the table.
    Inst(Inst),
    /// One of two blocks.
    If {
        /// A `bool`.
        condition: Value,
        /// Where it is true.
        then: Block,
        /// Where it is not.
        otherwise: Block,
        /// One for each value that both blocks yield.
        results: Vec<Value>,
    },
    /// A counted loop: for index = start; index < end; index += step, all u32.
    Loop {
        /// The number of the turn, in its way.
        index: Value,
        /// First index.
        start: Value,
        /// The index that is not reached.
        end: Value,
        /// A constant above 0.
        step: u32,
        /// What goes from turn to turn.
        carried: Vec<Carried>,
        /// A turn.
        body: Block,
    },
}

/// A value that goes from one turn of a loop to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Its name inside.
    pub inside: Value,
    /// Its value in the first turn.
    pub first: Value,
    /// Its value after the last turn.
    pub result: Value,
}

/// An operation on values.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What.
    pub op: Op,
    /// What it needs beside operands.
    pub attr: Attr,
    /// On what.
    pub operands: Vec<Value>,
    /// What it makes.
    pub result: Option<Value>,
}

/// What an operation needs beside operands ([`super::op::AttrKind`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attr {
    /// Nothing.
    None,
    /// The word of a constant.
    Word(u32),
    /// A parameter.
    Param(ParamId),
    /// An object.
    Object(ObjectId),
    /// Where a copy goes and comes from.
    Copy {
        /// A shared object.
        to: ObjectId,
        /// A global one.
        from: ObjectId,
    },
    /// Where a matrix lies.
    Columns {
        /// A shared object.
        of: ObjectId,
        /// Words from a column to the next.
        stride: u32,
    },
    /// A byte, half or component, or a number of groups.
    Index(u32),
    /// Bytes: digit i (4 bits) says what becomes byte i.
    Selector(u16),
    /// Cluster width, and lane or mask.
    Cluster {
        /// 8, 16 or 32 invocations.
        width: u32,
        /// Below the width.
        lane: u32,
    },
}
