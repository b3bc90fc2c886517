//! Which tokens end a generation.
//!
//! Files rarely name all of them, so llama.cpp knows the usual texts (`llama-vocab.cpp`, `special_eog_ids`) and treats
//! a token with such a text as a control token whatever its type says. The same lists stand here.

use unisonic_core::format::Metadata;

use super::{TokenKind, TokenizerError, Vocabulary, token_id};

/// Metadata keys whose token ends a generation.
const STOP_KEYS: [&str; 3] =
    ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// Texts that end a generation: ends of turns, of messages and of texts.
const STOP_TEXTS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// A fill-in-the-middle token: the key that names it, or else the texts that it is known by.
struct FillIn {
    key: &'static str,
    texts: &'static [&'static str],
    /// Whether a model that writes it has left the text.
    stops: bool,
}

const FILL_IN: [FillIn; 6] = [
    FillIn {
        key: "tokenizer.ggml.fim_pre_token_id",
        texts: &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        stops: false,
    },
    FillIn {
        key: "tokenizer.ggml.fim_suf_token_id",
        texts: &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        stops: false,
    },
    FillIn {
        key: "tokenizer.ggml.fim_mid_token_id",
        texts: &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        stops: false,
    },
    FillIn {
        key: "tokenizer.ggml.fim_pad_token_id",
        texts: &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
        stops: true,
    },
    FillIn {
        key: "tokenizer.ggml.fim_rep_token_id",
        texts: &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
        stops: true,
    },
    FillIn { key: "tokenizer.ggml.fim_sep_token_id", texts: &["<|file_sep|>"], stops: true },
];

/// A text of [`STOP_TEXTS`] that does not end a generation in some vocabularies.
struct Exception {
    text: &'static str,
    /// The vocabularies in which one of each of these lists does.
    with: &'static [&'static [&'static str]],
    /// What the text is there.
    kind: TokenKind,
}

/// llama.cpp makes `<|end|>` a user-defined token there, which a message of a chat could hold and so end itself. It
/// stays a control token here.
const EXCEPTIONS: [Exception; 3] = [
    // gpt-oss: the end of a part of an answer.
    Exception {
        text: "<|end|>",
        with: &[&["<|return|>"], &["<|call|>", "<|calls|>"]],
        kind: TokenKind::Control,
    },
    // Solar.
    Exception {
        text: "<|end|>",
        with: &[&["<|flush|>"], &["<|call|>", "<|calls|>"]],
        kind: TokenKind::Control,
    },
    // Gemma 4: markup.
    Exception { text: "</s>", with: &[&["<|tool_response>"]], kind: TokenKind::Normal },
];

/// Marks the known texts as control tokens and returns the ids that end a generation, ascending.
pub fn find_stops(vocabulary: &mut Vocabulary, metadata: &Metadata) -> Result<Vec<u32>, TokenizerError> {
    let mut stops = Vec::new();
    for key in STOP_KEYS {
        stops.extend(token_id(metadata, key, vocabulary)?);
    }
    for fill_in in FILL_IN {
        let id = match token_id(metadata, fill_in.key, vocabulary)? {
            Some(id) => Some(id),
            None => fill_in.texts.iter().find_map(|text| mark_control(vocabulary, text)),
        };
        stops.extend(id.filter(|_| fill_in.stops));
    }
    stops.extend(STOP_TEXTS.iter().filter_map(|text| mark_control(vocabulary, text)));
    stops.sort_unstable();
    stops.dedup();
    for exception in EXCEPTIONS {
        let is_stop = |text: &&str| vocabulary.id(text).is_some_and(|id| stops.contains(&id));
        if exception.with.iter().all(|texts| texts.iter().any(&is_stop))
            && let Some(id) = vocabulary.id(exception.text).filter(|id| stops.contains(id))
        {
            stops.retain(|&stop| stop != id);
            vocabulary.set_kind(id, exception.kind);
        }
    }
    Ok(stops)
}

fn mark_control(vocabulary: &mut Vocabulary, text: &str) -> Option<u32> {
    let id = vocabulary.id(text)?;
    vocabulary.set_kind(id, TokenKind::Control);
    Some(id)
}
