//! A plan for people: `{plan}` lists weights, buffers, tables, caches and steps, one a line.

use std::fmt::{Display, Formatter, Result};

use super::{
    Activation, Buffer, BufferId, BufferKind, Encoding, FloatSource, HeadNorm, KvLayerId, Op, Plan,
    RopeStyle, RopeTableId, Rows, TensorPart, WeightId,
};

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "plan {} vocab={} context={}", self.architecture, self.vocab_len, self.context_len)?;
        for (id, weight) in self.weights.iter().enumerate() {
            write!(f, "w{id} {} {}x{} {}", weight.tensor, weight.rows, weight.cols, weight.encoding)?;
            if let Some(TensorPart { first, len }) = weight.part {
                write!(f, " from {first} of {len}")?;
            }
            writeln!(f)?;
        }
        for (id, buffer) in self.buffers.iter().enumerate() {
            let input = if self.input.is_some_and(|input| input.index() == id) { " input" } else { "" };
            let logits = if self.logits.index() == id { " logits" } else { "" };
            writeln!(f, "b{id} {buffer}{input}{logits}")?;
        }
        for (id, table) in self.rope_tables.iter().enumerate() {
            let style = match table.style {
                RopeStyle::Interleaved => "interleaved",
                RopeStyle::HalfSplit => "half_split",
            };
            writeln!(f, "r{id} {style} pairs={} scale={:?}", table.inverse_frequencies.len(), table.scale)?;
        }
        for (id, layer) in self.kv_layers.iter().enumerate() {
            writeln!(f, "kv{id} {}x{}", layer.heads, layer.head_len)?;
        }
        for step in &self.steps {
            writeln!(f, "{}: {}", step.label, step.op)?;
        }
        Ok(())
    }
}

impl Display for Encoding {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let name = |source: &FloatSource| match source {
            FloatSource::F32 => "F32",
            FloatSource::F16 => "F16",
            FloatSource::BF16 => "BF16",
        };
        match self {
            Encoding::Block(format) => write!(f, "{format:?}"),
            Encoding::W16(source) => write!(f, "W16 from {}", name(source)),
            Encoding::F32(source) => write!(f, "F32 from {}", name(source)),
            Encoding::Router(source) => write!(f, "router from {}", name(source)),
        }
    }
}

impl Display for Buffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self.rows {
            Rows::All => "all",
            Rows::Outputs => "outputs",
        })?;
        match self.slots {
            1 => f.write_str(" ")?,
            slots => write!(f, "*{slots} ")?,
        }
        match self.kind {
            BufferKind::F32 { width } => write!(f, "f32[{width}]"),
            BufferKind::A16 { width } => write!(f, "a16[{width}]"),
            BufferKind::Q16 { heads, head_len } => write!(f, "q16[{heads}x{head_len}]"),
        }
    }
}

macro_rules! ids {
    ($($id:ident $prefix:literal)*) => {$(
        impl Display for $id {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}
ids!(WeightId "w" BufferId "b" RopeTableId "r" KvLayerId "kv");

/// `results = name(operands)`, then ` key=value` for the rest.
impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Op::Embed { table, scale, out } => {
                write!(f, "{out} = embed({table})")?;
                optional(f, "scale", scale.map(|v| format!("{v:?}")))
            }
            Op::EmbedPositions { table, out } => write!(f, "{out} = embed_positions({table})"),
            Op::LayerNorm { x, weight, bias, eps, out, quantized } => {
                results(f, &[*out, *quantized])?;
                write!(f, "layer_norm({x}, {weight}, {bias}) eps={eps:?}")
            }
            Op::RmsNorm { x, weight, eps, add, out, quantized } => {
                results(f, &[*out, *quantized])?;
                write!(f, "rms_norm({x}, {weight}) eps={eps:?}")?;
                optional(f, "add", *add)
            }
            Op::Quantize { x, out } => write!(f, "{out} = quantize({x})"),
            Op::Linear { x, weight, bias, add, out, head } => {
                write!(f, "{out} = linear({x}, {weight})")?;
                optional(f, "bias", *bias)?;
                optional(f, "add", *add)?;
                optional(f, "head", head.then_some(true))
            }
            Op::HeadNorm { x, weight, head_len, eps, out } => {
                write!(f, "{out} = head_norm({x}) head_len={head_len} eps={eps:?}")?;
                optional(f, "weight", *weight)
            }
            Op::Rope { x, rope, head_len, out } => {
                write!(f, "{out} = rope({x}) rope={rope} head_len={head_len}")
            }
            Op::PrepareQuery { q, norm, rope, out } => {
                write!(f, "{out} = prepare_query({q})")?;
                head_norm(f, *norm)?;
                optional(f, "rope", *rope)
            }
            Op::WriteKv { k, v, norm, rope, value_eps, layer } => {
                write!(f, "{layer} = write_kv({k}, {v})")?;
                head_norm(f, *norm)?;
                optional(f, "rope", *rope)?;
                optional(f, "value_eps", value_eps.map(|v| format!("{v:?}")))
            }
            Op::Attention { q, layer, kappa, window, soft_cap, out } => {
                write!(f, "{out} = attention({q}, {layer}) kappa={kappa:?}")?;
                optional(f, "window", *window)?;
                optional(f, "soft_cap", soft_cap.map(|v| format!("{v:?}")))
            }
            Op::Gate { activation, gate, up, part, out, quantized } => {
                results(f, &[*out, *quantized])?;
                let name = match activation {
                    Activation::Silu => "silu",
                    Activation::Gelu => "gelu",
                };
                write!(f, "{name}({gate}, {up})")?;
                optional(f, "part", Some(*part).filter(|&part| part > 0))
            }
            Op::Gelu { x, out, quantized } => {
                results(f, &[*out, *quantized])?;
                write!(f, "gelu({x})")
            }
            Op::Route { x, router, denominator, out } => {
                write!(f, "{out} = route({x}, {router}) denominator={}", denominator.name())
            }
            Op::ExpertLinear { x, routes, weight, out } => {
                write!(f, "{out} = expert_linear({x}, {routes}, {weight})")
            }
            Op::SumExperts { x, routes, out } => write!(f, "{out} = sum_experts({x}, {routes})"),
            Op::AddShared { x, gate, a, b, out } => write!(f, "{out} = add_shared({x}, {gate}, {a}, {b})"),
            Op::Add { a, b, out } => write!(f, "{out} = add({a}, {b})"),
            Op::Scale { x, scale, out } => write!(f, "{out} = scale({x}, {scale})"),
            Op::SelectOutputs { x, out } => write!(f, "{out} = select_outputs({x})"),
            Op::SoftCap { x, cap, out } => write!(f, "{out} = soft_cap({x}) cap={cap:?}"),
        }
    }
}

fn results(f: &mut Formatter<'_>, results: &[Option<BufferId>]) -> Result {
    for (i, result) in results.iter().flatten().enumerate() {
        write!(f, "{}{result}", if i == 0 { "" } else { ", " })?;
    }
    f.write_str(" = ")
}

fn head_norm(f: &mut Formatter<'_>, norm: Option<HeadNorm>) -> Result {
    norm.map_or(Ok(()), |HeadNorm { weight, eps }| write!(f, " norm={weight} eps={eps:?}"))
}

fn optional(f: &mut Formatter<'_>, key: &str, value: Option<impl Display>) -> Result {
    value.map_or(Ok(()), |value| write!(f, " {key}={value}"))
}
