//! Lines of the input: what each asks for, or what is wrong with it.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};
use unisonic_engine::chat::{ChatOptions, ChatTemplate, Message, encode_chat};
use unisonic_engine::constraint::{
    ConstrainedSampler, Constraint, ConstraintError, ConstraintKind, Grammars,
};
use unisonic_engine::sampling::{Sampler, SamplerOptions};
use unisonic_engine::tokenizer::{Specials, Tokenizer};
use unisonic_engine::{Digest, GreedyTokens, Sample};

use crate::model;

/// What an input is: known before it is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub sha256: Digest,
    len_bytes: u64,
    /// Lines that are not blank.
    pub lines: u64,
}

impl Facts {
    /// Reads a file once.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        let mut lines = Lines::open(path, u64::MAX)?;
        let mut count = 0;
        while lines.next()?.is_some() {
            count += 1;
        }
        Ok(Self { sha256: lines.sha256(), len_bytes: lines.len_bytes, lines: count })
    }
}

/// The lines of a file that are not blank, with their numbers, from 1.
pub struct Lines {
    reader: io::Take<BufReader<File>>,
    /// Of all that was read.
    digest: Sha256,
    len_bytes: u64,
    number: u64,
    buffer: Vec<u8>,
}

impl Lines {
    /// Of the beginning of a file, `len_bytes` at most.
    fn open(path: &Path, len_bytes: u64) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let reader = BufReader::with_capacity(1 << 16, file).take(len_bytes);
        Ok(Self { reader, digest: Sha256::new(), len_bytes: 0, number: 0, buffer: Vec::new() })
    }

    /// Of a file as it was when its facts were read; what was appended since is not seen.
    pub fn of(path: &Path, facts: &Facts) -> anyhow::Result<Self> {
        Self::open(path, facts.len_bytes)
    }

    /// The next line that is not blank.
    pub fn next(&mut self) -> anyhow::Result<Option<(u64, &[u8])>> {
        loop {
            self.buffer.clear();
            let read = self.reader.read_until(b'\n', &mut self.buffer).context("cannot read the input")?;
            if read == 0 {
                return Ok(None);
            }
            self.digest.update(&self.buffer);
            self.len_bytes += read as u64;
            self.number += 1;
            if !self.buffer.trim_ascii().is_empty() {
                // For the borrow checker: the loop goes on with the buffer.
                break;
            }
        }
        Ok(Some((self.number, self.buffer.trim_ascii())))
    }

    /// Whether what was read, all of it, is what the facts say.
    pub fn check(self, facts: &Facts) -> anyhow::Result<()> {
        if self.sha256() != facts.sha256 {
            bail!(
                "the input was changed while it was worked on; answers may be of the old or the new lines. Remove the \
                 output and start again"
            );
        }
        Ok(())
    }

    fn sha256(&self) -> Digest {
        Digest(self.digest.clone().finalize().into())
    }
}

/// What a line asks for.
pub struct Task {
    pub prompt: Vec<u32>,
    pub max_tokens: Option<u32>,
    pub sampler: Box<dyn Sample>,
}

/// What lines are read with.
pub struct Reader<'a> {
    pub tokenizer: &'a Tokenizer,
    /// The model's, or why it has none that can be used.
    pub template: Result<ChatTemplate, String>,
    /// What a line that does not say otherwise has.
    pub sampler: SamplerOptions,
    pub max_tokens: Option<u32>,
    pub vocab_len: u32,
    /// Made for the first line that needs it.
    pub grammars: OnceCell<Result<Grammars, ConstraintError>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageJson {
    role: String,
    content: String,
}

impl Reader<'_> {
    /// What a line asks for, or what is wrong with it; with its `id`, if it has one.
    pub fn read(&self, line: &[u8]) -> (Option<Json>, anyhow::Result<Task>) {
        let mut members = match serde_json::from_slice(line) {
            Ok(Json::Object(members)) => members,
            Ok(_) => return (None, Err(anyhow::anyhow!("the line is no JSON object"))),
            Err(error) => return (None, Err(anyhow::anyhow!("the line is not JSON: {error}"))),
        };
        let id = members.remove("id");
        (id, self.task(members))
    }

    fn task(&self, mut members: Map<String, Json>) -> anyhow::Result<Task> {
        let prompt = self.prompt(&mut members)?;
        let max_tokens = match take(&mut members, "max_tokens")? {
            Some(max) => Some(max),
            None => self.max_tokens,
        };
        let format = response_format(&mut members)?;
        let sampler = self.sampler(members)?;
        let sampler: Box<dyn Sample> = match format {
            None if sampler.is_greedy() => Box::new(GreedyTokens),
            None => Box::new(sampler),
            Some(constraint) => {
                let grammars = self.grammars.get_or_init(|| Grammars::new(self.tokenizer));
                let grammar = grammars.as_ref().map_err(Clone::clone)?.compile(&constraint);
                let grammar = grammar.context("`response_format`")?;
                Box::new(ConstrainedSampler::new(sampler, grammar, prompt.len()))
            }
        };
        Ok(Task { prompt, max_tokens, sampler })
    }

    fn prompt(&self, members: &mut Map<String, Json>) -> anyhow::Result<Vec<u32>> {
        const GIVEN: &str = "prompt, messages or ids";
        let given: Vec<&str> =
            ["prompt", "messages", "ids"].into_iter().filter(|name| members.contains_key(*name)).collect();
        let name = match given[..] {
            [name] => name,
            [] => bail!("the line has none of {GIVEN}"),
            _ => bail!("the line has {}; give one of {GIVEN}", given.join(" and ")),
        };
        let ids = match name {
            "prompt" => {
                let text: String = take(members, name)?.context("no prompt")?;
                self.tokenizer.encode_prompt(&text, Specials::Parse)?
            }
            "messages" => self.chat(take(members, name)?.context("no messages")?)?,
            _ => take(members, name)?.context("no ids")?,
        };
        model::check_ids(&ids, self.vocab_len)?;
        Ok(ids)
    }

    fn chat(&self, messages: Vec<MessageJson>) -> anyhow::Result<Vec<u32>> {
        check_messages(&messages)?;
        let template = self.template.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        let messages: Vec<Message> =
            messages.into_iter().map(|message| Message::new(message.role, message.content)).collect();
        let rendered = template.render(self.tokenizer, &messages, &ChatOptions::default())?;
        Ok(encode_chat(self.tokenizer, &rendered)?)
    }

    /// The line's own options in the place of the common ones; a member that is no option is named.
    fn sampler(&self, members: Map<String, Json>) -> anyhow::Result<Sampler> {
        let mut options = serde_json::to_value(&self.sampler)?;
        if let Json::Object(options) = &mut options {
            options.extend(members);
        }
        let options: SamplerOptions = serde_json::from_value(options)?;
        Ok(Sampler::new(&options, self.vocab_len)?)
    }
}

/// What a line's answer has to follow, as OpenAI's API says it; `regex` and `grammar` are this program's.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: NamedSchema },
    Regex { regex: String },
    Grammar { grammar: String },
}

/// A schema with what does not matter here: `name`, `description`, `strict`, which it always is.
#[derive(Deserialize)]
struct NamedSchema {
    schema: Json,
}

fn response_format(members: &mut Map<String, Json>) -> anyhow::Result<Option<Constraint>> {
    Ok(match take(members, "response_format")? {
        None | Some(ResponseFormat::Text) => None,
        Some(ResponseFormat::JsonObject) => Some(Constraint::json_object()),
        Some(ResponseFormat::JsonSchema { json_schema: NamedSchema { schema } }) => {
            Some(Constraint::new(ConstraintKind::JsonSchema, schema.to_string()))
        }
        Some(ResponseFormat::Regex { regex }) => Some(Constraint::new(ConstraintKind::Regex, regex)),
        Some(ResponseFormat::Grammar { grammar }) => Some(Constraint::new(ConstraintKind::Lark, grammar)),
    })
}

/// Templates make a prompt of anything, and without a message the answer is to nothing and may not end.
fn check_messages(messages: &[MessageJson]) -> anyhow::Result<()> {
    if messages.is_empty() {
        bail!("`messages` is empty: there is nothing to answer; give one message at least");
    }
    for (index, MessageJson { role, .. }) in messages.iter().enumerate() {
        if !["system", "user", "assistant", "tool"].contains(&role.as_str()) {
            bail!("`messages`[{index}]: `role` is {role:?}, but must be system, user, assistant or tool");
        }
    }
    Ok(())
}

/// Takes a member out; an error names it.
fn take<T: serde::de::DeserializeOwned>(
    members: &mut Map<String, Json>,
    name: &str,
) -> anyhow::Result<Option<T>> {
    let Some(value) = members.remove(name) else { return Ok(None) };
    serde_json::from_value(value).map_err(|error| anyhow::anyhow!("`{name}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_some_and_of_known_roles() {
        let check = |json: &str| {
            let messages: Vec<MessageJson> = serde_json::from_str(json).expect("messages");
            check_messages(&messages).map_err(|error| error.to_string())
        };
        assert!(check("[]").expect_err("none").contains("`messages` is empty"));
        let other = r#"[{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]"#;
        let said = check(other).expect_err("no such role");
        assert!(said.contains("`messages`[1]") && said.contains("robot"), "{said}");
        for role in ["system", "user", "assistant", "tool"] {
            let json = format!(r#"[{{"role": "{role}", "content": ""}}]"#);
            assert_eq!(check(&json), Ok(()));
        }
    }

    #[test]
    fn blank_lines_count_but_are_not_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("in");
        std::fs::write(&path, "a\n\n \r\n  b \r\nc").expect("a file");
        let facts = Facts::of(&path).expect("facts");
        assert_eq!((facts.lines, facts.len_bytes), (3, 13));
        assert_eq!(facts.sha256, Digest::of(b"a\n\n \r\n  b \r\nc"));
        std::fs::write(&path, "a\n\n \r\n  b \r\nc and more\nd").expect("a file");
        let mut lines = Lines::of(&path, &facts).expect("lines");
        for right in [(1, "a"), (4, "b"), (5, "c")] {
            let (number, line) = lines.next().expect("it is read").expect("a line");
            assert_eq!((number, line), (right.0, right.1.as_bytes()));
        }
        assert_eq!(lines.next().expect("it is read"), None);
        lines.check(&facts).expect("what was appended is not seen");
        std::fs::write(&path, "A").expect("a file");
        let mut lines = Lines::of(&path, &facts).expect("lines");
        while lines.next().expect("it is read").is_some() {}
        assert!(lines.check(&facts).is_err());
    }
}
