//! Nodes of graphs as C writes them.

use std::ffi::c_char;

use unisonic_core::numerics::attention::{default_kappa, default_scale, kappa, kappa_with_soft_cap};
use unisonic_core::plan::{Activation, Denominator, KvLayerId, RopeTableId, TensorPart};
use unisonic_planner::graph::{GraphBuilder, Op, Shape, ValueId, WeightRef};

use crate::error::{Error, Result};
use crate::options::{self, SizeTagged};

/// Which tensor a node reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_weight {
    /// Its name; NULL: none.
    pub name: *const c_char,
    /// Bytes of `name`.
    pub name_len: usize,
    /// Rows of the matrix; 0 for a vector.
    pub rows: u32,
    /// Length of a row, or of the vector.
    pub cols: u32,
    /// The first row, or value of a vector, where the tensor has more.
    pub first: u32,
    /// All rows, or values, of the tensor; 0: those above.
    pub of: u32,
}

/// The token ids of the run, u32. No inputs.
pub const UNISONIC_OP_TOKENS: u32 = 1;
/// Rows of `width` floats that the caller gives with the run. No inputs; one in a graph.
pub const UNISONIC_OP_INPUT: u32 = 2;
/// Rows of the matrix `weight`, one a token, times `number` unless that is 0. Inputs: tokens.
pub const UNISONIC_OP_EMBED: u32 = 3;
/// Rows of the matrix `weight`, one a position. Inputs: tokens.
pub const UNISONIC_OP_EMBED_POSITIONS: u32 = 4;
/// RMSNorm with the vector `weight` and the epsilon `number`. Inputs: x.
pub const UNISONIC_OP_RMS_NORM: u32 = 5;
/// LayerNorm with the vectors `weight` and `bias` and the epsilon `number`. Inputs: x.
pub const UNISONIC_OP_LAYER_NORM: u32 = 6;
/// RMSNorm of each head with the vector `weight`, as long as a head, and the epsilon `number`; without a weight, of heads of
/// `head_len` values. Inputs: x.
pub const UNISONIC_OP_HEAD_NORM: u32 = 7;
/// Turns each head of `head_len` values by its position, as the table `rope` says. Inputs: x.
pub const UNISONIC_OP_ROPE: u32 = 8;
/// `weight` x [+ `bias`]: a matrix with a row for each value of the result, and a vector if any. UNISONIC_NODE_HEAD in `flags` for the
/// last layer of a model. Inputs: x.
pub const UNISONIC_OP_LINEAR: u32 = 9;
/// Sum. Inputs: a, b.
pub const UNISONIC_OP_ADD: u32 = 10;
/// Writes keys and values to the cache `kv`; the result is the keys. Inputs: k, v.
pub const UNISONIC_OP_WRITE_KV: u32 = 11;
/// Attention over the cache `kv`, which a node before has written: scores times `number`, or 1/sqrt(values of a head) if that is
/// 0; keys within `window` tokens, or all if that is 0; scores capped by `soft_cap` unless that is 0. Inputs: q.
pub const UNISONIC_OP_ATTENTION: u32 = 12;
/// The function `activation` of gate, times up. Inputs: gate, up.
pub const UNISONIC_OP_GATE: u32 = 13;
/// GELU. Inputs: x.
pub const UNISONIC_OP_GELU: u32 = 14;
/// The rows of which results are asked. Inputs: x.
pub const UNISONIC_OP_SELECT_OUTPUTS: u32 = 15;
/// `number` tanh(x / `number`). Inputs: x.
pub const UNISONIC_OP_SOFT_CAP: u32 = 16;
/// Chooses `chosen` experts of a row by the matrix `weight`, a row an expert. Inputs: x.
pub const UNISONIC_OP_ROUTE: u32 = 17;
/// A linear layer of each chosen expert: `weight` has their matrices one after the other, `width` rows each. Inputs: x, routes.
pub const UNISONIC_OP_EXPERT_LINEAR: u32 = 18;
/// The sum of what experts made, weighted. Inputs: x, routes.
pub const UNISONIC_OP_SUM_EXPERTS: u32 = 19;
/// a and, times the sigmoid of the matrix `weight` of one row times x, b. Inputs: x, a, b.
pub const UNISONIC_OP_ADD_SHARED: u32 = 20;
/// x times the only value of the vector `weight`. Inputs: x.
pub const UNISONIC_OP_SCALE: u32 = 21;

/// `activation`: SwiGLU's.
pub const UNISONIC_ACTIVATION_SILU: u32 = 1;
/// `activation`: GELU in its tanh form.
pub const UNISONIC_ACTIVATION_GELU: u32 = 2;
/// In `flags`: the linear layer makes the logits of a model.
pub const UNISONIC_NODE_HEAD: u32 = 1;
/// In `flags`: the weights of the chosen experts are shares of all, not of each other.
pub const UNISONIC_NODE_SHARES_OF_ALL: u32 = 2;

/// A node: an operation and what it takes. Each UNISONIC_OP_... says which fields mean something to it; the others are 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_node {
    /// sizeof(unisonic_node).
    pub struct_size: usize,
    /// Numbers of values, in the order that the operation says.
    pub inputs: *const u32,
    /// How many.
    pub inputs_len: usize,
    /// What it is called in messages, without spaces; NULL: as the operation.
    pub label: *const c_char,
    /// Bytes of `label`.
    pub label_len: usize,
    /// A tensor.
    pub weight: unisonic_weight,
    /// Another one.
    pub bias: unisonic_weight,
    /// Epsilon, scale or bound.
    pub number: f64,
    /// Bound of scores.
    pub soft_cap: f64,
    /// UNISONIC_OP_....
    pub op: u32,
    /// Values of a row of the result.
    pub width: u32,
    /// A position table.
    pub rope: u32,
    /// A cache.
    pub kv: u32,
    /// Values of a head.
    pub head_len: u32,
    /// Sliding window, in tokens.
    pub window: u32,
    /// UNISONIC_ACTIVATION_....
    pub activation: u32,
    /// Experts of a row.
    pub chosen: u32,
    /// A sum of UNISONIC_NODE_....
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_node {
    const NAME: &'static str = "unisonic_node";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// A tensor of a node; none without a name.
///
/// # Safety
/// The name is a text.
pub(crate) unsafe fn weight(given: &unisonic_weight, name: &str) -> Result<Option<WeightRef>> {
    // SAFETY: the caller says so.
    let tensor = unsafe { options::text(given.name, given.name_len, name) }?;
    if tensor.is_empty() {
        return Ok(None);
    }
    let &unisonic_weight { rows, cols, first, of, .. } = given;
    let shape = if rows == 0 { Shape::Vector(cols) } else { Shape::Matrix { rows, cols } };
    let of_one = if rows == 0 { 1 } else { u64::from(cols) };
    let part = TensorPart { first: u64::from(first) * of_one, len: u64::from(of) * of_one };
    Ok(Some(WeightRef { tensor: tensor.to_owned(), shape, part: (of != 0).then_some(part) }))
}

/// Adds a node.
///
/// # Safety
/// Its texts and arrays are as the header asks.
pub(crate) unsafe fn add(builder: &mut GraphBuilder, given: &unisonic_node) -> Result<ValueId> {
    options::reserved(given.reserved)?;
    if given.flags & !(UNISONIC_NODE_HEAD | UNISONIC_NODE_SHARES_OF_ALL) != 0 {
        return Err(Error::argument(format!(
            "flags are {:#x}, of which this library does not know all",
            given.flags
        )));
    }
    // SAFETY: the caller says so.
    let (inputs, label, weight, bias) = unsafe {
        (
            options::array(given.inputs, given.inputs_len, "inputs")?,
            options::text(given.label, given.label_len, "label")?,
            weight(&given.weight, "weight.name")?,
            weight(&given.bias, "bias.name")?,
        )
    };
    let inputs: Vec<ValueId> = inputs.iter().map(|&input| ValueId(input)).collect();
    let node = Node { given, weight, bias, inputs };
    node.add(builder, label)
}

/// A node whose pointers were read.
struct Node<'a> {
    given: &'a unisonic_node,
    weight: Option<WeightRef>,
    bias: Option<WeightRef>,
    inputs: Vec<ValueId>,
}

impl Node<'_> {
    fn add(&self, builder: &mut GraphBuilder, label: &str) -> Result<ValueId> {
        let label = |otherwise: &str| if label.is_empty() { otherwise.to_owned() } else { label.to_owned() };
        Ok(match self.given.op {
            UNISONIC_OP_INPUT => builder.input(&label("input"), self.given.width)?,
            UNISONIC_OP_ROUTE => {
                let denominator = match self.given.flags & UNISONIC_NODE_SHARES_OF_ALL {
                    0 => Denominator::Chosen,
                    _ => Denominator::All,
                };
                let [x] = self.operands()?;
                builder.route(&label("route"), self.weight()?, denominator, self.given.chosen, x)?
            }
            UNISONIC_OP_EXPERT_LINEAR => {
                let operands = self.operands()?;
                builder.expert_linear(&label("expert_linear"), self.weight()?, self.given.width, operands)?
            }
            _ => {
                let op = self.op(builder)?;
                builder.node(&label(op.name()), op, &self.inputs)?
            }
        })
    }

    fn op(&self, builder: &GraphBuilder) -> Result<Op> {
        let given = self.given;
        let number = given.number as f32;
        let (rope, kv) = (RopeTableId(given.rope), KvLayerId(given.kv));
        Ok(match given.op {
            UNISONIC_OP_TOKENS => Op::Tokens,
            UNISONIC_OP_EMBED => {
                Op::Embed { table: self.weight()?, scale: (number != 0.0).then_some(number) }
            }
            UNISONIC_OP_EMBED_POSITIONS => Op::EmbedPositions { table: self.weight()? },
            UNISONIC_OP_RMS_NORM => Op::RmsNorm { weight: self.weight()?, eps: number },
            UNISONIC_OP_LAYER_NORM => {
                let bias = self.bias.clone().ok_or_else(|| Error::argument("the node needs a bias"))?;
                Op::LayerNorm { weight: self.weight()?, bias, eps: number }
            }
            UNISONIC_OP_HEAD_NORM => {
                let weight = self.weight.clone();
                let head_len = match weight.as_ref().map(|weight| weight.shape) {
                    Some(Shape::Vector(len)) => len,
                    _ => given.head_len,
                };
                Op::HeadNorm { head_len, weight, eps: number }
            }
            UNISONIC_OP_ROPE => Op::Rope { table: rope, head_len: given.head_len },
            UNISONIC_OP_LINEAR => Op::Linear {
                weight: self.weight()?,
                bias: self.bias.clone(),
                head: given.flags & UNISONIC_NODE_HEAD != 0,
            },
            UNISONIC_OP_ADD => Op::Add,
            UNISONIC_OP_WRITE_KV => Op::WriteKv { norm: None, rope: None, value_eps: None, layer: kv },
            UNISONIC_OP_ATTENTION => Op::Attention {
                layer: kv,
                kappa: self.kappa(builder)?,
                window: (given.window != 0).then_some(given.window),
                soft_cap: (given.soft_cap != 0.0).then_some(given.soft_cap as f32),
            },
            UNISONIC_OP_GATE => Op::Gate {
                activation: match given.activation {
                    UNISONIC_ACTIVATION_SILU => Activation::Silu,
                    UNISONIC_ACTIVATION_GELU => Activation::Gelu,
                    other => return Err(Error::argument(format!("activation is {other}, which is none"))),
                },
                part: 0,
            },
            UNISONIC_OP_SCALE => Op::Scale { scale: self.weight()? },
            UNISONIC_OP_GELU => Op::Gelu,
            UNISONIC_OP_SELECT_OUTPUTS => Op::SelectOutputs,
            UNISONIC_OP_SOFT_CAP => Op::SoftCap { cap: number },
            UNISONIC_OP_SUM_EXPERTS => Op::SumExperts,
            UNISONIC_OP_ADD_SHARED => Op::AddShared { gate: self.weight()? },
            other => return Err(Error::argument(format!("op is {other}, which is none"))),
        })
    }

    /// The scale of scores as it enters the arithmetic.
    fn kappa(&self, builder: &GraphBuilder) -> Result<f32> {
        let unisonic_node { number, soft_cap, kv, .. } = *self.given;
        let layer = builder.kv_layers().get(kv as usize);
        let head_len = layer.map(|layer| layer.head_len).filter(|&len| len > 0);
        let head_len =
            head_len.ok_or_else(|| Error::argument(format!("there is no cache {kv} with heads")))?;
        let scale = if number == 0.0 { default_scale(head_len) } else { number };
        Ok(match (soft_cap != 0.0, number == 0.0) {
            (true, _) => kappa_with_soft_cap(scale),
            (false, true) => default_kappa(head_len),
            (false, false) => kappa(scale),
        })
    }

    fn weight(&self) -> Result<WeightRef> {
        self.weight.clone().ok_or_else(|| Error::argument("the node needs a weight"))
    }

    fn operands<const N: usize>(&self) -> Result<[ValueId; N]> {
        let found = self.inputs.len();
        let fixed = self.inputs.clone().try_into();
        fixed.map_err(|_| Error::argument(format!("inputs_len is {found}, but the operation takes {N}")))
    }
}
