//! `unisonic verify`: recomputes a receipt.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use unisonic_engine::receipt::{Difference, Receipt, Verdict, verify};
use unisonic_engine::sampling::Sampler;

use crate::cli::LoadArgs;
use crate::model::Capacity;
use crate::output::{progress_bar, write_json, write_stdout};
use crate::{constraint, digest, interrupt, model};

/// Exit code of a result that is not what the receipt says.
const EXIT_DIFFERENT: u8 = 3;

const DETAILS: &str = "\
The tokens of prompt and answer are run again, as many at a time as --chunk says, on any device; the logits of each token of \
the answer must have the bits that the receipt has a digest of, and each token must be chosen again.

Exit codes: 0 everything is equal; 3 something differs, and stdout says where first; 1 the receipt is damaged, of another \
model or arithmetic, or could not be recomputed; 2 the command line is wrong.

Examples:
  unisonic run --receipt answer.json model.gguf \"Once upon a time\"
  unisonic verify answer.json
  unisonic verify answer.json --model copy.gguf --device cuda:0
  unisonic verify answer.json --chunk 1                 token by token";

/// Recomputes a receipt of `run --receipt` and says whether everything is equal, or where the first
/// difference is
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct VerifyArgs {
    /// The receipt
    #[arg(value_name = "RECEIPT")]
    receipt: PathBuf,
    /// The model that it was made with [default: the file that it names]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Prints one line of JSON: equal, steps, and of the first difference step, position, expected, found,
    /// logits_differ
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs the command.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let receipt = read(&args.receipt)?;
    let path = args.model.as_deref().unwrap_or(Path::new(&receipt.model.file));
    let file = model::open(path).with_context(|| {
        format!("the receipt's model has SHA-256 {}; --model FILE says where it is", receipt.model.sha256)
    })?;
    let tokens = receipt.prompt_ids.len() + receipt.output_ids.len();
    // Said before a large model is loaded.
    receipt.check(digest::model_sha256(&file)?, &receipt.profile)?;
    let grammar = match &receipt.answer {
        Some(answer) => constraint::grammar(Some(answer), &model::tokenizer(&file, path)?)?,
        None => None,
    };
    let capacity = Capacity {
        context_len: args.load.context.or(u32::try_from(tokens).ok()),
        sequences: 1,
        max_outputs: args.load.chunk_rows(),
    };
    let mut engine = model::load(&file, path, &args.load, &capacity)?;
    receipt.check(receipt.model.sha256, &engine.device().profile)?;
    let vocab_len = engine.plan().vocab_len;
    model::check_ids(&receipt.prompt_ids, vocab_len)?;
    model::check_ids(&receipt.output_ids, vocab_len)?;
    let mut sampler = constraint::sampler(Sampler::new(&receipt.sampler, vocab_len)?, grammar);

    let steps = receipt.output_ids.len();
    let bar = progress_bar("recomputing", steps as u64);
    let verdict = verify(&mut engine, &receipt, &mut *sampler, &mut |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let verdict = verdict?;
    let device = &engine.device().id;
    if args.json {
        let mut line = serde_json::json!({
            "receipt": args.receipt.to_string_lossy(),
            "device": device,
            "profile": engine.device().profile,
            "steps": steps,
            "equal": verdict == Verdict::Equal,
        });
        if let Verdict::Differs(Difference { step, position, expected, found, logits_differ }) = verdict {
            line["difference"] = serde_json::json!({
                "step": step,
                "position": position,
                "expected": expected,
                "found": found,
                "logits_differ": logits_differ,
            });
        }
        write_json(&line)?;
    } else {
        write_stdout(&text(verdict, steps, device))?;
    }
    Ok(match verdict {
        Verdict::Equal => ExitCode::SUCCESS,
        Verdict::Differs(_) => ExitCode::from(EXIT_DIFFERENT),
    })
}

fn read(path: &Path) -> anyhow::Result<Receipt> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Receipt::from_json(&String::from_utf8_lossy(&text)).with_context(|| path.display().to_string())
}

fn text(verdict: Verdict, steps: usize, device: &str) -> String {
    match verdict {
        Verdict::Equal => {
            format!("equal: {steps} tokens and the bits of the logits of each, recomputed on {device}\n")
        }
        Verdict::Differs(Difference { step, position, expected, found, logits_differ }) => {
            let logits = if logits_differ { "logits have other bits" } else { "logits have the same bits" };
            let token = match expected == found {
                true => format!("token {found} is chosen all the same"),
                false => format!("token {found} is chosen instead of {expected}"),
            };
            format!(
                "different: at token {step} of the answer (of {steps}, from 0), position {position}: {logits}, and \
                 {token}, on {device}\n"
            )
        }
    }
}
