//! Which chat template a command uses.

use std::path::PathBuf;

use clap::Args;
use unisonic_core::format::GgufFile;
use unisonic_engine::chat::{ChatError, ChatTemplate};

use crate::model;

/// The template, and what it may show.
#[derive(Args)]
pub struct TemplateArgs {
    /// Chat template (Jinja) to use instead of the file's
    #[arg(long, value_name = "PATH")]
    pub chat_template: Option<PathBuf>,
    /// The date that chat templates may show, as YYYY-MM-DD
    #[arg(long, value_name = "DATE")]
    pub date: Option<String>,
}

impl TemplateArgs {
    /// The one that was asked for, or the file's.
    pub fn template(&self, file: &GgufFile) -> anyhow::Result<ChatTemplate> {
        Ok(self.given()?.map_or_else(|| Self::of_file(file), Ok)?)
    }

    /// The one that was asked for.
    pub fn given(&self) -> anyhow::Result<Option<ChatTemplate>> {
        self.chat_template.as_deref().map(model::chat_template).transpose()
    }

    /// The file's.
    pub fn of_file(file: &GgufFile) -> Result<ChatTemplate, ChatError> {
        ChatTemplate::from_metadata(file.metadata(), None)
    }
}
