//! Hyperparameters: metadata keys as checked numbers.
//!
//! Every number that sizes something is held to a limit before it is used, so that a hostile file costs nothing and
//! later arithmetic fits 32 bits. Defaults are those of llama.cpp.

use std::fmt::Display;
use std::ops::RangeInclusive;

use unisonic_core::format::{Metadata, Value, required};
use unisonic_core::numerics::norm::eps_before_scale;
use unisonic_core::numerics::range::{OutOfRange, check_eps, check_soft_cap};

use crate::error::PlanError;
use crate::graph::RopeScaling;
use crate::graph::limits::{MAX_CONTEXT_LEN, MAX_HEAD_LEN, MAX_ROW_LEN, MAX_VOCAB_LEN};

/// Most layers.
const MAX_LAYERS: u32 = 1024;
/// Most experts: numbers up to here are exact as floats, and kernels look through them.
pub const MAX_EXPERTS: u32 = 1024;

/// Reads `ARCHITECTURE.name` keys.
pub struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl<'a> Keys<'a> {
    /// Of a file's `general.architecture`.
    pub fn new(metadata: &'a Metadata, architecture: &'a str) -> Self {
        Keys { metadata, architecture }
    }

    /// The full key.
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// An optional number in a range.
    pub fn u32(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, PlanError> {
        let found = self.metadata.u32(&self.key(name))?;
        match found.filter(|value| !range.contains(value)) {
            None => Ok(found),
            Some(value) => {
                Err(self.out_of_range(name, value, format!("{} to {}", range.start(), range.end())))
            }
        }
    }

    /// A number in a range.
    pub fn required_u32(&self, name: &str, range: RangeInclusive<u32>) -> Result<u32, PlanError> {
        let value = self.u32(name, range)?;
        Ok(required(Ok(value), &self.key(name), "an unsigned 32-bit integer")?)
    }

    /// A number in a range for each layer: an array of as many, or one for all; none if the key is absent.
    fn of_layers(
        &self,
        name: &str,
        layers: u32,
        range: RangeInclusive<u32>,
    ) -> Result<Option<Vec<u32>>, PlanError> {
        let wide: Vec<i64> = match self.value(name) {
            Some(Value::I32s(values)) => values.iter().map(|&value| value.into()).collect(),
            Some(Value::U32s(values)) => values.iter().map(|&value| value.into()).collect(),
            _ => return Ok(self.u32(name, range)?.map(|value| vec![value; layers as usize])),
        };
        if wide.len() != layers as usize {
            let expected = format!("one entry for each of the {layers} layers");
            return Err(self.out_of_range(name, format!("an array of {}", wide.len()), expected));
        }
        let checked = wide.into_iter().map(|value| {
            let fits = u32::try_from(value).ok().filter(|value| range.contains(value));
            let expected = || format!("{} to {} for each layer", range.start(), range.end());
            fits.ok_or_else(|| self.out_of_range(name, format!("an array with {value}"), expected()))
        });
        checked.collect::<Result<_, _>>().map(Some)
    }

    /// An optional float in a range; a NaN is in none.
    pub fn f32(&self, name: &str, range: RangeInclusive<f32>) -> Result<Option<f32>, PlanError> {
        let found = self.metadata.f32(&self.key(name))?;
        match found.filter(|value| !range.contains(value)) {
            None => Ok(found),
            Some(value) => {
                Err(self.out_of_range(name, value, format!("{:?} to {:?}", range.start(), range.end())))
            }
        }
    }

    /// The epsilon of a norm.
    fn eps(&self, name: &str) -> Result<f32, PlanError> {
        let key = self.key(name);
        let eps = required(self.metadata.f32(&key), &key, "a 32-bit float")?;
        self.range_contract(name, check_eps(eps)).map(|()| eps)
    }

    /// The epsilon of a norm whose operand has a constant factor in front of it
    /// ([`unisonic_core::numerics::norm::eps_before_scale`]).
    pub fn eps_before_scale(&self, eps: f32, inverse_square: u32) -> Result<f32, PlanError> {
        let eps = eps_before_scale(eps, inverse_square);
        self.range_contract("attention.layer_norm_rms_epsilon", check_eps(eps)).map(|()| eps)
    }

    /// A soft cap; 0 or absent is none.
    pub fn soft_cap(&self, name: &str) -> Result<Option<f32>, PlanError> {
        let cap = self.metadata.f32(&self.key(name))?.filter(|&cap| cap != 0.0);
        self.range_contract(name, cap.map_or(Ok(()), check_soft_cap)).map(|()| cap)
    }

    fn range_contract(&self, name: &str, checked: Result<(), OutOfRange>) -> Result<(), PlanError> {
        checked.map_err(|number| PlanError::Number { key: self.key(name), number })
    }

    /// An optional string.
    pub fn string(&self, name: &str) -> Result<Option<&'a str>, PlanError> {
        Ok(self.metadata.string(&self.key(name))?)
    }

    /// The value of whatever type.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.metadata.get(&self.key(name))
    }

    /// An error about a key.
    pub fn out_of_range(&self, name: &str, found: impl Display, expected: impl Into<String>) -> PlanError {
        PlanError::Hyperparameter { key: self.key(name), found: found.to_string(), expected: expected.into() }
    }
}

/// What all architectures have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyper {
    /// `block_count`.
    pub layers: u32,
    /// `embedding_length`.
    pub embedding_len: u32,
    /// `feed_forward_length`, of the first layer.
    pub feed_forward_len: u32,
    /// The same of each layer.
    pub feed_forward_lens: Vec<u32>,
    /// `attention.head_count`.
    pub heads: u32,
    /// `attention.head_count_kv`, a divisor of `heads`; default `heads`; of the first layer.
    pub kv_heads: u32,
    /// The same of each layer.
    pub layer_kv_heads: Vec<u32>,
    /// `attention.key_length` and `value_length`; default `embedding_len / heads`.
    pub head_len: u32,
    /// `rope.dimension_count`, even; default `head_len`.
    pub rotary_len: u32,
    /// `context_length`.
    pub context_len: u32,
    /// `tokenizer.ggml.tokens`, or `vocab_size`.
    pub vocab_len: Option<u32>,
    /// `attention.layer_norm_rms_epsilon`, or `layer_norm_epsilon` of LayerNorm.
    pub eps: f32,
    /// `rope.freq_base`; default 10000.
    pub rope_base: f64,
    /// `rope.scaling.*`.
    pub rope_scaling: RopeScaling,
    /// `rope.scaling.attn_factor`; default 1.
    pub attention_factor: f64,
}

impl Hyper {
    /// Reads and checks the keys; `eps` is that of the norm's epsilon.
    pub fn read(keys: &Keys<'_>, eps: &str) -> Result<Self, PlanError> {
        let layers = keys.required_u32("block_count", 1..=MAX_LAYERS)?;
        let embedding_len = keys.required_u32("embedding_length", 1..=MAX_ROW_LEN)?;
        let feed_forward_lens = keys.of_layers("feed_forward_length", layers, 1..=MAX_ROW_LEN)?;
        let key = keys.key("feed_forward_length");
        let feed_forward_lens = required(Ok(feed_forward_lens), &key, "an unsigned 32-bit integer")?;
        let context_len = keys.required_u32("context_length", 1..=MAX_CONTEXT_LEN)?;
        let heads = keys.required_u32("attention.head_count", 1..=MAX_ROW_LEN)?;
        let layer_kv_heads = keys.of_layers("attention.head_count_kv", layers, 1..=heads)?;
        let layer_kv_heads = layer_kv_heads.unwrap_or_else(|| vec![heads; layers as usize]);
        if let Some(&kv_heads) = layer_kv_heads.iter().find(|&&kv_heads| !heads.is_multiple_of(kv_heads)) {
            let expected = format!("a divisor of the {heads} query heads");
            return Err(keys.out_of_range("attention.head_count_kv", kv_heads, expected));
        }
        let head_len = head_len(keys, embedding_len, heads)?;
        let rotary_len = keys.u32("rope.dimension_count", 1..=head_len)?.unwrap_or(head_len);
        if !rotary_len.is_multiple_of(2) {
            return Err(keys.out_of_range("rope.dimension_count", rotary_len, "an even number"));
        }
        Ok(Hyper {
            layers,
            embedding_len,
            feed_forward_len: feed_forward_lens.first().copied().unwrap_or(0),
            feed_forward_lens,
            heads,
            kv_heads: layer_kv_heads.first().copied().unwrap_or(heads),
            layer_kv_heads,
            head_len,
            rotary_len,
            context_len,
            vocab_len: vocab_len(keys)?,
            eps: keys.eps(eps)?,
            rope_base: f64::from(keys.f32("rope.freq_base", ROPE_BASE)?.unwrap_or(10_000.0)),
            rope_scaling: rope_scaling(keys, context_len)?,
            attention_factor: f64::from(keys.f32("rope.scaling.attn_factor", FACTOR)?.unwrap_or(1.0)),
        })
    }
}

impl Hyper {
    /// An error if layers differ, for architectures whose layers are all alike.
    pub fn require_equal_layers(&self, keys: &Keys<'_>) -> Result<(), PlanError> {
        for (name, values) in [
            ("feed_forward_length", &self.feed_forward_lens),
            ("attention.head_count_kv", &self.layer_kv_heads),
        ] {
            if values.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(PlanError::Unsupported {
                    what: "a number of each layer's own",
                    key: keys.key(name),
                    found: "an array of different numbers".to_owned(),
                    instead: "models of this architecture work if all layers are alike".to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// Possible bases of RoPE frequencies.
pub const ROPE_BASE: RangeInclusive<f32> = 1.001..=1e12;
/// Possible factors of cosine and sine.
const FACTOR: RangeInclusive<f32> = 1e-3..=1e3;
/// Largest factor by which a context is stretched.
const MAX_SCALING: f32 = 1e6;
/// Smallest factor of linear scaling. With it angles stay below 2^32 at [`MAX_CONTEXT_LEN`], where f64 still holds them
/// to 2^-22; sines and cosines below 2^-20 are 0 in a table.
const MIN_LINEAR_SCALING: f64 = 0.0625;

/// What a mixture of experts says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// `expert_count`.
    pub count: u32,
    /// `expert_used_count`.
    pub used: u32,
    /// `expert_feed_forward_length`, if it is there.
    pub feed_forward_len: Option<u32>,
    /// `expert_shared_feed_forward_length`, if it is there.
    pub shared_len: Option<u32>,
}

impl Experts {
    /// Reads and checks the keys; none where there are no experts.
    pub fn read(keys: &Keys<'_>) -> Result<Option<Self>, PlanError> {
        let Some(count) = keys.u32("expert_count", 0..=MAX_EXPERTS)?.filter(|&count| count > 0) else {
            return Ok(None);
        };
        let len = |name| keys.u32(name, 0..=MAX_ROW_LEN).map(|len| len.filter(|&len| len > 0));
        Ok(Some(Experts {
            count,
            used: keys.required_u32("expert_used_count", 1..=count)?,
            feed_forward_len: len("expert_feed_forward_length")?,
            shared_len: len("expert_shared_feed_forward_length")?,
        }))
    }

    /// For an architecture that has none.
    pub fn refuse(keys: &Keys<'_>) -> Result<(), PlanError> {
        match keys.u32("expert_count", 0..=u32::MAX)? {
            None | Some(0) => Ok(()),
            Some(count) => Err(PlanError::Unsupported {
                what: "mixture of experts",
                key: keys.key("expert_count"),
                found: count.to_string(),
                instead: "dense models of this architecture work".to_owned(),
            }),
        }
    }
}

/// Keys and values of one length, which the cache needs.
fn head_len(keys: &Keys<'_>, embedding_len: u32, heads: u32) -> Result<u32, PlanError> {
    let head_len = match keys.u32("attention.key_length", 1..=MAX_HEAD_LEN)? {
        Some(head_len) => head_len,
        None if embedding_len.is_multiple_of(heads) && embedding_len / heads <= MAX_HEAD_LEN => {
            embedding_len / heads
        }
        None => {
            let expected = format!(
                "a divisor of the embedding length {embedding_len} with heads of at most {MAX_HEAD_LEN} values \
                 (there is no `{}`)",
                keys.key("attention.key_length")
            );
            return Err(keys.out_of_range("attention.head_count", heads, expected));
        }
    };
    let value_len = keys.u32("attention.value_length", 1..=MAX_HEAD_LEN)?;
    if let Some(value_len) = value_len.filter(|&len| len != head_len) {
        let expected = format!("{head_len}, the length of keys");
        return Err(keys.out_of_range("attention.value_length", value_len, expected));
    }
    if heads.checked_mul(head_len).is_none_or(|len| len > MAX_ROW_LEN) {
        let expected = format!("at most {} heads of {head_len} values", MAX_ROW_LEN / head_len);
        return Err(keys.out_of_range("attention.head_count", heads, expected));
    }
    Ok(head_len)
}

/// The tokenizer decides; without one, the architecture's own key.
fn vocab_len(keys: &Keys<'_>) -> Result<Option<u32>, PlanError> {
    let tokens = keys.metadata.strings("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
    let Some(tokens) = tokens else { return keys.u32("vocab_size", 1..=MAX_VOCAB_LEN) };
    let fits = u32::try_from(tokens).ok().filter(|tokens| (1..=MAX_VOCAB_LEN).contains(tokens));
    fits.map(Some).ok_or_else(|| PlanError::Hyperparameter {
        key: "tokenizer.ggml.tokens".to_owned(),
        found: format!("an array of {tokens} strings"),
        expected: format!("1 to {MAX_VOCAB_LEN} tokens"),
    })
}

/// A factor without a type is linear; 0 is no factor. YaRN's other numbers are fixed by the specification.
fn rope_scaling(keys: &Keys<'_>, context_len: u32) -> Result<RopeScaling, PlanError> {
    let kind = keys.string("rope.scaling.type")?.unwrap_or("linear");
    let (name, factor) = match keys.f32("rope.scaling.factor", 0.0..=MAX_SCALING)? {
        Some(factor) => ("rope.scaling.factor", Some(factor)),
        None => ("rope.scale_linear", keys.f32("rope.scale_linear", 0.0..=MAX_SCALING)?),
    };
    let factor = f64::from(factor.filter(|&factor| factor != 0.0).unwrap_or(1.0));
    match kind {
        "none" => Ok(RopeScaling::None),
        // Its factors are tensors.
        "longrope" if keys.architecture == "phi3" => Ok(RopeScaling::None),
        "linear" if factor == 1.0 => Ok(RopeScaling::None),
        "linear" if factor < MIN_LINEAR_SCALING => {
            let expected = format!("0 for none, or {MIN_LINEAR_SCALING:?} to {MAX_SCALING:?}");
            Err(keys.out_of_range(name, factor, expected))
        }
        "linear" => Ok(RopeScaling::Linear { factor }),
        "yarn" => {
            if factor < 1.0 {
                return Err(keys.out_of_range("rope.scaling.factor", factor, "1 or more for YaRN"));
            }
            let fixed = [("ext_factor", 1.0), ("attn_factor", 1.0), ("beta_fast", 32.0), ("beta_slow", 1.0)];
            for (name, value) in fixed {
                fixed_yarn(keys, &format!("rope.scaling.yarn_{name}"), value)?;
            }
            fixed_yarn(keys, "rope.scaling.yarn_log_multiplier", 0.0)?;
            let original = keys.u32("rope.scaling.original_context_length", 1..=MAX_CONTEXT_LEN)?;
            Ok(RopeScaling::Yarn { factor, original_context_len: original.unwrap_or(context_len) })
        }
        other => Err(PlanError::Unsupported {
            what: "this RoPE scaling",
            key: keys.key("rope.scaling.type"),
            found: format!("`{other}`"),
            instead: "`none`, `linear` and `yarn` work".to_owned(),
        }),
    }
}

fn fixed_yarn(keys: &Keys<'_>, name: &str, value: f32) -> Result<(), PlanError> {
    match keys.f32(name, f32::MIN..=f32::MAX)?.filter(|&found| found != value) {
        None => Ok(()),
        Some(found) => Err(PlanError::Unsupported {
            what: "YaRN with this number",
            key: keys.key(name),
            found: format!("{found:?}"),
            instead: format!("{value:?} works"),
        }),
    }
}
