//! The text form of graphs, written. One node a line, floats in their shortest exact form.
//!
//! ```text
//! graph llama vocab=259 context=512 output=%2
//! rope 0 interleaved rotary=64 base=10000.0 scaling=none attention_factor=1.0
//! kv 0 2x64
//! %0:all u32 = tokens() label=tokens
//! %1:all f32[256] = embed(%0) table=token_embd.weight[259x256] label=token_embd
//! ```

use std::fmt;

use unisonic_core::plan::{Activation, RopeStyle, Rows};

use super::{Element, Graph, HeadNorm, Node, Op, RopeScaling, RopeSpec, Shape, Type, ValueId, WeightRef};

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.rows {
            Rows::All => "all",
            Rows::Outputs => "outputs",
        })?;
        match self.slots {
            1 => f.write_str(" ")?,
            slots => write!(f, "*{slots} ")?,
        }
        match self.element {
            Element::U32 => f.write_str("u32"),
            Element::F32 { width } => write!(f, "f32[{width}]"),
            Element::A16 { width } => write!(f, "a16[{width}]"),
            Element::Q16 { heads, head_len } => write!(f, "q16[{heads}x{head_len}]"),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Vector(len) => write!(f, "[{len}]"),
            Shape::Matrix { rows, cols } => write!(f, "[{rows}x{cols}]"),
        }
    }
}

impl fmt::Display for WeightRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.tensor, self.shape)?;
        self.part.map_or(Ok(()), |part| write!(f, "@{}/{}", part.first, part.len))
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "graph {} vocab={} context={} output={}",
            self.architecture, self.vocab_len, self.context_len, self.output
        )?;
        for (id, spec) in self.rope_tables.iter().enumerate() {
            writeln!(f, "rope {id} {spec}")?;
        }
        for (id, layer) in self.kv_layers.iter().enumerate() {
            writeln!(f, "kv {id} {}x{}", layer.heads, layer.head_len)?;
        }
        for node in &self.nodes {
            writeln!(f, "{}", PrintNode { graph: self, node })?;
        }
        Ok(())
    }
}

impl fmt::Display for RopeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = match self.style {
            RopeStyle::Interleaved => "interleaved",
            RopeStyle::HalfSplit => "half_split",
        };
        write!(f, "{style} rotary={} base={:?} ", self.rotary_len, self.base)?;
        match self.scaling {
            RopeScaling::None => f.write_str("scaling=none")?,
            RopeScaling::Linear { factor } => write!(f, "scaling=linear factor={factor:?}")?,
            RopeScaling::Yarn { factor, original_context_len } => {
                write!(f, "scaling=yarn factor={factor:?} original_context={original_context_len}")?;
            }
        }
        write!(f, " attention_factor={:?}", self.attention_factor)?;
        if let Some(factors) = &self.factors {
            write!(f, " factors={factors}")?;
        }
        Ok(())
    }
}

/// A node with the types of its results, as the text form has it.
pub(super) struct PrintNode<'a> {
    pub graph: &'a Graph,
    pub node: &'a Node,
}

impl fmt::Display for PrintNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Node { label, op, inputs, results } = self.node;
        for (i, result) in results.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            match self.graph.values.get(result.index()) {
                Some(ty) => write!(f, "{separator}{result}:{ty}")?,
                None => write!(f, "{separator}{result}:?")?,
            }
        }
        let equals = if results.is_empty() { "" } else { " = " };
        write!(f, "{equals}{}(", op.name())?;
        for (i, input) in inputs.iter().enumerate() {
            write!(f, "{}{input}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(")")?;
        attributes(op, f)?;
        write!(f, " label={label}")
    }
}

fn attributes(op: &Op, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match op {
        Op::Tokens | Op::Input | Op::Add | Op::Quantize | Op::SelectOutputs | Op::Gelu | Op::SumExperts => {
            Ok(())
        }
        Op::EmbedPositions { table } => write!(f, " table={table}"),
        Op::LayerNorm { weight, bias, eps } => write!(f, " weight={weight} bias={bias} eps={eps:?}"),
        Op::Route { router, denominator } => {
            write!(f, " router={router} denominator={}", denominator.name())
        }
        Op::ExpertLinear { weight } => write!(f, " weight={weight}"),
        Op::AddShared { gate } => write!(f, " gate={gate}"),
        Op::Embed { table, scale } => {
            write!(f, " table={table}")?;
            optional(f, "scale", scale.map(|v| format!("{v:?}")))
        }
        Op::RmsNorm { weight, eps } => write!(f, " weight={weight} eps={eps:?}"),
        Op::HeadNorm { head_len, weight, eps } => {
            match weight {
                Some(weight) => write!(f, " norm={weight}")?,
                None => write!(f, " head_len={head_len}")?,
            }
            write!(f, " eps={eps:?}")
        }
        Op::Rope { table, head_len } => write!(f, " rope={} head_len={head_len}", table.0),
        Op::Linear { weight, bias, head } => {
            write!(f, " weight={weight}")?;
            optional(f, "bias", bias.as_ref())?;
            optional(f, "head", head.then_some(true))
        }
        Op::PrepareQuery { norm, rope } => {
            head_norm(f, norm.as_ref())?;
            optional(f, "rope", rope.map(|r| r.0))
        }
        Op::WriteKv { norm, rope, value_eps, layer } => {
            head_norm(f, norm.as_ref())?;
            optional(f, "rope", rope.map(|r| r.0))?;
            optional(f, "value_eps", value_eps.map(|v| format!("{v:?}")))?;
            write!(f, " kv={}", layer.0)
        }
        Op::Attention { layer, kappa, window, soft_cap } => {
            write!(f, " kv={} kappa={kappa:?}", layer.0)?;
            optional(f, "window", *window)?;
            optional(f, "soft_cap", soft_cap.map(|v| format!("{v:?}")))
        }
        Op::Gate { activation, part } => {
            f.write_str(match activation {
                Activation::Silu => " activation=silu",
                Activation::Gelu => " activation=gelu",
            })?;
            optional(f, "part", Some(*part).filter(|&part| part > 0))
        }
        Op::Scale { scale } => write!(f, " scale={scale}"),
        Op::SoftCap { cap } => write!(f, " cap={cap:?}"),
    }
}

fn head_norm(f: &mut fmt::Formatter<'_>, norm: Option<&HeadNorm>) -> fmt::Result {
    norm.map_or(Ok(()), |HeadNorm { weight, eps }| write!(f, " norm={weight} eps={eps:?}"))
}

fn optional(f: &mut fmt::Formatter<'_>, key: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {key}={value}"))
}
