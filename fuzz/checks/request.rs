//! Any bytes as the body of a request: read, or refused with an error that a client understands.
//!
//! Beside `mod.rs`, not in it: the other checks do without the server.

use std::sync::{Arc, OnceLock};

use unisonic_core::format::{Metadata, Strings, Value};
use unisonic_engine::chat::ChatTemplate;
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_server::{Model, Options, check_request};

const TEMPLATE: &str = include_str!("../../tests/data/chat-templates/qwen2.5.jinja");

/// A model whose tokens are three control tokens and all bytes.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let controls = ["<unk>", "<s>", "<|im_end|>"].map(str::to_owned);
        let bytes = (0..=255).map(|byte: u8| format!("<0x{byte:02X}>"));
        let tokens: Vec<String> = controls.into_iter().chain(bytes).collect();
        let types =
            tokens.iter().enumerate().map(|(id, _)| [2, 3, 3].get(id).copied().unwrap_or(6)).collect();
        let mut metadata = Metadata::default();
        for (key, value) in [
            ("tokenizer.ggml.model", Value::String("llama".into())),
            ("tokenizer.ggml.scores", Value::F32s(vec![0.0; tokens.len()])),
            ("tokenizer.ggml.token_type", Value::I32s(types)),
            ("tokenizer.ggml.tokens", Value::Strings(Strings::from_iter(tokens))),
        ] {
            assert!(metadata.insert(key, value));
        }
        Model {
            name: "fuzzed".into(),
            tokenizer: Arc::new(Tokenizer::from_metadata(&metadata).expect("a tokenizer")),
            template: ChatTemplate::new(TEMPLATE).map_err(|error| error.to_string()),
            context_len: 4096,
            vocab_len: 259,
            device: "none".into(),
            profile: "none".into(),
            grammars: OnceLock::new(),
        }
    })
}

pub fn check(bytes: &[u8]) {
    for error in check_request(&Options::default(), model(), bytes) {
        assert_eq!(error.http_status().as_u16(), 400, "what is wrong with a body is its sender's: {error}");
        let json = error.json();
        let said = &json["error"];
        assert!(said["message"].as_str().is_some_and(|message| !message.is_empty()), "{said}");
        if let Some(param) = said["param"].as_str() {
            assert!(error.to_string().contains(param), "the message names the field: {said}");
        }
    }
}
