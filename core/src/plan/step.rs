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
    /// RMSNorm of each head (numerics::rms_norm): `PrepareQuery.norm` and `WriteKv.norm` as a step of its
    /// own.
    HeadNorm {
        /// F32, heads side by side.
        x: BufferId,
        /// The norm; its weight has the length of a head.
        norm: HeadNorm,
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
    /// Per head: optional norm and RoPE of the key, then K16 and V8 into the row's slot of the cache.
    WriteKv {
        /// F32, heads side by side.
        k: BufferId,
        /// F32, heads side by side.
        v: BufferId,
        /// k norm.
        norm: Option<HeadNorm>,
        /// Position table.
        rope: Option<RopeTableId>,
        /// Which cache.
        layer: KvLayerId,
    },
    /// Attention of each query head over the row's sequence (numerics::attention). Query head h reads KV head
    /// `h / (query heads / kv heads)`.
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
        /// F32.
        up: BufferId,
        /// F32 result.
        out: Option<BufferId>,
        /// A16 of the result.
        quantized: Option<BufferId>,
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
            Op::Embed { .. } => vec![],
            Op::RmsNorm { x, add, .. } | Op::Linear { x, add, .. } => [x].into_iter().chain(add).collect(),
            Op::WriteKv { k, v, .. } => vec![k, v],
            Op::Gate { gate, up, .. } => vec![gate, up],
            Op::Add { a, b, .. } => vec![a, b],
            Op::Quantize { x, .. }
            | Op::HeadNorm { x, .. }
            | Op::Rope { x, .. }
            | Op::PrepareQuery { q: x, .. }
            | Op::Attention { q: x, .. }
            | Op::SelectOutputs { x, .. }
            | Op::SoftCap { x, .. } => vec![x],
        }
    }

    /// A buffer that the operation writes; none where it writes a KV cache.
    pub fn result(&self) -> Option<BufferId> {
        match *self {
            Op::Embed { out, .. }
            | Op::Quantize { out, .. }
            | Op::Linear { out, .. }
            | Op::HeadNorm { out, .. }
            | Op::Rope { out, .. }
            | Op::PrepareQuery { out, .. }
            | Op::Attention { out, .. }
            | Op::Add { out, .. }
            | Op::SelectOutputs { out, .. }
            | Op::SoftCap { out, .. } => Some(out),
            Op::RmsNorm { out, quantized, .. } | Op::Gate { out, quantized, .. } => out.or(quantized),
            Op::WriteKv { .. } => None,
        }
    }
}
