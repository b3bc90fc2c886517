//! Options of `run` that say what the answer has to follow.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use unisonic_engine::Sample;
use unisonic_engine::constraint::{
    ConstrainedAnswer, ConstrainedSampler, Constraint, ConstraintKind, Grammar, Grammars,
};
use unisonic_engine::sampling::Sampler;
use unisonic_engine::tokenizer::Tokenizer;

/// What the answer follows; tokens that would break it are never chosen.
#[derive(Args)]
#[command(next_help_heading = "Structured output")]
pub struct ConstraintArgs {
    /// The answer is JSON of this schema: a file, or the schema itself, which begins with {. A keyword that is not
    /// supported is an error
    #[arg(long, value_name = "SCHEMA")]
    json_schema: Option<String>,
    /// The answer follows the grammar in this file, in the dialect of Lark that llguidance reads: it begins with
    /// the rule `start`
    #[arg(long, value_name = "FILE", conflicts_with = "json_schema")]
    grammar: Option<PathBuf>,
    /// The whole answer matches this regular expression
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["json_schema", "grammar"])]
    regex: Option<String>,
}

impl ConstraintArgs {
    /// The constraint, if one is asked for.
    pub fn read(&self) -> anyhow::Result<Option<Constraint>> {
        let file = |path: PathBuf| {
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (kind, text) = match (&self.json_schema, &self.grammar, &self.regex) {
            (Some(schema), ..) if schema.trim_start().starts_with('{') => {
                (ConstraintKind::JsonSchema, schema.clone())
            }
            (Some(path), ..) => (ConstraintKind::JsonSchema, file(path.into())?),
            (_, Some(path), _) => (ConstraintKind::Lark, file(path.clone())?),
            (.., Some(regex)) => (ConstraintKind::Regex, regex.clone()),
            (None, None, None) => return Ok(None),
        };
        Ok(Some(Constraint::new(kind, text)))
    }
}

/// The grammar of what an answer follows, if anything, with where the answer begins.
pub fn grammar(
    answer: Option<&ConstrainedAnswer>,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Option<(Grammar, usize)>> {
    let Some(answer) = answer else { return Ok(None) };
    Ok(Some((Grammars::new(tokenizer)?.compile(&answer.constraint)?, answer.start)))
}

/// The sampler of an answer that follows a grammar, or is free.
pub fn sampler(sampler: Sampler, grammar: Option<(Grammar, usize)>) -> Box<dyn Sample> {
    match grammar {
        Some((grammar, start)) => Box::new(ConstrainedSampler::new(sampler, grammar, start)),
        None => Box::new(sampler),
    }
}
