//! Limits of the numbers in a graph, so that one that somebody has written costs nothing before it is refused, and later
//! arithmetic fits 32 bits. Architectures hold their hyperparameters to the same limits.

use std::ops::RangeInclusive;

use unisonic_core::numerics::range::{OutOfRange, check_eps, check_soft_cap};

use super::print::PrintNode;
use super::{Element, Graph, Node, Op, RopeScaling, RopeSpec, Violation, Violations};

/// Longest activation row, and most values of all heads together.
pub const MAX_ROW_LEN: u32 = 1 << 20;
/// Largest head: the score bound of docs/numerics.md "KV cache and attention".
pub const MAX_HEAD_LEN: u32 = 1024;
/// Largest vocabulary.
pub const MAX_VOCAB_LEN: u32 = 1 << 24;
/// Longest context.
pub const MAX_CONTEXT_LEN: u32 = 1 << 28;
/// Frequency bases of RoPE.
const ROPE_BASE: RangeInclusive<f64> = 1.001..=1e12;
/// Factors that stretch positions, and those of cosine and sine.
const FACTOR: RangeInclusive<f64> = 1e-3..=1e5;
/// Scales of scores and embeddings.
const SCALE: RangeInclusive<f32> = 1e-6..=1e6;

impl Graph {
    /// Checks the limits; the rules are [`Graph::verify`]'s.
    pub fn check_limits(&self) -> Result<(), Violations> {
        let mut violations = Vec::new();
        let place = format!("graph {}", self.architecture);
        let mut whole = |rule: Result<(), String>| {
            violations.extend(rule.err().map(|rule| Violation { place: place.clone(), rule }));
        };
        whole(word("the name of the graph", &self.architecture));
        whole(within("the vocabulary", self.vocab_len, 1..=MAX_VOCAB_LEN));
        whole(within("the context", self.context_len, 1..=MAX_CONTEXT_LEN));
        for (number, layer) in self.kv_layers.iter().enumerate() {
            whole(within(&format!("the head length of kv {number}"), layer.head_len, 1..=MAX_HEAD_LEN));
            let len = layer.heads.saturating_mul(layer.head_len);
            whole(within(&format!("the row length of kv {number}"), len, 1..=MAX_ROW_LEN));
        }
        for (number, spec) in self.rope_tables.iter().enumerate() {
            whole(rope(spec).map_err(|rule| format!("rope {number}: {rule}")));
        }
        for node in &self.nodes {
            if let Err(rule) = self.node_limits(node) {
                violations.push(Violation { place: PrintNode { graph: self, node }.to_string(), rule });
            }
        }
        if violations.is_empty() { Ok(()) } else { Err(Violations(violations)) }
    }

    fn node_limits(&self, node: &Node) -> Result<(), String> {
        word("the label", &node.label)?;
        for weight in node.op.weights() {
            word("the name of a tensor", &weight.tensor)?;
            let plain = !weight.tensor.is_empty() && !weight.tensor.contains(['[', '@']);
            plain.then_some(()).ok_or_else(|| format!("`{}` is no name of a tensor", weight.tensor))?;
        }
        for &result in &node.results {
            let max = if node.op == Op::Input { MAX_ROW_LEN } else { MAX_VOCAB_LEN };
            let width = match self.values.get(result.index()).map(|ty| ty.element) {
                Some(Element::U32) | None => 1,
                Some(element) => element.width(),
            };
            within("the width of the result", width, 1..=max)?;
        }
        numbers(&node.op)
    }
}

fn numbers(op: &Op) -> Result<(), String> {
    let said = |checked: Result<(), OutOfRange>| {
        checked.map_err(|number| format!("{}, found {}", number.expected, number.found))
    };
    match op {
        Op::RmsNorm { eps, .. } | Op::LayerNorm { eps, .. } | Op::HeadNorm { eps, .. } => {
            said(check_eps(*eps))
        }
        Op::PrepareQuery { norm, .. } => norm.as_ref().map_or(Ok(()), |norm| said(check_eps(norm.eps))),
        Op::WriteKv { norm, value_eps, .. } => {
            let eps = norm.as_ref().map(|norm| norm.eps).into_iter().chain(*value_eps);
            eps.into_iter().try_for_each(|eps| said(check_eps(eps)))
        }
        Op::Embed { scale: Some(scale), .. } => within("the scale", *scale, SCALE),
        Op::Attention { kappa, soft_cap, .. } => {
            within("kappa", *kappa, SCALE)?;
            soft_cap.map_or(Ok(()), |cap| said(check_soft_cap(cap)))
        }
        Op::SoftCap { cap } => said(check_soft_cap(*cap)),
        _ => Ok(()),
    }
}

fn rope(spec: &RopeSpec) -> Result<(), String> {
    within("the rotated values", spec.rotary_len, 2..=MAX_HEAD_LEN)?;
    within("the base", spec.base, ROPE_BASE)?;
    within("the factor of cosine and sine", spec.attention_factor, FACTOR)?;
    match spec.scaling {
        RopeScaling::None => Ok(()),
        RopeScaling::Linear { factor } => within("the scaling", factor, FACTOR),
        RopeScaling::Yarn { factor, original_context_len } => {
            within("the scaling", factor, FACTOR)?;
            within("the original context", original_context_len, 1..=MAX_CONTEXT_LEN)
        }
    }
}

/// A NaN is in no range.
fn within<T: PartialOrd + std::fmt::Debug>(
    what: &str,
    found: T,
    range: RangeInclusive<T>,
) -> Result<(), String> {
    match range.contains(&found) {
        true => Ok(()),
        false => Err(format!("{what} must be {:?} to {:?}, found {found:?}", range.start(), range.end())),
    }
}

/// What the text form can say.
fn word(what: &str, found: &str) -> Result<(), String> {
    match found.contains(char::is_whitespace) {
        false => Ok(()),
        true => Err(format!("{what} must have no spaces, found `{}`", found.escape_debug())),
    }
}
