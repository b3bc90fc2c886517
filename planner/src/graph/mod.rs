//! The graph: a model as operations on rows, before it is a plan.
//!
//! Static single assignment in program order: each [`Node`] defines its results from values that earlier nodes
//! defined. `verify` holds a graph to its rules, and the text form (`Display`, [`Graph::parse`]) says all there is:
//! `parse(print(g)) == g` for every graph whose values are numbered in the order of definition, as
//! [`Graph::renumber`] makes them.
//!
//! Start reading at [`Op`], then [`Graph`]; [`GraphBuilder`] makes one by hand.

mod build;
pub(crate) mod limits;
mod op;
mod parse;
mod print;
mod verify;

pub use build::GraphBuilder;
pub use op::{HeadNorm, Op, Shape, WeightRef};
pub use parse::ParseError;
pub use verify::{Contract, Violation, Violations};

use unisonic_core::plan::{KvLayer, RopeStyle, Rows};

/// A value of the graph; index into [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// Index into [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a row of a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A token id.
    U32,
    /// `width` binary32 values.
    F32 {
        /// Values a row.
        width: u32,
    },
    /// A quantised activation (docs/numerics.md "Activations").
    A16 {
        /// Values a row.
        width: u32,
    },
    /// Quantised query heads (docs/numerics.md "KV cache and attention").
    Q16 {
        /// Number of heads.
        heads: u32,
        /// Values a head.
        head_len: u32,
    },
}

impl Element {
    /// Numbers a row.
    pub fn width(self) -> u32 {
        match self {
            Element::U32 => 1,
            Element::F32 { width } | Element::A16 { width } => width,
            Element::Q16 { heads, head_len } => heads.saturating_mul(head_len),
        }
    }
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Which rows of the batch it has.
    pub rows: Rows,
    /// How many there are for each of these ([`unisonic_core::plan::Buffer::slots`]).
    pub slots: u32,
    /// What each holds.
    pub element: Element,
}

impl Type {
    /// One row for each row of the batch.
    pub fn new(rows: Rows, element: Element) -> Self {
        Type { rows, slots: 1, element }
    }

    /// Binary32 rows.
    pub fn f32(rows: Rows, width: u32) -> Self {
        Type::new(rows, Element::F32 { width })
    }

    /// Quantised rows.
    pub fn a16(rows: Rows, width: u32) -> Self {
        Type::new(rows, Element::A16 { width })
    }
}

/// How RoPE frequencies are stretched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All by the same factor.
    Linear {
        /// `rope.scaling.factor`.
        factor: f64,
    },
    /// YaRN (docs/numerics.md "Position tables").
    Yarn {
        /// `rope.scaling.factor`.
        factor: f64,
        /// `rope.scaling.original_context_length`.
        original_context_len: u32,
    },
}

/// What a position table is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Where the pairs lie.
    pub style: RopeStyle,
    /// Rotated dimensions of a head.
    pub rotary_len: u32,
    /// `rope.freq_base`.
    pub base: f64,
    /// Scaling.
    pub scaling: RopeScaling,
    /// `rope.scaling.attn_factor`: cosine and sine are multiplied by it.
    pub attention_factor: f64,
    /// Vector of divisors of the frequencies, one a pair (Llama 3).
    pub factors: Option<WeightRef>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Such as `blk.3.ffn_down`.
    pub label: String,
    /// What it computes.
    pub op: Op,
    /// Operands; their meaning is the operation's.
    pub inputs: Vec<ValueId>,
    /// Values it defines.
    pub results: Vec<ValueId>,
}

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// As in `general.architecture`.
    pub architecture: String,
    /// Tokens in the vocabulary.
    pub vocab_len: u32,
    /// The longest context that the model was made for.
    pub context_len: u32,
    /// Position tables.
    pub rope_tables: Vec<RopeSpec>,
    /// KV caches.
    pub kv_layers: Vec<KvLayer>,
    /// Types of the values.
    pub values: Vec<Type>,
    /// Operations in program order.
    pub nodes: Vec<Node>,
    /// What a run gives of the output rows: the logits of a whole model, or any other f32 rows.
    pub output: ValueId,
}

impl Graph {
    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> Type {
        self.values[value.index()]
    }

    /// Makes a value that some node is about to define.
    pub fn new_value(&mut self, ty: Type) -> ValueId {
        self.values.push(ty);
        ValueId((self.values.len() - 1) as u32)
    }

    /// For each value, the node that defines it.
    pub fn definitions(&self) -> Vec<Option<usize>> {
        let mut definitions = vec![None; self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for result in &node.results {
                definitions[result.index()] = Some(index);
            }
        }
        definitions
    }

    /// For each value, how often it is used; being the output of the graph is a use.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.values.len()];
        for input in self.nodes.iter().flat_map(|node| &node.inputs).chain([&self.output]) {
            counts[input.index()] += 1;
        }
        counts
    }

    /// Weights in the order of first mention, with repetitions: factors of position tables, then nodes.
    pub fn weights(&self) -> impl Iterator<Item = &WeightRef> {
        let factors = self.rope_tables.iter().filter_map(|table| table.factors.as_ref());
        factors.chain(self.nodes.iter().flat_map(|node| node.op.weights()))
    }

    /// Makes every user of `old` use `new`.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        let inputs = self.nodes.iter_mut().flat_map(|node| &mut node.inputs);
        for input in inputs.chain([&mut self.output]).filter(|input| **input == old) {
            *input = new;
        }
    }

    /// Numbers the values in the order of definition and forgets those that no node defines. The graph must hold to
    /// its rules.
    pub fn renumber(&mut self) {
        let mut numbers = vec![None; self.values.len()];
        let mut values = Vec::with_capacity(self.values.len());
        for node in &self.nodes {
            for result in &node.results {
                numbers[result.index()] = Some(ValueId(values.len() as u32));
                values.push(self.values[result.index()]);
            }
        }
        self.values = values;
        let ids = self.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.results));
        for id in ids.chain([&mut self.output]) {
            // A verified graph uses only what is defined.
            *id = numbers[id.index()].unwrap_or(*id);
        }
    }
}

#[cfg(test)]
mod tests;
