//! The operations of the graph.
//!
//! A model is written with the simple ones; passes turn neighbours into the fused forms of the same operations
//! (a residual input, a second, quantised result, a norm or RoPE inside [`Op::PrepareQuery`] and [`Op::WriteKv`]).

use unisonic_core::plan::{Activation, Denominator, KvLayerId, RopeTableId, TensorPart};

/// Shape of a weight as the architecture says it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A vector of that many values.
    Vector(u32),
    /// A matrix, row-major.
    Matrix {
        /// Output values of a linear layer, tokens of an embedding table.
        rows: u32,
        /// Length of a row: `dims[0]` in the file.
        cols: u32,
    },
}

/// A tensor of the file, or a part of it, and the shape that it must have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightRef {
    /// Name in the file.
    pub tensor: String,
    /// Expected shape.
    pub shape: Shape,
    /// Where it is in the tensor, if it is not all of it.
    pub part: Option<TensorPart>,
}

/// RMSNorm over each head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadNorm {
    /// Vector of one head's length.
    pub weight: WeightRef,
    /// Added to the mean square.
    pub eps: f32,
}

/// What a node computes. Operands are positional ([`super::Node::inputs`]) and given here in brackets; results are
/// binary32 rows unless said otherwise. Meaning: docs/numerics.md, by way of `unisonic_core::plan::Op`.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// The token ids of the batch (u32).
    Tokens,
    /// Rows that the host gives with each batch (`docs/decisions/0019-graphs-of-the-host.md`). A graph has one at most, as
    /// wide as its result.
    Input,
    /// `[tokens]`: rows of a table, times a scale if any.
    Embed {
        /// One row a token.
        table: WeightRef,
        /// Gemma's sqrt(n_embd).
        scale: Option<f32>,
    },
    /// `[tokens]`: rows of a table of positions.
    EmbedPositions {
        /// One row a position.
        table: WeightRef,
    },
    /// `[x]`: LayerNorm. Results: f32, A16 of it, or both.
    LayerNorm {
        /// Vector.
        weight: WeightRef,
        /// Vector.
        bias: WeightRef,
        /// Added to the variance.
        eps: f32,
    },
    /// `[x]` or `[x, residual]`: RMSNorm of x, plus the residual if any. Results: f32, A16 of it, or both.
    RmsNorm {
        /// Vector.
        weight: WeightRef,
        /// Added to the mean square.
        eps: f32,
    },
    /// `[x]`: RMSNorm of each head.
    HeadNorm {
        /// Values a head.
        head_len: u32,
        /// Vector of as many, if the norm has weights.
        weight: Option<WeightRef>,
        /// Added to the mean square.
        eps: f32,
    },
    /// `[x]`: RoPE of each head at the row's position.
    Rope {
        /// Position table.
        table: RopeTableId,
        /// Values a head.
        head_len: u32,
    },
    /// `[x]` or `[x, residual]`: `[residual +] W x [+ bias]`. x is f32 until activations are quantised, then A16.
    Linear {
        /// Matrix.
        weight: WeightRef,
        /// Vector.
        bias: Option<WeightRef>,
        /// Whether this is the model's head.
        head: bool,
    },
    /// `[a, b]`: sum.
    Add,
    /// `[x]`: A16 of x.
    Quantize,
    /// `[q]`: Q16 of each head, after an optional norm and optional RoPE.
    PrepareQuery {
        /// q norm.
        norm: Option<HeadNorm>,
        /// Position table.
        rope: Option<RopeTableId>,
    },
    /// `[k, v]`, no result: the row's slot of a cache, after an optional norm and optional RoPE of k and an optional norm of v.
    WriteKv {
        /// k norm.
        norm: Option<HeadNorm>,
        /// Position table.
        rope: Option<RopeTableId>,
        /// v norm, which has no weights: what is added to the mean square.
        value_eps: Option<f32>,
        /// Which cache.
        layer: KvLayerId,
    },
    /// `[q]`: attention over the row's sequence. q is f32 until heads are quantised, then Q16.
    Attention {
        /// Which cache.
        layer: KvLayerId,
        /// Score scale times log2(e), rounded once; with a soft cap the score scale alone.
        kappa: f32,
        /// Sliding window.
        window: Option<u32>,
        /// Soft cap of the scores.
        soft_cap: Option<f32>,
    },
    /// `[gate, up]`: `act(gate) * up`; up has one part or more that are as wide as the gate. Results: f32, A16 of it, or both.
    Gate {
        /// Function.
        activation: Activation,
        /// Which part of up.
        part: u32,
    },
    /// `[x]`: GELU without a gate. Results: f32, A16 of it, or both.
    Gelu,
    /// `[x]`: the experts of a row and their weights, f32 of 2 values an expert.
    Route {
        /// Matrix of a row an expert, used as it is.
        router: WeightRef,
        /// Which weights add up to 1.
        denominator: Denominator,
    },
    /// `[x, routes]`: a linear layer of each chosen expert, in slots. x has a row, or a slot for each of them; it is f32 until
    /// activations are quantised, then A16.
    ExpertLinear {
        /// The matrices of all experts, one after the other.
        weight: WeightRef,
    },
    /// `[x, routes]`: the sum of the slots, weighted.
    SumExperts,
    /// `[x, a, b]`: `a` and, times the gate's sigmoid, `b`.
    AddShared {
        /// Matrix of one row that is multiplied with x, used as it is.
        gate: WeightRef,
    },
    /// `[x]`: x times a scalar of the model.
    Scale {
        /// Vector of one value.
        scale: WeightRef,
    },
    /// `[x]`: the output rows of x.
    SelectOutputs,
    /// `[x]`: soft cap.
    SoftCap {
        /// Bound.
        cap: f32,
    },
}

impl Op {
    /// Name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Tokens => "tokens",
            Op::Input => "input",
            Op::Embed { .. } => "embed",
            Op::EmbedPositions { .. } => "embed_positions",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Gelu => "gelu",
            Op::Route { .. } => "route",
            Op::ExpertLinear { .. } => "expert_linear",
            Op::SumExperts => "sum_experts",
            Op::AddShared { .. } => "add_shared",
            Op::RmsNorm { .. } => "rms_norm",
            Op::HeadNorm { .. } => "head_norm",
            Op::Rope { .. } => "rope",
            Op::Linear { .. } => "linear",
            Op::Add => "add",
            Op::Quantize => "quantize",
            Op::PrepareQuery { .. } => "prepare_query",
            Op::WriteKv { .. } => "write_kv",
            Op::Attention { .. } => "attention",
            Op::Gate { .. } => "gate",
            Op::Scale { .. } => "scale",
            Op::SelectOutputs => "select_outputs",
            Op::SoftCap { .. } => "soft_cap",
        }
    }

    /// Weights, in the order in which they are used.
    pub fn weights(&self) -> impl Iterator<Item = &WeightRef> {
        let (first, second) = match self {
            Op::Embed { table, .. } | Op::EmbedPositions { table } => (Some(table), None),
            Op::LayerNorm { weight, bias, .. } => (Some(weight), Some(bias)),
            Op::Route { router: weight, .. }
            | Op::ExpertLinear { weight }
            | Op::AddShared { gate: weight } => (Some(weight), None),
            Op::RmsNorm { weight, .. } => (Some(weight), None),
            Op::HeadNorm { weight, .. } => (weight.as_ref(), None),
            Op::Scale { scale } => (Some(scale), None),
            Op::Linear { weight, bias, .. } => (Some(weight), bias.as_ref()),
            Op::PrepareQuery { norm, .. } | Op::WriteKv { norm, .. } => {
                (norm.as_ref().map(|n| &n.weight), None)
            }
            Op::Tokens
            | Op::Input
            | Op::Rope { .. }
            | Op::Add
            | Op::Quantize
            | Op::Attention { .. }
            | Op::Gate { .. }
            | Op::Gelu
            | Op::SumExperts
            | Op::SelectOutputs
            | Op::SoftCap { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Whether the node must stay although nothing uses a result of it.
    pub fn has_effect(&self) -> bool {
        matches!(self, Op::WriteKv { .. })
    }
}
