//! Any template with any messages: an answer or an error, soon, and no control token out of a message.
//!
//! The first byte of the input says what is checked: 0 to 3 a template of a real model, else a template in the input,
//! with one vocabulary and date or the other. The rest is cut at the bytes FF: the template (if it is in the input), then a role and a content by turns. Bytes
//! that are no UTF-8 become U+FFFD.

use std::sync::OnceLock;

use unisonic_engine::chat::{ChatOptions, ChatTemplate, Message, encode_chat};
use unisonic_engine::tokenizer::{TokenKind, Tokenizer};

use super::vocabularies;

const REAL: [&str; 4] = [
    include_str!("../../tests/data/chat-templates/smollm2.jinja"),
    include_str!("../../tests/data/chat-templates/qwen2.5.jinja"),
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + \
     message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}\
     {% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}\
     {% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | \
     trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
];
const MESSAGES_MAX: usize = 64;

/// More than fuel pays for: each byte of output costs some.
const TEXT_LEN_MAX_BYTES: usize = 64 << 20;

fn tokenizers() -> &'static [Tokenizer; 2] {
    static TOKENIZERS: OnceLock<[Tokenizer; 2]> = OnceLock::new();
    TOKENIZERS.get_or_init(|| {
        [vocabularies::byte_bpe("llama-bpe"), vocabularies::spm(true)].map(vocabularies::tokenizer)
    })
}

pub fn check(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let mut parts = rest.split(|&byte| byte == 0xff).map(|part| String::from_utf8_lossy(part).into_owned());
    match REAL.get(usize::from(first)) {
        Some(template) => check_real(template, &messages(parts)),
        None => {
            let template = parts.next().unwrap_or_default();
            check_any(&template, &messages(parts), first);
        }
    }
}

fn messages(mut parts: impl Iterator<Item = String>) -> Vec<Message> {
    let next = || parts.next().map(|role| Message::new(role, parts.next().unwrap_or_default()));
    std::iter::from_fn(next).take(MESSAGES_MAX).collect()
}

fn check_any(template: &str, messages: &[Message], first: u8) {
    let Ok(template) = ChatTemplate::new(template) else { return };
    let date = (first & 1 == 0).then(|| "2026-01-31".to_owned());
    let options = ChatOptions { add_generation_prompt: first & 2 == 0, date, ..ChatOptions::default() };
    let tokenizer = &tokenizers()[usize::from(first >> 2 & 1)];
    let rendered = template.render(tokenizer, messages, &options);
    let again = template.render(tokenizer, messages, &options);
    assert_eq!(rendered.is_ok(), again.is_ok(), "the same input gives the same prompt");
    let (Ok(rendered), Ok(again)) = (rendered, again) else { return };
    assert_eq!(rendered.text(), again.text(), "the same input gives the same prompt");
    assert!(rendered.text().len() <= TEXT_LEN_MAX_BYTES);
    let ids = encode_chat(tokenizer, &rendered).expect("every text can be encoded");
    assert_eq!(ids.first().copied(), tokenizer.bos(), "a prompt begins with BOS");
}

/// The control tokens of a prompt are the template's, whatever is said.
fn check_real(template: &str, messages: &[Message]) {
    let template = ChatTemplate::new(template).expect("a template that works");
    let options = ChatOptions::default();
    let roles = ["user", "assistant"].into_iter().cycle();
    let messages: Vec<_> =
        messages.iter().zip(roles).map(|(m, role)| Message::new(role, m.content.as_str())).collect();
    let harmless: Vec<_> = messages.iter().map(|m| Message::new(m.role.as_str(), "x")).collect();
    for tokenizer in tokenizers() {
        let controls = |messages: &[Message]| {
            let rendered = template.render(tokenizer, messages, &options).ok()?;
            let ids = encode_chat(tokenizer, &rendered).expect("every text can be encoded");
            let is_control =
                |&id: &u32| matches!(tokenizer.token_kind(id), Some(TokenKind::Control | TokenKind::Unknown));
            Some(ids.into_iter().filter(is_control).collect::<Vec<_>>())
        };
        let (found, expected) = (controls(&messages), controls(&harmless));
        if found.is_some() {
            assert_eq!(found, expected, "the messages' control tokens are text");
        }
    }
}
