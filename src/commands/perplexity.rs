//! `unisonic perplexity`: how probable a model finds a text.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use unisonic_engine::tokenizer::{Specials, Tokenizer};
use unisonic_engine::{Engine, Score, score};

use crate::cli::{FileArg, IdsArgs, LoadArgs};
use crate::model::Capacity;
use crate::numbers::whole;
use crate::output::{progress_bar, write_json, write_stdout};
use crate::{interrupt, model, text};

const DETAILS: &str = "\
Each token is scored given those before it: its negative log-likelihood (NLL) in nats; perplexity is e to the \
mean.

A text longer than the context is cut into windows of the context's length that are scored independently. With --text \
each window begins with the model's BOS token, if its file asks for one, and special tokens are taken as plain text; \
with --ids or --ids-file nothing is added. The first token of a window has nothing before it and is not scored.

Examples:
  unisonic perplexity model.gguf --text book.txt --max-tokens 2000
  unisonic perplexity model.gguf --text book.txt --context 512 --json";

/// Scores a text, token by token (teacher forcing): mean negative log-likelihood and perplexity
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct PerplexityArgs {
    #[command(flatten)]
    file: FileArg,
    /// Text file to score; `-` is stdin
    #[arg(
        long,
        value_name = "PATH",
        required_unless_present_any = ["ids", "ids_file"],
        conflicts_with_all = ["ids", "ids_file"]
    )]
    text: Option<PathBuf>,
    #[command(flatten)]
    ids: IdsArgs,
    /// Scores only the beginning: this many tokens
    #[arg(long, value_name = "TOKENS", value_parser = whole(0..=usize::MAX))]
    max_tokens: Option<usize>,
    /// Prints one line of JSON: mean_nll, ppl, count, and logprobs and argmax of each scored token
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs the command.
pub fn run(args: &PerplexityArgs) -> anyhow::Result<()> {
    interrupt::install()?;
    let path = &args.file.file;
    let file = model::open(path)?;
    let tokenizer = model::tokenizer(&file, path)?;
    let (bos, mut ids) = ids(args, &tokenizer)?;
    ids.truncate(args.max_tokens.unwrap_or(usize::MAX));
    model::check_ids(&ids, tokenizer.vocab_len())?;
    let capacity =
        Capacity { context_len: args.load.context, sequences: 1, max_outputs: args.load.chunk_rows() };
    let mut engine = model::load(&file, path, &args.load, &capacity)?;
    if engine.context_len() < 2 {
        bail!("a context of 1 token has no token to score after it; give --context 2 or more");
    }
    let windows = windows(&ids, bos, engine.context_len() as usize);
    let scores = score_windows(&mut engine, &windows)?;
    if scores.is_empty() {
        bail!("there is nothing to score: at least two tokens are needed, {} given", ids.len());
    }
    let mean_nll = mean_nll(&scores);
    if args.json {
        let logprobs: Vec<f32> = scores.iter().map(|score| score.logprob).collect();
        let argmax: Vec<u32> = scores.iter().map(|score| score.argmax).collect();
        return write_json(&serde_json::json!({
            "model": path.to_string_lossy(),
            "device": engine.device().id,
            "profile": engine.device().profile,
            "count": scores.len(),
            "windows": windows.len(),
            "mean_nll": mean_nll,
            "ppl": libm::exp(mean_nll),
            "logprobs": logprobs,
            "argmax": argmax,
        }));
    }
    let arithmetic = match engine.device().profile.as_str() {
        unisonic_core::plan::PROFILE => String::new(),
        diagnostic => format!("arithmetic     {diagnostic}\n"),
    };
    write_stdout(&format!(
        "{arithmetic}tokens scored  {}\nmean NLL       {mean_nll:.6}\nperplexity     {:.4}\n",
        scores.len(),
        libm::exp(mean_nll)
    ))
}

/// What to score, and the token that each window begins with.
fn ids(args: &PerplexityArgs, tokenizer: &Tokenizer) -> anyhow::Result<(Option<u32>, Vec<u32>)> {
    if let Some(ids) = args.ids.read()? {
        return Ok((None, ids));
    }
    let path = args.text.as_ref().context("there is no text")?;
    let text = text::file(path)?;
    let bos = tokenizer.adds_bos().then(|| tokenizer.bos()).flatten();
    Ok((bos, tokenizer.encode(&text, Specials::Literal)?))
}

/// Cuts ids into windows of at most `len` tokens, each beginning with `first` if there is one.
fn windows(ids: &[u32], first: Option<u32>, len: usize) -> Vec<Vec<u32>> {
    let room = len.saturating_sub(usize::from(first.is_some())).max(1);
    ids.chunks(room).map(|chunk| first.into_iter().chain(chunk.iter().copied()).collect()).collect()
}

fn score_windows(engine: &mut Engine, windows: &[Vec<u32>]) -> anyhow::Result<Vec<Score>> {
    let total: usize = windows.iter().map(|window| window.len().saturating_sub(1)).sum();
    let bar = progress_bar("scoring", total as u64);
    let mut scores = Vec::with_capacity(total);
    for window in windows {
        let done = scores.len();
        scores.extend(score(engine, window, &mut |tokens| bar.set_position((done + tokens) as u64))?);
    }
    bar.finish_and_clear();
    Ok(scores)
}

/// Mean of the negative log-probabilities, added up in f64 in the order of the text.
fn mean_nll(scores: &[Score]) -> f64 {
    let total = scores.iter().fold(0.0, |sum, score| sum - f64::from(score.logprob));
    total / scores.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_text_and_begin_with_bos() {
        assert_eq!(windows(&[5, 6, 7, 8, 9], None, 2), [vec![5, 6], vec![7, 8], vec![9]]);
        assert_eq!(windows(&[5, 6, 7], Some(1), 3), [vec![1, 5, 6], vec![1, 7]]);
        assert_eq!(windows(&[5, 6], Some(1), 1), [vec![1, 5], vec![1, 6]], "a window has a token to score");
        assert!(windows(&[], Some(1), 8).is_empty());
    }

    #[test]
    fn mean_nll_is_the_mean_of_minus_logprob() {
        let scores = [-1.0, -2.0, -6.0].map(|logprob| Score { token: 0, logprob, argmax: 0 });
        assert_eq!(mean_nll(&scores).to_bits(), 3.0f64.to_bits());
    }
}
