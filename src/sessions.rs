//! What outlives a process: a sequence in a file.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use unisonic_engine::SavedSession;

use crate::atomic;

/// A sequence in a file.
#[derive(Args)]
#[command(next_help_heading = "Sessions")]
pub struct SessionArgs {
    /// Goes on with a sequence of --save-session, on any device, as if it had never ended. The prompt, if there is one,
    /// is appended as it is; options of sampling are those of before unless some are given
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
