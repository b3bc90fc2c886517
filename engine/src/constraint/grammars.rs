//! A model's tokens as grammars see them, and grammars over them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread;

use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory, panic_utils};
use serde_json::{Value as Json, json};

use super::position::Position;
use super::{Constraint, ConstraintError, ConstraintKind, MAX_LEN_BYTES, RULES, keywords};
use crate::tokenizer::{ControlTokens, TokenKind, Tokenizer};

/// White space between the parts of a JSON text: enough for a line break and its indentation, and not for a model that
/// would go on with it for ever.
const JSON_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,40}";
/// Longest token that a grammar can use; the trie of tokens is that deep.
const MAX_TOKEN_LEN_BYTES: usize = 1000;
/// Stack for compiling, which calls itself for each schema in a schema and each reference: some 8 KiB, without optimisation.
const STACK_LEN_BYTES: usize = 128 << 20;
/// Longest reason that is passed on.
const MAX_REASON_LEN: usize = 400;

/// The tokens of a model, for grammars; made once for a model.
pub struct Grammars {
    factory: ParserFactory,
}

/// A constraint over the tokens of a model, at its beginning.
pub struct Grammar {
    pub(super) judge: Position,
    pub(super) scout: Position,
}

impl Grammar {
    /// Another one of the same constraint, which shares nothing with this one: cheaper than to compile it again.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { judge: self.judge.fork(), scout: self.scout.fork() }
    }
}

impl Grammars {
    /// Over the vocabulary of a tokenizer.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, ConstraintError> {
        let made = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            let tokens: TokEnv = Arc::new(Tokens { trie: trie(tokenizer) });
            let mut factory = ParserFactory::new_simple(&tokens)?;
            factory.quiet();
            *factory.limits_mut() = limits();
            Ok(factory)
        }));
        match made {
            Ok(factory) => Ok(Self { factory }),
            Err(error) => Err(ConstraintError::Vocabulary(reason(&error))),
        }
    }

    /// The grammar of a constraint.
    pub fn compile(&self, constraint: &Constraint) -> Result<Grammar, ConstraintError> {
        let kind = constraint.kind.name();
        let failed = |reason: &str| ConstraintError::Refused { kind, reason: reason.to_owned() };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK_LEN_BYTES);
            let compiling = thread.spawn_scoped(scope, || self.compile_here(constraint));
            let compiling = compiling.map_err(|error| failed(&format!("no thread for it: {error}")))?;
            compiling
                .join()
                .unwrap_or_else(|_| Err(failed("its compiler failed; this is a bug, please report it")))
        })
    }

    /// The same on the stack of the caller.
    fn compile_here(&self, constraint: &Constraint) -> Result<Grammar, ConstraintError> {
        let Constraint { kind, text, rules, .. } = constraint;
        let kind = kind.name();
        if rules != RULES {
            return Err(ConstraintError::Rules { found: rules.clone() });
        }
        if text.len() > MAX_LEN_BYTES {
            return Err(ConstraintError::TooLong { kind, len_bytes: text.len() });
        }
        let refused = |error: anyhow::Error| ConstraintError::Refused { kind, reason: reason(&error) };
        let grammar = match constraint.kind {
            ConstraintKind::JsonSchema => TopLevelGrammar::from_json_schema(schema(text)?),
            ConstraintKind::Lark => TopLevelGrammar::from_lark(text.clone()),
            ConstraintKind::Regex => TopLevelGrammar::from_grammar(GrammarWithLexer::from_regex(text)),
        };
        let parser = self.factory.create_parser(grammar).map_err(refused)?;
        let mut judge = Matcher::new(Ok(parser));
        // Notices a grammar whose only text is the empty one.
        judge.consume_tokens(&[]).map_err(refused)?;
        // And one that is too much for the first token, or has no end.
        if !judge.is_stopped() {
            judge.compute_mask().map_err(refused)?;
        }
        let scout = Position::new(judge.deep_clone());
        Ok(Grammar { judge: Position::new(judge), scout })
    }
}

/// The tokens of a vocabulary: bytes as the answer shows them; behind a marker, the names of those that are no text.
fn trie(tokenizer: &Tokenizer) -> TokTrie {
    const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
    let word = |id: u32| {
        let text = tokenizer.token_bytes(id, ControlTokens::Show);
        let bytes = match tokenizer.token_kind(id).is_some_and(TokenKind::is_control) {
            true => [&[MARKER], &*text].concat(),
            // The marker is the byte that no text has: such tokens never may come.
            false if text.first() == Some(&MARKER) => Vec::new(),
            false => text.into_owned(),
        };
        if bytes.len() > MAX_TOKEN_LEN_BYTES { Vec::new() } else { bytes }
    };
    let words: Vec<Vec<u8>> = (0..tokenizer.vocab_len()).map(word).collect();
    let stops = tokenizer.stops();
    let first = stops.first().copied().unwrap_or(INVALID_TOKEN);
    let trie = TokTrie::from(&TokRxInfo::new(tokenizer.vocab_len(), first), &words);
    if stops.is_empty() { trie } else { trie.with_eos_tokens(stops) }
}

/// llguidance's view of the vocabulary. That its tokens are not the only ones for a text makes masks say what may come, and
/// not what a tokenizer would have made of it.
struct Tokens {
    trie: TokTrie,
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// How much a grammar may ask for: llguidance's own limits, with a size of its states that a machine can hold for each of
/// many requests.
fn limits() -> ParserLimits {
    ParserLimits { max_lexer_states: 50_000, verbose_errors: false, ..ParserLimits::default() }
}

/// A JSON schema as a part of a Lark grammar: what stands behind the colon of a rule. It obeys the rules of
/// [`ConstraintKind::JsonSchema`].
pub fn lark_json(schema_text: &str) -> Result<String, ConstraintError> {
    Ok(format!("%json {}", schema(schema_text)?))
}

/// A schema that has been looked through, with the rules for white space.
fn schema(text: &str) -> Result<Json, ConstraintError> {
    let schema: Json =
        serde_json::from_str(text).map_err(|error| ConstraintError::NotJson(error.to_string()))?;
    keywords::check(&schema)?;
    Ok(match schema {
        Json::Object(mut members) => {
            members.insert("x-guidance".into(), json!({ "whitespace_pattern": JSON_SPACE }));
            Json::Object(members)
        }
        Json::Bool(true) => json!({ "x-guidance": { "whitespace_pattern": JSON_SPACE } }),
        other => other,
    })
}

/// What llguidance says is wrong, without its own state.
pub(super) fn reason(error: &anyhow::Error) -> String {
    let text = error.to_string();
    let said = text.split("\n<").next().unwrap_or(&text).trim_end();
    let mut chars = said.chars();
    let mut reason: String = chars.by_ref().take(MAX_REASON_LEN).collect();
    if chars.next().is_some() {
        reason.push('…');
    }
    reason
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Grammars")
    }
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Grammar")
    }
}
