//! Conversations to prompts, by the template in the model's file.
//!
//! Start at [`ChatTemplate::from_metadata`] and [`ChatTemplate::render`]; [`encode_chat`] turns the result into ids.
//! Templates are untrusted programs and run in a sandbox (`sandbox.rs`, `guard.rs`).
//!
//! # Whose control tokens count
//!
//! A template writes control tokens as text: `<|im_start|>user\n` + content + `<|im_end|>`. The result is searched for
//! them, so a content that holds `<|im_end|>` could end its own turn and begin another's. It must not: **the
//! template's text is parsed for special tokens, the messages' is not.** The engine gives one string, without saying
//! which characters came from where, so the messages are prepared: a marker character, which occurs in nothing else,
//! is put
//!
//! 1. into every occurrence of a control token in a content, after its first character. Occurrences may overlap, so
//!    all are found, not only those that a tokenizer would take. After that no control token is left in it;
//! 2. in front of a content that a control token could end in, and behind one that a control token could begin in, as
//!    the template's own text may supply the rest (`<` before a content `|im_end|>`). As many templates trim
//!    contents, this is done for the content and for the trimmed content. Elsewhere no marker is put at the ends:
//!    templates test how a content begins (`startswith('<think>')`).
//!
//! Texts in tools and in their calls are contents like any other, names of members included; words that templates look for, such
//! as `function`, stay as they are.
//!
//! Roles stay as they are, since templates compare them; they must be plain words that are no part of a control token
//! ([`ChatError::Role`]).
//!
//! After rendering, the text is split at the special tokens, which are then the template's; only then the markers are
//! removed, and what lies between is tokenised as literal text. So a content comes out as the ids that it has alone as
//! literal text next to the template's, user-defined tokens included. What this cannot stop is a template that itself
//! deletes characters from *within* a content and so puts a token together.

mod data;
mod error;
mod guard;
mod python;
mod sandbox;
mod shield;

#[cfg(test)]
mod tests;

use jiff::civil::Date;
use minijinja::{Value, context};
use unisonic_core::format::Metadata;

pub use data::Data;
pub use error::ChatError;

use crate::tokenizer::{Fragment, Specials, Tokenizer, TokenizerError};
use sandbox::Budget;
use shield::Shield;

const KEY: &str = "tokenizer.chat_template";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or another plain word that the template knows.
    pub role: String,
    /// What is said; never parsed for special tokens.
    pub content: String,
    /// What else the template may ask for, such as `tool_calls`; its texts are never parsed for special tokens.
    pub more: Vec<(String, Data)>,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), more: Vec::new() }
    }

    /// All texts but the role.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let more = self.more.iter().flat_map(|(name, data)| data.texts().into_iter().chain([name.as_str()]));
        more.chain([self.content.as_str()])
    }

    fn len_bytes(&self) -> usize {
        let more: usize = self.more.iter().map(|(name, data)| name.len() + data.len_bytes()).sum();
        self.role.len() + self.content.len() + more
    }
}

/// What a prompt depends on besides the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether the prompt ends with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// What a template's `strftime_now` takes for today, as `2026-01-31`. Without it the function does not exist:
    /// the clock is never read, as equal input gives equal prompts.
    pub date: Option<String>,
    /// Tools that the model may call; without any, `tools` is none.
    pub tools: Vec<Data>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, date: None, tools: Vec::new() }
    }
}

/// A template's text, known to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    source: String,
    prepared: String,
}

/// A rendered conversation, in which the messages' control tokens are still taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedChat {
    shielded: String,
    shield: Shield,
}

impl RenderedChat {
    /// The prompt as text.
    pub fn text(&self) -> String {
        self.shield.remove(&self.shielded)
    }
}

impl ChatTemplate {
    /// Checks a template.
    pub fn new(source: impl Into<String>) -> Result<Self, ChatError> {
        let source = source.into();
        Ok(Self { prepared: sandbox::prepare(&source)?, source })
    }

    /// The file's template: `tokenizer.chat_template`, or with a name `tokenizer.chat_template.<name>`.
    pub fn from_metadata(metadata: &Metadata, name: Option<&str>) -> Result<Self, ChatError> {
        let key = name.map_or_else(|| KEY.to_owned(), |name| format!("{KEY}.{name}"));
        match metadata.string(&key)? {
            Some(source) => Self::new(source),
            None => {
                let others: Vec<&str> =
                    metadata.iter().map(|(key, _)| key).filter(|key| key.starts_with(KEY)).collect();
                let others =
                    if others.is_empty() { String::new() } else { format!("; it has {}", others.join(", ")) };
                Err(ChatError::NoTemplate { key, others })
            }
        }
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation. The template sees `messages`, `add_generation_prompt`, `bos_token`, `eos_token`, `tools` if there are
    /// any, and no `documents`.
    pub fn render(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<RenderedChat, ChatError> {
        let specials = tokenizer.specials();
        let roles = messages.iter().map(|message| message.role.as_str());
        let texts = roles.chain(messages.iter().flat_map(Message::texts));
        let texts = texts.chain(options.tools.iter().flat_map(Data::texts));
        let shield = Shield::choose(specials, &self.source, texts)?;
        let shielded = |text: &str| shield.word(specials, text);
        let mut values = Vec::with_capacity(messages.len());
        for message in messages {
            shield::check_role(specials, &message.role)?;
            let content = shield.content(specials, &message.content)?;
            let mut members =
                vec![("role", Value::from(message.role.as_str())), ("content", Value::from(content))];
            for (name, data) in &message.more {
                members.push((name, data.value(&shielded)?));
            }
            values.push(Value::from_pairs(members));
        }
        let tools: Result<Vec<Value>, ChatError> =
            options.tools.iter().map(|tool| tool.value(&shielded)).collect();
        let tools = tools.map(|tools| if tools.is_empty() { Value::from(()) } else { Value::from(tools) })?;
        let token = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
        let input = context! {
            messages => values,
            add_generation_prompt => options.add_generation_prompt,
            bos_token => token(tokenizer.bos()),
            eos_token => token(tokenizer.eos()),
            tools => tools,
            documents => Value::from(()),
        };
        let date = options.date.as_deref().map(parse_date).transpose()?;
        let of_messages: usize = messages.iter().map(Message::len_bytes).sum();
        let input_len_bytes = of_messages + options.tools.iter().map(Data::len_bytes).sum::<usize>();
        let budget = Budget::for_input(messages.len(), input_len_bytes);
        Ok(RenderedChat { shielded: sandbox::render(&self.prepared, input, budget, date)?, shield })
    }
}

fn parse_date(date: &str) -> Result<Date, ChatError> {
    date.parse().map_err(|_| ChatError::Date { date: date.to_owned() })
}

/// Ids of a rendered conversation. It begins with exactly one BOS if the file wants prompts to, whether or not the
/// template writes it; EOS is never added, as a prompt is there to be continued.
pub fn encode_chat(tokenizer: &Tokenizer, rendered: &RenderedChat) -> Result<Vec<u32>, TokenizerError> {
    let specials = tokenizer.specials();
    enum Piece {
        Token(u32),
        Text(String),
    }
    let pieces: Vec<Piece> = specials
        .partition(&rendered.shielded, Specials::Parse)
        .into_iter()
        .map(|fragment| match fragment {
            Fragment::Token(id) => Piece::Token(id),
            Fragment::Text(text) => Piece::Text(rendered.shield.remove(text)),
        })
        .collect();
    let fragments = pieces.iter().flat_map(|piece| match piece {
        Piece::Token(id) => vec![Fragment::Token(*id)],
        Piece::Text(text) => specials.partition(text, Specials::Literal),
    });
    let mut ids = Vec::new();
    tokenizer.encode_fragments(fragments, &mut ids)?;
    if let Some(bos) = tokenizer.bos().filter(|bos| tokenizer.adds_bos() && ids.first() != Some(bos)) {
        ids.insert(0, bos);
    }
    Ok(ids)
}
