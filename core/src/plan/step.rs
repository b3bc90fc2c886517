//! The steps of a plan: fused operations, each defined by functions of [`crate::numerics`].

use super::{BufferId, KvLayerId, RopeTableId, WeightId};

/// One step: an operation and what to call it in messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Such as `blk.3.ffn_down`; with the layer number where there is one.
    pub label: String,
    /// What to do.
    pub op: Op,
}

/// RMSNorm over each head before RoPE (q/k norms).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadNorm {
    /// Vector of `head_len` weights.
    pub weight: WeightId,
    /// Added to the mean square.
    pub eps: f32,
}

/// Which experts' weights add up to 1 ([`crate::numerics::moe::Denominator`]).
pub use crate::numerics::moe::Denominator;

/// The gate function of a feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// SwiGLU: `(g * sigmoid(g)) * u`.
    Silu,
    /// Gated GELU in its tanh form.
    Gelu,
}

/// What a step does. Row counts follow from the buffers; every operation treats each row by itself, so a
/// row's bits never depend on its neighbours.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `out = row token of table`, times `scale` if any (numerics::embedding).
    Embed {
        /// Matrix with one row a token.
        table: WeightId,
        /// Gemma's sqrt(n_embd), rounded once.
        scale: Option<f32>,
        /// F32.
        out: BufferId,
    },
    /// `out = row p of table`, p the row's position, or the last row where the table ends before it
    /// (numerics::embedding).
    EmbedPositions {
        /// Matrix with one row a position.
        table: WeightId,
        /// F32.
        out: BufferId,
    },
    /// LayerNorm (numerics::layer_norm), to f32, to A16 or to both.
    LayerNorm {
        /// F32.
        x: BufferId,
        /// Vector.
        weight: WeightId,
        /// Vector.
        bias: WeightId,
        /// Added to the variance.
        eps: f32,
        /// F32 result.
        out: Option<BufferId>,
        /// A16 of the result.
        quantized: Option<BufferId>,
    },
    /// RMSNorm (numerics::rms_norm), to f32, to A16 or to both; `add` is a residual: `out = add + norm(x)`.
    RmsNorm {
        /// F32.
        x: BufferId,
        /// Vector.
        weight: WeightId,
        /// Added to the mean square.
        eps: f32,
        /// F32 buffer that the normed row is added to (`out = add + norm`).
        add: Option<BufferId>,
        /// F32 result.
        out: Option<BufferId>,
        /// A16 of the result.
        quantized: Option<BufferId>,
    },
    /// A16 of a row (numerics::quantize_a16).
    Quantize {
        /// F32.
        x: BufferId,
        /// A16.
        out: BufferId,
    },
    /// Linear layer (numerics::linear): `out = [add +] W x [+ bias]`.
    Linear {
        /// A16.
        x: BufferId,
        /// Matrix `[out width][x width]`.
        weight: WeightId,
        /// Vector.
        bias: Option<WeightId>,
        /// F32 residual: `out = add + y`, one rounded addition.
        add: Option<BufferId>,
        /// F32.
        out: BufferId,
        /// Whether this is the model's head, whose output obeys the range contract.
        head: bool,
    },
    /// RMSNorm of each head (numerics::rms_norm, without weights numerics::rms_norm_plain): `PrepareQuery.norm`,
    /// `WriteKv.norm` and `WriteKv.value_eps` as a step of its own.
    HeadNorm {
        /// F32, heads side by side.
        x: BufferId,
        /// Vector of `head_len` weights, if the norm has weights.
        weight: Option<WeightId>,
        /// Values a head.
        head_len: u32,
        /// Added to the mean square.
        eps: f32,
        /// F32.
        out: BufferId,
    },
    /// RoPE of each head at the row's position: `PrepareQuery.rope` and `WriteKv.rope` as a step of its own.
    Rope {
        /// F32, heads side by side.
        x: BufferId,
        /// Position table.
        rope: RopeTableId,
        /// Values a head.
        head_len: u32,
        /// F32.
        out: BufferId,
    },
    /// Per head: optional norm, optional RoPE at the row's position, then Q16.
    PrepareQuery {
        /// F32, heads side by side.
        q: BufferId,
        /// q norm.
        norm: Option<HeadNorm>,
        /// Position table.
        rope: Option<RopeTableId>,
        /// Q16.
        out: BufferId,
    },
    /// Per head: optional norm and RoPE of the key, optional norm of the value, then K16 and V8 into the row's slot of the
    /// cache.
    WriteKv {
        /// F32, heads side by side.
        k: BufferId,
        /// F32, heads side by side.
        v: BufferId,
        /// k norm.
        norm: Option<HeadNorm>,
        /// Position table.
        rope: Option<RopeTableId>,
        /// v norm, which has no weights: what is added to the mean square.
        value_eps: Option<f32>,
        /// Which cache.
        layer: KvLayerId,
    },
    /// Attention of each query head over the row's sequence (numerics::attention). Query head h reads KV head
    /// `h / (query heads / kv heads)`. Several steps may read one cache.
    Attention {
        /// Q16.
        q: BufferId,
        /// Which cache.
        layer: KvLayerId,
        /// Scale of the scores before softmax as it enters the arithmetic: `f32(scale * log2(e))`, or
        /// `f32(scale)` with a soft cap.
        kappa: f32,
        /// Sliding window: key j is visible to query i iff `i - j < window`.
        window: Option<u32>,
        /// Soft cap of the scores.
        soft_cap: Option<f32>,
        /// F32, heads side by side.
        out: BufferId,
    },
    /// `act(gate) * up` (numerics::swiglu, numerics::gelu_gate), to f32, to A16 or to both.
    Gate {
        /// Function.
        activation: Activation,
        /// F32.
        gate: BufferId,
        /// F32, rows of one part or more that are as wide as the gate.
        up: BufferId,
        /// Which part of them.
        part: u32,
        /// F32 result.
        out: Option<BufferId>,
        /// A16 of the result.
        quantized: Option<BufferId>,
    },
    /// GELU without a gate (numerics::gelu), to f32, to A16 or to both.
    Gelu {
        /// F32.
        x: BufferId,
        /// F32 result.
        out: Option<BufferId>,
        /// A16 of the result.
        quantized: Option<BufferId>,
    },
    /// Chooses experts (numerics::route). A row of the result has, for each of the k chosen experts by ascending number, the
    /// number as an exact float, and then, in the same order, their weights.
    Route {
        /// F32.
        x: BufferId,
        /// Router, one row an expert.
        router: WeightId,
        /// Which weights add up to 1.
        denominator: Denominator,
        /// F32, 2k values.
        out: BufferId,
    },
    /// Linear layers of the chosen experts (numerics::linear): `out = W_e x` in slot j of a row, e the row's j-th expert.
    ExpertLinear {
        /// A16, one for each row or one for each slot.
        x: BufferId,
        /// Result of [`Op::Route`].
        routes: BufferId,
        /// Matrices `[out width][x width]` of all experts, one after the other.
        weight: WeightId,
        /// F32, a slot for each chosen expert.
        out: BufferId,
    },
    /// `out = +0; out = out + snap(w_j*x_j)` over the slots j in order (numerics::add_expert).
    SumExperts {
        /// F32, a slot for each chosen expert.
        x: BufferId,
        /// Result of [`Op::Route`].
        routes: BufferId,
        /// F32.
        out: BufferId,
    },
    /// `out = a + snap(sigmoid(g)*b)`, g the dot product of x and the gate (numerics::add_shared_expert).
    AddShared {
        /// F32, what the gate is multiplied with.
        x: BufferId,
        /// Router of one row.
        gate: WeightId,
        /// F32, the sum of the other experts.
        a: BufferId,
        /// F32, what the shared expert made.
        b: BufferId,
        /// F32.
        out: BufferId,
    },
    /// `out = a + b`.
    Add {
        /// F32.
        a: BufferId,
        /// F32.
        b: BufferId,
        /// F32.
        out: BufferId,
    },
    /// `out = snap(x*s)`, s the only value of a vector (numerics::scaled).
    Scale {
        /// F32.
        x: BufferId,
        /// Vector of one value.
        scale: WeightId,
        /// F32.
        out: BufferId,
    },
    /// Copies the output rows: [`super::Rows::All`] to [`super::Rows::Outputs`].
    SelectOutputs {
        /// F32, all rows.
        x: BufferId,
        /// F32, output rows.
        out: BufferId,
    },
    /// `cap * tanh(x / cap)` as numerics::soft_cap defines it.
    SoftCap {
        /// F32.
        x: BufferId,
        /// Bound.
        cap: f32,
        /// F32.
        out: BufferId,
    },
}

impl Op {
    /// The buffers that the operation reads.
    pub fn operands(&self) -> Vec<BufferId> {
        match *self {
            Op::Embed { .. } | Op::EmbedPositions { .. } => vec![],
            Op::RmsNorm { x, add, .. } | Op::Linear { x, add, .. } => [x].into_iter().chain(add).collect(),
            Op::WriteKv { k, v, .. } => vec![k, v],
            Op::Gate { gate, up, .. } => vec![gate, up],
            Op::Add { a, b, .. } => vec![a, b],
            Op::ExpertLinear { x, routes, .. } | Op::SumExperts { x, routes, .. } => vec![x, routes],
            Op::AddShared { x, a, b, .. } => vec![x, a, b],
            Op::Quantize { x, .. }
            | Op::LayerNorm { x, .. }
            | Op::Gelu { x, .. }
            | Op::Route { x, .. }
            | Op::HeadNorm { x, .. }
            | Op::Rope { x, .. }
            | Op::PrepareQuery { q: x, .. }
            | Op::Attention { q: x, .. }
            | Op::Scale { x, .. }
            | Op::SelectOutputs { x, .. }
            | Op::SoftCap { x, .. } => vec![x],
        }
    }

    /// A buffer that the operation writes; none where it writes a KV cache.
    pub fn result(&self) -> Option<BufferId> {
        match *self {
            Op::Embed { out, .. }
            | Op::EmbedPositions { out, .. }
            | Op::Route { out, .. }
            | Op::ExpertLinear { out, .. }
            | Op::SumExperts { out, .. }
            | Op::AddShared { out, .. }
            | Op::Quantize { out, .. }
            | Op::Linear { out, .. }
            | Op::HeadNorm { out, .. }
            | Op::Rope { out, .. }
            | Op::PrepareQuery { out, .. }
            | Op::Attention { out, .. }
            | Op::Add { out, .. }
            | Op::Scale { out, .. }
            | Op::SelectOutputs { out, .. }
            | Op::SoftCap { out, .. } => Some(out),
            Op::RmsNorm { out, quantized, .. }
            | Op::LayerNorm { out, quantized, .. }
            | Op::Gate { out, quantized, .. }
            | Op::Gelu { out, quantized, .. } => out.or(quantized),
            Op::WriteKv { .. } => None,
        }
    }

    /// The A16 result beside or in the place of an f32 one.
    pub fn quantized(&self) -> Option<BufferId> {
        match *self {
            Op::RmsNorm { quantized, .. }
            | Op::LayerNorm { quantized, .. }
            | Op::Gate { quantized, .. }
            | Op::Gelu { quantized, .. } => quantized,
            _ => None,
        }
    }
}
