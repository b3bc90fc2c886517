//! Small vocabularies by hand: what must hold whatever the model.

use unisonic_core::format::{Metadata, Strings, Value};

use super::*;

/// Control tokens of several models' formats.
const CONTROLS: [&str; 12] = [
    "<s>",
    "</s>",
    "<unk>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|im_",
    "|>|<|",
];
const USER_DEFINED: [&str; 4] = ["<user-defined>", "aaaa", "aaa", "ab"];

struct Draft {
    tokens: Vec<String>,
    types: Vec<i32>,
    scores: Vec<f32>,
    merges: Vec<String>,
    entries: Vec<(&'static str, Value)>,
}

impl Draft {
    fn new(entries: &[(&'static str, Value)]) -> Self {
        let mut draft = Self {
            tokens: Vec::new(),
            types: Vec::new(),
            scores: Vec::new(),
            merges: Vec::new(),
            entries: entries.to_vec(),
        };
        for text in CONTROLS {
            draft.push(text, if text == "<unk>" { 2 } else { 3 }, 0.0);
        }
        for text in USER_DEFINED {
            draft.push(text, 4, 0.0);
        }
        draft
    }

    fn push(&mut self, text: &str, ty: i32, score: f32) {
        self.tokens.push(text.to_owned());
        self.types.push(ty);
        self.scores.push(score);
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::default();
        let strings = |texts: &[String]| Value::Strings(Strings::from_iter(texts));
        let mut entries = vec![
            ("tokenizer.ggml.tokens", strings(&self.tokens)),
            ("tokenizer.ggml.token_type", Value::I32s(self.types.clone())),
        ];
        if !self.scores.is_empty() {
            entries.push(("tokenizer.ggml.scores", Value::F32s(self.scores.clone())));
        }
        if !self.merges.is_empty() {
            entries.push(("tokenizer.ggml.merges", strings(&self.merges)));
        }
        entries.extend(self.entries.iter().cloned());
        for (key, value) in entries {
            assert!(metadata.insert(key, value), "{key}");
        }
        metadata
    }

    fn load(&self) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::from_metadata(&self.metadata())
    }
}

fn text(value: &str) -> Value {
    Value::String(value.into())
}

fn bpe_draft() -> Draft {
    let mut draft = Draft::new(&[
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.bos_token_id", Value::U32(0)),
        ("tokenizer.ggml.eos_token_id", Value::U32(1)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(true)),
    ]);
    for symbol in byte_symbols::SYMBOLS {
        draft.push(&symbol.to_string(), 1, 0.0);
    }
    for (left, right) in [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "he"), ("x", "x")] {
        draft.push(&[left, right].concat(), 1, 0.0);
        draft.merges.push(format!("{left} {right}"));
    }
    draft.merges.push("h e".into());
    draft
}

/// Byte-level BPE in which every prompt begins with `<s>`.
pub(crate) fn byte_bpe() -> Tokenizer {
    bpe_draft().load().expect("loads")
}

fn spm_draft() -> Draft {
    let mut draft = Draft::new(&[("tokenizer.ggml.model", text("llama"))]);
    for byte in 0..=255u8 {
        draft.push(&format!("<0x{byte:02X}>"), 6, 0.0);
    }
    let pieces =
        [("▁", -9.0), ("d", -8.0), ("e", -7.0), ("f", -7.5), ("ef", -2.0), ("def", -6.0), ("▁d", -1.0)];
    for (piece, score) in pieces.into_iter().chain([("a", -8.0), ("▁a", -3.0), ("zz", -4.0), ("z", -5.0)]) {
        draft.push(piece, 1, score);
    }
    draft.entries.push(("tokenizer.ggml.bos_token_id", Value::U32(0)));
    draft.entries.push(("tokenizer.ggml.eos_token_id", Value::U32(1)));
    draft.entries.push(("tokenizer.ggml.unknown_token_id", Value::U32(2)));
    draft
}

/// SentencePiece BPE without a space in front, so that texts come back as they are.
pub(crate) fn spm(add_bos: bool) -> Tokenizer {
    let mut draft = spm_draft();
    draft.entries.push(("tokenizer.ggml.add_bos_token", Value::Bool(add_bos)));
    draft.entries.push(("tokenizer.ggml.add_space_prefix", Value::Bool(false)));
    draft.load().expect("loads")
}

fn pieces(tokenizer: &Tokenizer, text: &str, specials: Specials) -> Vec<String> {
    let ids = tokenizer.encode(text, specials).expect("encodes");
    ids.iter().map(|&id| tokenizer.token_text(id).expect("in the vocabulary").to_owned()).collect()
}

#[test]
fn bpe_merges_in_rule_order() {
    let tokenizer = byte_bpe();
    assert_eq!(pieces(&tokenizer, "hell hello", Specials::Parse), ["hell", "Ġ", "hell", "o"]);
    assert_eq!(pieces(&tokenizer, "xxxxx", Specials::Parse), ["xx", "xx", "x"]);
    assert_eq!(pieces(&tokenizer, "é", Specials::Parse), ["Ã", "©"]);
    assert!(tokenizer.encode("", Specials::Parse).expect("encodes").is_empty());
}

#[test]
fn bpe_leaves_bytes_without_a_token_out() {
    let mut draft = bpe_draft();
    let gap = draft.tokens.iter().position(|t| t == "!").expect("there");
    draft.tokens[gap] = "(gap)".into();
    let tokenizer = draft.load().expect("loads");
    assert_eq!(pieces(&tokenizer, "!l!l!", Specials::Parse), ["l", "l"], "what is apart stays apart");
}

#[test]
fn spm_merges_the_highest_score_first_and_the_leftmost_on_a_tie() {
    let tokenizer = spm(true);
    assert_eq!(pieces(&tokenizer, "zzz", Specials::Parse), ["zz", "z"]);
    assert_eq!(pieces(&tokenizer, "def", Specials::Parse), ["def"]);
    // `▁d` scores more than `ef`, so that nothing is left to make `def` of.
    assert_eq!(pieces(&tokenizer, " def", Specials::Parse), ["▁d", "ef"]);
    assert_eq!(pieces(&tokenizer, "é\n", Specials::Parse), ["<0xC3>", "<0xA9>", "<0x0A>"]);
}

#[test]
fn spm_puts_a_space_in_front_of_text_that_follows_nothing() {
    let tokenizer = spm_draft().load().expect("loads");
    assert_eq!(
        pieces(&tokenizer, "a<s>a<user-defined>a", Specials::Parse),
        ["▁a", "<s>", "▁a", "<user-defined>", "▁a"]
    );
    assert_eq!(pieces(&tokenizer, "", Specials::Parse), [""; 0]);
    assert_eq!(tokenizer.encode_prompt("", Specials::Parse).expect("encodes"), [0]);
}

#[test]
fn spm_without_byte_tokens_uses_the_unknown_token() {
    let mut draft = spm_draft();
    for i in 0..draft.tokens.len() {
        if draft.types[i] == 6 {
            draft.tokens[i] = format!("unused{i}");
            draft.types[i] = 5;
        }
    }
    let tokenizer = draft.load().expect("loads");
    assert_eq!(pieces(&tokenizer, "é", Specials::Literal), ["▁", "<unk>"]);
}

#[test]
fn the_longest_special_token_wins() {
    let tokenizer = byte_bpe();
    let parse = |text| pieces(&tokenizer, text, Specials::Parse);
    assert_eq!(parse("<|im_end|><|im_x"), ["<|im_end|>", "<|im_", "x"]);
    assert_eq!(parse("<|im_start|>|<|"), ["<|im_start|>", "|", "<", "|"], "claimed by the longer token");
    assert_eq!(parse("|>|<|im_"), ["|", ">", "|", "<|im_"], "claimed by the lower id");
    assert_eq!(parse("aaaaaaab"), ["aaaa", "aaa", "b"]);
    // Longest first over the whole text, not from left to right.
    assert_eq!(parse("aaaab"), ["aaaa", "b"]);
    assert_eq!(parse("xaab"), ["x", "a", "ab"]);
}

#[test]
fn literal_text_keeps_user_defined_tokens_only() {
    let tokenizer = byte_bpe();
    assert_eq!(pieces(&tokenizer, "ab<s>", Specials::Literal), ["ab", "<", "s", ">"]);
    assert_eq!(pieces(&tokenizer, "<user-defined>", Specials::Literal), ["<user-defined>"]);
}

/// Words that are tokens as a whole, merge rules and scores all lead to control tokens here.
#[test]
fn text_never_becomes_a_control_token() {
    let mut bpe = bpe_draft();
    set(&mut bpe, "tokenizer.ggml.pre", text("llama-bpe"));
    bpe.push("||", 3, 0.0);
    bpe.merges.push("| |".into());
    let mut spm = spm_draft();
    spm.push("zzz", 3, 0.0);
    spm.push("q", 2, 0.0);
    for (draft, input) in [(bpe, "|| |>|<| x||"), (spm, "zzzzz q")] {
        let tokenizer = draft.load().expect("loads");
        let ids = tokenizer.encode(input, Specials::Literal).expect("encodes");
        assert!(
            !ids.iter().any(|&id| tokenizer.token_kind(id).is_some_and(TokenKind::is_control)),
            "{ids:?}"
        );
        assert_eq!(tokenizer.decode(&ids, ControlTokens::Show).trim_start(), input);
        let parsed = tokenizer.encode(input, Specials::Parse).expect("encodes");
        assert_ne!(parsed, ids, "the control tokens are there to be parsed");
    }
}

#[test]
fn partition_is_the_rule_applied_token_by_token() {
    use proptest::prelude::*;
    let specials = byte_bpe().specials;
    let piece = prop::sample::select(vec![
        "a",
        "b",
        "|",
        "<|im_",
        "end|>",
        "<s>",
        "|>",
        "|<|",
        "<|im_end|>",
        "start|>",
        "é",
    ]);
    proptest!(|(parts in prop::collection::vec(piece, 0..20), literal: bool)| {
        let text = parts.concat();
        let mode = if literal { Specials::Literal } else { Specials::Parse };
        prop_assert_eq!(specials.partition(&text, mode), partition_slowly(&text, mode));
    });
}

/// The rule in the words of llama.cpp: for each special token, for each fragment, the first occurrence, again.
fn partition_slowly(text: &str, mode: Specials) -> Vec<Fragment<'_>> {
    let mut tokens: Vec<(u32, &str)> = (0u32..).zip(CONTROLS.into_iter().chain(USER_DEFINED)).collect();
    tokens.sort_by_key(|(_, text)| std::cmp::Reverse(text.len()));
    let mut fragments = vec![Fragment::Text(text)];
    for (id, token) in tokens {
        if mode == Specials::Literal && (id as usize) < CONTROLS.len() {
            continue;
        }
        let split = |fragment| match fragment {
            Fragment::Token(_) => vec![fragment],
            Fragment::Text(text) => {
                let mut parts: Vec<Fragment<'_>> = Vec::new();
                for (i, part) in text.split(token).enumerate() {
                    parts.extend((i > 0).then_some(Fragment::Token(id)));
                    parts.push(Fragment::Text(part));
                }
                parts
            }
        };
        fragments = fragments.into_iter().flat_map(split).collect();
    }
    fragments.retain(|fragment| *fragment != Fragment::Text(""));
    fragments
}

#[test]
fn output_text_of_each_kind() {
    let bpe = byte_bpe();
    let id = |tokenizer: &Tokenizer, text: &str| tokenizer.vocabulary.id(text).expect("there");
    let bytes = |tokenizer: &Tokenizer, text: &str, controls| {
        tokenizer.token_bytes(id(tokenizer, text), controls).into_owned()
    };
    assert_eq!(bytes(&bpe, "Ġhe", ControlTokens::Hide), b" he");
    assert_eq!(bytes(&bpe, "Ã", ControlTokens::Hide), b"\xc3");
    assert_eq!(bytes(&bpe, "<s>", ControlTokens::Hide), b"");
    assert_eq!(bytes(&bpe, "<s>", ControlTokens::Show), b"<s>");
    assert_eq!(bytes(&bpe, "<user-defined>", ControlTokens::Hide), b"<user-defined>");
    let spm = spm(true);
    assert_eq!(bytes(&spm, "▁a", ControlTokens::Hide), b" a");
    assert_eq!(bytes(&spm, "<0xF0>", ControlTokens::Hide), b"\xf0");
    assert!(spm.token_bytes(u32::MAX, ControlTokens::Show).is_empty());
}

#[test]
fn a_character_over_several_tokens_streams_whole() {
    let tokenizer = spm(true);
    let mut stream = Detokenizer::new(&tokenizer, ControlTokens::Hide);
    let ids = tokenizer.encode("a🙂你", Specials::Parse).expect("encodes");
    let streamed: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
    assert_eq!(streamed, ["a", "", "", "", "🙂", "", "", "你"]);
    assert_eq!(stream.finish(), "");
}

#[test]
fn stops_are_the_named_and_the_known() {
    let tokenizer = byte_bpe();
    let stops: Vec<&str> = tokenizer.stops().iter().filter_map(|&id| tokenizer.token_text(id)).collect();
    assert_eq!(stops, ["</s>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>"]);
    assert!(tokenizer.is_stop(1) && !tokenizer.is_stop(0));
    let mut draft = bpe_draft();
    draft.entries.push(("tokenizer.ggml.eot_token_id", Value::U32(20)));
    assert!(draft.load().expect("loads").is_stop(20));
}

#[test]
fn defaults_of_bos() {
    let mut draft = spm_draft();
    draft.entries.retain(|(key, _)| !key.contains("bos") && !key.contains("eos"));
    let tokenizer = draft.load().expect("loads");
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.adds_bos()), (Some(1), Some(2), true));
    for (pre, adds) in [("gpt-2", false), ("qwen2", false), ("llama-bpe", true), ("dbrx", false)] {
        let mut draft = bpe_draft();
        draft.entries.retain(|(key, _)| !key.contains("add_bos") && !key.ends_with("pre"));
        draft.entries.push(("tokenizer.ggml.pre", text(pre)));
        assert_eq!(draft.load().expect("loads").adds_bos(), adds, "{pre}");
    }
}

#[test]
fn a_file_without_a_pre_tokenizer_is_cut_by_the_default() {
    let mut draft = bpe_draft();
    for (left, right) in [("1", "1"), ("11", "11")] {
        draft.push(&[left, right].concat(), 1, 0.0);
        draft.merges.push(format!("{left} {right}"));
    }
    assert_eq!(pieces(&draft.load().expect("loads"), "1111", Specials::Parse), ["1111"]);
    draft.entries.retain(|(key, _)| *key != "tokenizer.ggml.pre");
    for _ in 0..2 {
        let tokenizer = draft.load().expect("loads");
        assert_eq!(pieces(&tokenizer, "1111", Specials::Parse), ["11", "1", "1"], "cut in threes");
        draft.entries.push(("tokenizer.ggml.pre", text("default")));
    }
}

/// Line feeds, spaces and characters as in Gemma 4.
fn gemma4_draft() -> Draft {
    let mut draft = Draft::new(&[
        ("tokenizer.ggml.model", text("gemma4")),
        ("tokenizer.ggml.bos_token_id", Value::U32(0)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
    ]);
    for byte in 0..=255u8 {
        draft.push(&format!("<0x{byte:02X}>"), 6, 0.0);
    }
    for piece in ["▁", "a", "b", "\n", "\n\n\n", "é", "▁é", "é▁"] {
        draft.push(piece, 1, 0.0);
    }
    draft.merges = vec!["▁ é".into(), "é ▁".into()];
    draft
}

#[test]
fn gemma4_merges_characters_and_writes_the_rest_as_bytes() {
    let tokenizer = gemma4_draft().load().expect("loads");
    let parse = |text| pieces(&tokenizer, text, Specials::Parse);
    assert_eq!(parse(" é é "), ["▁é", "▁é", "▁"], "a rule goes before one behind it");
    assert_eq!(parse("é b"), ["é▁", "b"]);
    assert_eq!(parse("aç"), ["a", "<0xC3>", "<0xA7>"]);
    assert_eq!(
        parse("\n\n\nb\n\n"),
        ["\n\n\n", "b", "\n", "\n"],
        "line feeds that are a token are that token"
    );
    let ids = tokenizer.encode_prompt("é ç\n\n\n", Specials::Parse).expect("encodes");
    assert_eq!(ids.first(), Some(&0), "BOS, though the file says not");
    assert_eq!(tokenizer.decode(&ids, ControlTokens::Hide), "é ç\n\n\n");
}

#[test]
fn phi3_tokens_take_the_white_space_behind_them() {
    let mut draft = spm_draft();
    set(&mut draft, "tokenizer.ggml.add_space_prefix", Value::Bool(false));
    let text_ids = "<|im_end|> \n a<s> a<|im_end|> \t<|im_end|>\u{a0}";
    let literal = ["<0xC2>", "<0xA0>"];
    let parse = |draft: &Draft| pieces(&draft.load().expect("loads"), text_ids, Specials::Parse);
    let plain = parse(&draft);
    assert_eq!(plain[..4], ["<|im_end|>", "▁", "<0x0A>", "▁a"]);
    draft.entries.push(("general.name", text("Phi-3 mini")));
    let expected = ["<|im_end|>", "a", "<s>", "▁a", "<|im_end|>", "<|im_end|>"];
    assert_eq!(parse(&draft), [&expected[..], &literal].concat());
}

#[test]
fn texts_that_end_a_generation_elsewhere() {
    let with = |texts: &[&str]| {
        let mut draft = bpe_draft();
        texts.iter().for_each(|text| draft.push(text, 3, 0.0));
        draft.load().expect("loads")
    };
    let kind = |tokenizer: &Tokenizer, text: &str| {
        let id = tokenizer.vocabulary.id(text).expect("there");
        (tokenizer.is_stop(id), tokenizer.token_kind(id).expect("there"))
    };
    let plain = with(&["<|end|>", "<|return|>"]);
    assert_eq!(kind(&plain, "<|end|>"), (true, TokenKind::Control));
    let gpt_oss = with(&["<|end|>", "<|return|>", "<|call|>"]);
    assert_eq!(kind(&gpt_oss, "<|end|>"), (false, TokenKind::Control));
    let gemma4 = with(&["<|tool_response>"]);
    assert_eq!(kind(&gemma4, "</s>"), (false, TokenKind::Normal));
    assert_eq!(kind(&plain, "</s>"), (true, TokenKind::Control));
}

/// A way to damage a good file.
type Change = fn(&mut Draft);

fn set(draft: &mut Draft, key: &'static str, value: Value) {
    draft.entries.retain(|(k, _)| *k != key);
    draft.entries.push((key, value));
}

/// Each change to a good file, and words that its error must have.
#[test]
fn damaged_files_are_errors_that_name_key_and_index() {
    let changes: &[(Change, &[&str])] = &[
        (|d| d.entries.retain(|(k, _)| *k != "tokenizer.ggml.model"), &["tokenizer.ggml.model"]),
        (|d| set(d, "tokenizer.ggml.model", text("bert")), &["bert", "gpt2", "gemma4", "llama"]),
        (|d| set(d, "tokenizer.ggml.model", Value::U32(1)), &["tokenizer.ggml.model", "a string"]),
        (|d| set(d, "tokenizer.ggml.pre", text("kimi-k2")), &["`kimi-k2`", "smollm", "llama-bpe"]),
        (|d| set(d, "tokenizer.ggml.pre", Value::U32(1)), &["tokenizer.ggml.pre", "a string"]),
        (|d| d.types.truncate(5), &["tokenizer.ggml.token_type", "5 entries"]),
        (|d| d.tokens[40] = d.tokens[30].clone(), &["tokenizer.ggml.tokens", "index 30", "index 40"]),
        (|d| d.types[30] = 6, &["index 30", "<0x00>"]),
        (|d| d.merges.push("he".into()), &["tokenizer.ggml.merges", "index 6", "space"]),
        (|d| d.merges.push("".into()), &["index 6"]),
        (|d| d.merges.push(" ".into()), &["index 6"]),
        (|d| d.merges.push("h ".into()), &["index 6"]),
        (|d| d.merges.push("é x".into()), &["index 6", "not a token"]),
        (|d| d.merges.push("h h".into()), &["index 6", "\"hh\" is not a token"]),
        (|d| d.merges.clear(), &["tokenizer.ggml.merges"]),
        (|d| set(d, "tokenizer.ggml.bos_token_id", Value::U32(9999)), &["bos_token_id", "9999"]),
        (|d| set(d, "tokenizer.ggml.eos_token_id", Value::I32(-1)), &["eos_token_id", "-1"]),
        (|d| set(d, "tokenizer.ggml.eot_token_id", Value::U64(1 << 40)), &["eot_token_id"]),
        (|d| set(d, "tokenizer.ggml.fim_pad_token_id", text("x")), &["fim_pad_token_id"]),
        (|d| d.entries.retain(|(k, _)| !k.ends_with("bos_token_id")), &["add_bos_token", "bos_token_id"]),
        (|d| (d.tokens, d.types, d.scores) = Default::default(), &["0 tokens"]),
    ];
    for (change, words) in changes {
        let mut draft = bpe_draft();
        change(&mut draft);
        let error = draft.load().err().expect("an error").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error} should name {words:?}");
    }
    let scores: [(Change, &[&str]); 3] = [
        (|d| d.scores.truncate(7), &["tokenizer.ggml.scores", "7 entries"]),
        (|d| d.scores[9] = f32::NAN, &["tokenizer.ggml.scores", "index 9"]),
        (
            |d| {
                d.scores.clear();
                d.entries.push(("tokenizer.ggml.scores", Value::Bools(vec![])));
            },
            &["tokenizer.ggml.scores", "32-bit floats"],
        ),
    ];
    for (change, words) in scores {
        let mut draft = spm_draft();
        change(&mut draft);
        let error = draft.load().err().expect("an error").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error} should name {words:?}");
    }
}

#[test]
fn an_empty_token_is_named_and_never_matched() {
    let mut draft = bpe_draft();
    draft.push("", 3, 0.0);
    let tokenizer = draft.load().expect("loads");
    let last = tokenizer.vocab_len() - 1;
    assert_eq!(tokenizer.token_text(last), Some(format!("[EMPTY_{last}]").as_str()));
    let ids = tokenizer.encode(&format!("[EMPTY_{last}]"), Specials::Parse).expect("encodes");
    assert!(!ids.contains(&last));
}

#[test]
fn long_runs_take_time_in_proportion() {
    for tokenizer in [byte_bpe(), spm(true)] {
        for unit in ["x", "z", " ", "\n", ".", "a", "<|im_", "<|im_end|>", "é"] {
            let text = unit.repeat(131_072);
            let ids = tokenizer.encode(&text, Specials::Parse).expect("encodes");
            assert_eq!(tokenizer.decode(&ids, ControlTokens::Show), text);
        }
    }
}

#[test]
fn random_vocabularies_never_panic() {
    use proptest::prelude::*;
    let piece = prop::sample::select(vec![
        "", "a", "b", "ab", "<0x61>", "<0xZZ>", "▁", "Ġ", "<s>", "é", "a b", "aab", " ",
    ]);
    let merge = prop::sample::select(vec!["a b", "ab a", "a", " a", "a ", "", "é é", "a a b", "aa b"]);
    proptest!(|(
        tokens in prop::collection::vec(piece, 0..12),
        types in prop::collection::vec(-1i32..9, 0..12),
        scores in prop::collection::vec(prop::sample::select(vec![0.0, -0.0, 1.5, f32::INFINITY, f32::NAN]), 0..12),
        merges in prop::collection::vec(merge, 0..4),
        spm: bool,
        same_len: bool,
        bos in 0u32..14,
        input in "[ab é<>s0x61▁Ġ]{0,12}",
    )| {
        let mut draft = Draft::new(&[
            ("tokenizer.ggml.model", text(if spm { "llama" } else { "gpt2" })),
            ("tokenizer.ggml.pre", text("llama-bpe")),
            ("tokenizer.ggml.bos_token_id", Value::U32(bos)),
        ]);
        draft.tokens = tokens.iter().map(|&t| t.to_owned()).collect();
        draft.types = types;
        draft.scores = scores;
        draft.merges = merges.iter().map(|&m| m.to_owned()).collect();
        if same_len {
            draft.types.resize(draft.tokens.len(), 1);
            draft.scores.resize(draft.tokens.len(), 0.0);
        }
        if let Ok(tokenizer) = draft.load() {
            for specials in [Specials::Parse, Specials::Literal] {
                if let Ok(ids) = tokenizer.encode_prompt(&input, specials) {
                    tokenizer.decode(&ids, ControlTokens::Show);
                }
            }
        }
    });
}
