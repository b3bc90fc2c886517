//! `unisonic pull`: fetches a model from the Hugging Face hub, or a mirror of it, and verifies it.
//!
//! [`mod@reference`] is what can be typed, [`hub`] asks what a repository holds, [`choice`] picks files, [`place`] says
//! where they go, and [`download`] fetches one. [`http`] holds the rules for the token, [`address`] those for redirects, and
//! [`retry`] those for failures that pass. Start at [`run`].
//!
//! Of the hf-hub crate this uses what tools must agree on: where the cache is, how it is laid out, and the token file.
//! Its own download (0.5) is left out because it follows the hub's redirect to storage with the token, keeps what it
//! receives without comparing the digest, appends a whole file to an unfinished one where the server ignores ranges,
//! sets no limit to time or size, and panics over some answers. Its next version (1.0) brings an asynchronous runtime
//! and a storage protocol of its own for what is one GET here.

mod address;
mod choice;
mod download;
mod error;
mod http;
mod hub;
mod place;
mod reference;
mod retry;
mod settings;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use unisonic_core::format::GgufFile;
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_planner::PlanOptions;

use crate::numbers::whole;
use crate::output::{say, spinner, write_json, write_stdout_bytes};
use choice::{choose, models};
use download::{Wanted, fetch};
use error::PullError;
use hub::Hub;
use place::Store;
use reference::{Reference, parse_revision};
use retry::Retries;

const EXAMPLES: &str = "\
Examples:
  unisonic pull bartowski/SmolLM2-135M-Instruct-GGUF           lists models
  unisonic pull bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M    fetches one
  unisonic pull --dir models bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M
  model=$(unisonic pull bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M)
  unisonic run \"$model\" Hi                                   runs it

Files go to the cache that the hub's other tools use: HF_HUB_CACHE, or `hub` in HF_HOME, or
~/.cache/huggingface/hub. stdout gets the path of the file, of a sharded model that of the first. A
download that broke off goes on where it ended when the command is run again; a file that is there
is checked and not fetched again.

Gated and private repositories need a token that may read them: HF_TOKEN, or what `hf auth login`
left. It is sent to the server of --mirror and nowhere else.";

/// Fetches a model from the Hugging Face hub, verifies its SHA-256, and prints where it is
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PullArgs {
    /// Repository as OWNER/NAME, and which of its models: a file's name, or a quantisation such as Q4_K_M. Without one,
    /// takes the only model, or lists them
    #[arg(value_name = "REPO[:FILE]")]
    reference: Reference,
    /// Branch, tag or commit
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = parse_revision)]
    revision: String,
    /// Puts the file into this folder instead of the hub's cache
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Server to fetch from: a mirror of the hub. Plain http is taken only from here, and without a token. By default
    /// that of HF_ENDPOINT, else huggingface.co
    // Read without clap, which would show a password in a value that it refuses.
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// How often to try again when a connection is lost or a server is busy, without getting any further
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(0..=u32::MAX))]
    retries: u32,
    /// Gives a connection up when nothing arrives for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = whole(1..=86_400u64))]
    timeout: u64,
    /// Prints one line of JSON: path, paths, repo, commit, size_bytes, sha256, received_bytes, runs
    #[arg(long)]
    json: bool,
}

/// Everything about a model that was fetched.
struct Pulled {
    commit: String,
    paths: Vec<PathBuf>,
    sha256: Vec<String>,
    len_bytes: u64,
    received_bytes: u64,
}

/// Runs the command.
pub fn run(args: &PullArgs) -> anyhow::Result<ExitCode> {
    let pulled = match pull(args) {
        Ok(pulled) => pulled,
        Err(error) if error.is_usage() => {
            say(format_args!("error: {error}"));
            return Ok(ExitCode::from(2));
        }
        Err(error) => return Err(error.into()),
    };
    let Some(path) = pulled.paths.first() else { return Ok(ExitCode::FAILURE) };
    let runs = check_support(path);
    if let Err(problem) = &runs {
        say(format_args!("warning: {} cannot be run: {problem}", path.display()));
    }
    if args.json {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        write_json(&json!({
            "path": text(path),
            "paths": pulled.paths.iter().map(text).collect::<Vec<_>>(),
            "repo": args.reference.repo,
            "commit": pulled.commit,
            "size_bytes": pulled.len_bytes,
            "sha256": pulled.sha256,
            "received_bytes": pulled.received_bytes,
            "runs": runs.is_ok(),
        }))?;
    } else {
        // Unchanged, whether it is Unicode or not.
        write_stdout_bytes(&[path.as_os_str().as_encoded_bytes(), b"\n"].concat())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn pull(args: &PullArgs) -> Result<Pulled, PullError> {
    let store = match &args.dir {
        Some(folder) => Store::Folder(folder.clone()),
        None => Store::Cache(settings::cache()?),
    };
    let mirror = settings::mirror(args.mirror.as_deref())?;
    let hub = Hub::new(mirror, settings::token()?, Duration::from_secs(args.timeout))?;
    let waiting = spinner(&format!("asking for {}", args.reference.repo));
    let repository =
        Retries::new(args.retries).run(&waiting, || hub.repository(&args.reference.repo, &args.revision));
    waiting.finish_and_clear();
    let repository = repository?;
    let model = choose(&models(&repository.files), &args.reference)?;

    let commit = repository.commit.clone();
    let mut pulled = Pulled { commit, paths: vec![], sha256: vec![], len_bytes: 0, received_bytes: 0 };
    for file in &model.files {
        let (len_bytes, sha256) =
            Retries::new(args.retries).run(&ProgressBar::hidden(), || hub.announced(&repository, file))?;
        let wanted = Wanted { repository: &repository, path: &file.path, len_bytes, sha256: &sha256 };
        let fetched = fetch(&hub, &store, &wanted, args.retries)?;
        pulled.paths.push(fetched.path);
        pulled.received_bytes += fetched.received_bytes;
        pulled.len_bytes = pulled.len_bytes.saturating_add(len_bytes);
        pulled.sha256.push(sha256);
    }
    store.note_revision(&repository, &args.revision)?;
    Ok(pulled)
}

/// Whether `unisonic run` would take the file, as far as its header tells.
fn check_support(path: &Path) -> anyhow::Result<()> {
    let file = GgufFile::open(path)?;
    unisonic_planner::plan(file.metadata(), file.tensors(), &file, &PlanOptions::default())?;
    Tokenizer::from_metadata(file.metadata())?;
    Ok(())
}
