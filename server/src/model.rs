//! The model as the handlers see it, and whether it is there.

use std::sync::{Arc, OnceLock};

use unisonic_engine::Engine;
use unisonic_engine::chat::ChatTemplate;
use unisonic_engine::constraint::{ConstraintError, Grammars};
use unisonic_engine::tokenizer::Tokenizer;

/// Loads the model, on the thread that will run it; again after the device has failed. The error is for people.
pub type Load = Box<dyn FnMut() -> Result<Loaded, String> + Send>;

/// A model that was loaded.
pub struct Loaded {
    /// Runs it.
    pub engine: Engine,
    /// Its name in answers and in `/v1/models`.
    pub name: String,
    /// Its vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// Its chat template, or why it has none that can be used.
    pub template: Result<ChatTemplate, String>,
}

/// What handlers know of the model.
pub struct Model {
    /// See [`Loaded::name`].
    pub name: String,
    /// See [`Loaded::tokenizer`].
    pub tokenizer: Arc<Tokenizer>,
    /// See [`Loaded::template`].
    pub template: Result<ChatTemplate, String>,
    /// Longest sequence, in tokens.
    pub context_len: u32,
    /// Tokens of the model's output.
    pub vocab_len: u32,
    /// What it runs on.
    pub device: String,
    /// The arithmetic.
    pub profile: String,
    /// Its tokens as grammars see them; made for the first request that has one.
    pub grammars: OnceLock<Result<Grammars, ConstraintError>>,
}

impl Model {
    /// Its tokens as grammars see them.
    pub(crate) fn grammars(&self) -> Result<&Grammars, ConstraintError> {
        self.grammars.get_or_init(|| Grammars::new(&self.tokenizer)).as_ref().map_err(Clone::clone)
    }
}

impl Loaded {
    /// The engine for the thread, the rest for the handlers.
    pub(crate) fn split(self) -> (Engine, Model) {
        let Self { engine, name, tokenizer, template } = self;
        let (context_len, vocab_len) = (engine.context_len(), engine.plan().vocab_len);
        let (device, profile) = (engine.device().id.clone(), engine.device().profile.clone());
        (
            engine,
            Model {
                name,
                tokenizer,
                template,
                context_len,
                vocab_len,
                device,
                profile,
                grammars: OnceLock::new(),
            },
        )
    }
}

/// Whether requests can be answered.
#[derive(Clone)]
pub enum Status {
    /// Not yet.
    Loading,
    /// Now.
    Ready(Arc<Model>),
    /// The device failed; the model is loaded anew.
    Failed(String),
    /// Not any more.
    Stopping,
}
