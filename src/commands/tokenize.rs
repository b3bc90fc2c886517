//! `unisonic tokenize`: text to token ids, and back.

use clap::Args;
use unisonic_engine::tokenizer::{ControlTokens, Specials, Tokenizer};

use crate::cli::{FileArg, Ids};
use crate::output::{say, write_json, write_stdout};
use crate::{model, text};

const EXAMPLES: &str = "\
Examples:
  unisonic tokenize model.gguf \"Hello, world!\"
  unisonic tokenize model.gguf - < book.txt        stderr says how many
  unisonic tokenize --literal model.gguf \"<|im_end|> as plain text\"
  unisonic tokenize --decode 19556,28,905,17 model.gguf";

/// Shows the token ids of a text, or the text of token ids
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TokenizeArgs {
    #[command(flatten)]
    file: FileArg,
    /// Text to tokenize; `-` reads it from stdin
    #[arg(value_name = "TEXT", required_unless_present = "decode", conflicts_with = "decode")]
    text: Option<String>,
    /// Takes special tokens in TEXT as plain text
    #[arg(long, conflicts_with = "decode")]
    literal: bool,
    /// Begins with the BOS token even if the file does not ask for it
    #[arg(long, conflicts_with_all = ["no_bos", "decode"])]
    bos: bool,
    /// Leaves the BOS token out even if the file asks for it
    #[arg(long, conflicts_with = "decode")]
    no_bos: bool,
    /// Token ids to turn into text, separated by commas
    #[arg(long, value_name = "IDS")]
    decode: Option<Ids>,
    /// Prints one line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &TokenizeArgs) -> anyhow::Result<()> {
    let path = &args.file.file;
    let file = model::open(path)?;
    let tokenizer = model::tokenizer(&file, path)?;
    match (&args.decode, &args.text) {
        (Some(Ids(ids)), _) => decode(&tokenizer, ids, args.json),
        (None, given) => encode(&tokenizer, &text::argument(given.as_deref().unwrap_or_default())?, args),
    }
}

fn decode(tokenizer: &Tokenizer, ids: &[u32], json: bool) -> anyhow::Result<()> {
    model::check_ids(ids, tokenizer.vocab_len())?;
    let text = tokenizer.decode(ids, ControlTokens::Show);
    if json { write_json(&serde_json::json!({ "text": text })) } else { write_stdout(&(text + "\n")) }
}

fn encode(tokenizer: &Tokenizer, text: &str, args: &TokenizeArgs) -> anyhow::Result<()> {
    let specials = if args.literal { Specials::Literal } else { Specials::Parse };
    let mut ids = tokenizer.encode(text, specials)?;
    if args.bos || (tokenizer.adds_bos() && !args.no_bos) {
        let bos = tokenizer.bos().ok_or_else(|| anyhow::anyhow!("this model's file names no BOS token"))?;
        ids.insert(0, bos);
    }
    if args.json {
        let tokens: Vec<&str> = ids.iter().map(|&id| tokenizer.token_text(id).unwrap_or_default()).collect();
        return write_json(&serde_json::json!({ "count": ids.len(), "ids": ids, "tokens": tokens }));
    }
    let lines: String = ids
        .iter()
        .map(|&id| format!("{id:>8}  {}\n", tokenizer.token_text(id).unwrap_or_default()))
        .collect();
    write_stdout(&lines)?;
    say(format_args!("[{} token{}]", ids.len(), if ids.len() == 1 { "" } else { "s" }));
    Ok(())
}
