//! Metadata of a synthetic file, with a stand-in vocabulary.

use unisonic_core::format::{Metadata, Strings, Value};
use unisonic_engine::tokenizer::BYTE_SYMBOLS;

use super::quant::Quant;
use super::shapes::{Experts, Hyperparameters};

/// `tokenizer.ggml.token_type` of a piece of text.
const NORMAL: i32 = 1;
/// `tokenizer.ggml.token_type` of a token that steers.
const CONTROL: i32 = 3;
/// Begins and ends texts.
const END: &str = "<|endoftext|>";

/// Everything but the tensors.
pub fn metadata(shape: &Hyperparameters, quant: Quant, layers: u32, context_len: u32, seed: u64) -> Metadata {
    let mut metadata = Metadata::default();
    let mut put = |key: &str, value: Value| {
        let fresh = metadata.insert(&key.replace("{}", shape.architecture), value);
        debug_assert!(fresh, "{key} is set once");
    };
    put("general.architecture", Value::String(shape.architecture.into()));
    let cut =
        if layers < shape.layers { format!(", {layers} of {} layers", shape.layers) } else { String::new() };
    put("general.name", Value::String(format!("synthetic {}{cut}", shape.name)));
    let description = format!("random weights from seed {seed}, written by unisonic synth");
    put("general.description", Value::String(description));
    put("general.file_type", Value::U32(quant.file_type()));
    put("general.quantization_version", Value::U32(2));
    for (key, value) in [
        ("{}.block_count", layers),
        ("{}.context_length", context_len),
        ("{}.embedding_length", shape.embedding_len),
        ("{}.feed_forward_length", shape.feed_forward_len),
        ("{}.attention.head_count", shape.heads),
        ("{}.attention.head_count_kv", shape.kv_heads),
        ("{}.attention.key_length", shape.head_len),
        ("{}.attention.value_length", shape.head_len),
        ("{}.vocab_size", shape.vocab_len),
    ] {
        put(key, Value::U32(value));
    }
    // The other architectures rotate whole heads and have no such key.
    if matches!(shape.architecture, "llama" | "phi3" | "gemma4") {
        put("{}.rope.dimension_count", Value::U32(shape.head_len));
    }
    match shape.architecture {
        "gpt2" => put("{}.attention.layer_norm_epsilon", Value::F32(shape.eps)),
        _ => {
            put("{}.attention.layer_norm_rms_epsilon", Value::F32(shape.eps));
            put("{}.rope.freq_base", Value::F32(shape.rope_base));
        }
    }
    if let Some(window) = shape.window {
        put("{}.attention.sliding_window", Value::U32(window));
    }
    if shape.architecture == "gemma2" {
        put("{}.attn_logit_softcapping", Value::F32(50.0));
    }
    if matches!(shape.architecture, "gemma2" | "gemma4") {
        put("{}.final_logit_softcapping", Value::F32(30.0));
    }
    if let Some(Experts { count, used, feed_forward_len, shared_len }) = shape.experts {
        put("{}.expert_count", Value::U32(count));
        put("{}.expert_used_count", Value::U32(used));
        if shape.architecture != "llama" {
            put("{}.expert_feed_forward_length", Value::U32(feed_forward_len));
        }
        if let Some(len) = shared_len {
            put("{}.expert_shared_feed_forward_length", Value::U32(len));
        }
    }
    if let Some(gemma4) = shape.gemma4 {
        for (key, value) in [
            ("{}.attention.key_length_swa", gemma4.local_head_len),
            ("{}.attention.value_length_swa", gemma4.local_head_len),
            ("{}.rope.dimension_count_swa", gemma4.local_head_len),
            ("{}.attention.shared_kv_layers", layers.saturating_sub(gemma4.own_caches)),
            ("{}.embedding_length_per_layer_input", gemma4.per_layer_len),
        ] {
            put(key, Value::U32(value));
        }
        put("{}.rope.freq_base_swa", Value::F32(10_000.0));
        let local = (0..layers).map(|layer| gemma4.is_local(layer)).collect();
        put("{}.attention.sliding_window_pattern", Value::Bools(local));
    }
    put("tokenizer.ggml.model", Value::String("gpt2".into()));
    put("tokenizer.ggml.pre", Value::String("gpt-2".into()));
    let (tokens, types) = vocabulary(shape.vocab_len);
    put("tokenizer.ggml.tokens", Value::Strings(tokens));
    put("tokenizer.ggml.token_type", Value::I32s(types));
    put("tokenizer.ggml.merges", Value::Strings(Strings::default()));
    put("tokenizer.ggml.eos_token_id", Value::U32(BYTE_SYMBOLS.len() as u32));
    put("tokenizer.ggml.add_bos_token", Value::Bool(false));
    metadata
}

/// A token for each byte, one that ends texts, and names for all other ids. Without merge rules a text is as many
/// tokens as it has bytes.
fn vocabulary(len: u32) -> (Strings, Vec<i32>) {
    let bytes = BYTE_SYMBOLS.iter().map(|symbol| (symbol.to_string(), NORMAL));
    let fillers = (BYTE_SYMBOLS.len() as u32 + 1..).map(|id| (format!("<filler_{id}>"), NORMAL));
    let all = bytes.chain([(END.to_owned(), CONTROL)]).chain(fillers).take(len as usize);
    let (texts, types): (Vec<_>, Vec<_>) = all.unzip();
    (texts.into_iter().collect(), types)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use unisonic_engine::tokenizer::{ControlTokens, Specials, Tokenizer};

    use super::*;

    #[test]
    fn the_tokenizer_takes_the_vocabulary() {
        let shape = Hyperparameters::from_str("smollm2-135m", false).expect("a shape");
        let metadata = metadata(&shape, Quant::Q4_0, 2, 1024, 0);
        let tokenizer = Tokenizer::from_metadata(&metadata).expect("a tokenizer");
        assert_eq!(tokenizer.vocab_len(), shape.vocab_len);
        let text = "Grüße, 世界!\n";
        let ids = tokenizer.encode_prompt(text, Specials::Parse).expect("ids");
        assert_eq!(ids.len(), text.len(), "a token for each byte");
        assert_eq!(tokenizer.decode(&ids, ControlTokens::Hide), text);
        assert_eq!(tokenizer.encode(END, Specials::Parse).expect("ids"), [256]);
        assert!(tokenizer.is_stop(256));
        assert_eq!(tokenizer.decode(&[49_151], ControlTokens::Hide), "<filler_49151>");
    }
}
