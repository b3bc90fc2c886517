//! What outlives a process: a sequence in a file, and keys and values in a folder.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use unisonic_engine::kv::KvDir;
use unisonic_engine::{Digest, EngineOptions, SavedSession};

use crate::atomic;
use crate::cli::parse_size;

/// A sequence in a file.
#[derive(Args)]
#[command(next_help_heading = "Sessions")]
pub struct SessionArgs {
    /// Goes on with a sequence of --save-session, on any device, as if it had never ended. The prompt, if
    /// there is one, is appended as it is and begins a new answer; without one the answer goes on, under the schema
    /// or grammar it had. Options of sampling are those of before unless some are given
    #[arg(long, value_name = "PATH", conflicts_with = "chat")]
    load_session: Option<PathBuf>,
    /// Writes the whole sequence in the end, with its keys and values and the options of sampling
    #[arg(long, value_name = "PATH")]
    pub save_session: Option<PathBuf>,
}

impl SessionArgs {
    /// What was saved, if it is asked for.
    pub fn load(&self) -> anyhow::Result<Option<SavedSession>> {
        let Some(path) = &self.load_session else { return Ok(None) };
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Some(SavedSession::from_bytes(&bytes).with_context(|| path.display().to_string())?))
    }

    /// Fails where saving will.
    pub fn check(&self) -> anyhow::Result<()> {
        self.save_session.as_deref().map_or(Ok(()), atomic::check)
    }

    /// Whether the digest of the model is needed.
    pub fn is_given(&self) -> bool {
        self.load_session.is_some() || self.save_session.is_some()
    }
}

/// Writes a sequence.
pub fn save(path: &Path, session: &SavedSession) -> anyhow::Result<()> {
    atomic::write(path, &session.to_bytes())
}

/// Keys and values in a folder. No choice here can change a bit of the result.
#[derive(Args)]
#[command(next_help_heading = "Loading")]
pub struct KvArgs {
    /// Keeps keys and values of prompts and answers in a folder, of which later runs take what their prompts
    /// begin with. Any number of processes may use it at once; what is damaged is made anew
    #[arg(long, value_name = "DIR")]
    kv_dir: Option<PathBuf>,
    /// Most bytes in that folder, such as 20GiB; what was used longest ago goes
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = parse_size, requires = "kv_dir")]
    kv_dir_size: u64,
}

impl KvArgs {
    /// Whether there is a folder.
    pub fn is_given(&self) -> bool {
        self.kv_dir.is_some()
    }

    /// Sets the options of an engine for a model of this digest.
    pub fn apply(&self, options: &mut EngineOptions<'_>, model_sha256: Digest) {
        let Some(path) = &self.kv_dir else { return };
        options.weights_digest = model_sha256.0.to_vec();
        options.kv_dir = Some(KvDir { path: path.clone(), max_bytes: self.kv_dir_size });
    }
}
