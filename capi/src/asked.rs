//! What a caller asks of a generation, and its answer while it comes.

use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::Arc;

use unisonic_engine::draft::{Drafter, NgramDrafter};
use unisonic_engine::receipt::{LogitsChain, MadeWith, ModelId, Receipt};
use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Tokenizer as Vocabulary};
use unisonic_engine::{Engine, StopStrings};

use crate::callback::{Flow, User};
use crate::cancel::{Cancel, unisonic_cancel};
use crate::completion::{Completion, unisonic_stop};
use crate::entry::as_host;
use crate::error::Result;
use crate::model::Model;
use crate::options::{self, SizeTagged, unisonic_text};
use crate::sampler::{Choice, unisonic_sampler_options};
use crate::tokenizer::UNISONIC_NO_TOKEN;

/// A token that was chosen, with the text that it lets out. What it points to lives until the callback
/// returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_token_event {
    /// sizeof(unisonic_token_event) of the library: fields beyond it are not there.
    pub struct_size: usize,
    /// Characters that are complete and no part of a stop string; may be empty.
    pub text: unisonic_text,
    /// The logits that it was chosen from, if they were asked for.
    pub logits: *const f32,
    /// How many.
    pub logits_len: usize,
    /// The request, of a batch; otherwise 0.
    pub request: u64,
    /// The token; UNISONIC_NO_TOKEN for text that was held back and comes at the end.
    pub token: u32,
    /// How many tokens of the answer came before it.
    pub index: u32,
}

/// Takes a token. Returns UNISONIC_CONTINUE, UNISONIC_STOP for an answer that ends with this token, anything
/// else for a generation that fails with UNISONIC_STATUS_CALLBACK_FAILED.
pub type unisonic_token_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, event: *const unisonic_token_event) -> i32>;

/// How to continue a prompt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_generate_options {
    /// sizeof(unisonic_generate_options).
    pub struct_size: usize,
    /// Takes tokens and text as they come, in the thread of the call; NULL: nobody does.
    pub on_token: unisonic_token_fn,
    /// Given to `on_token`.
    pub user: *mut c_void,
    /// How tokens are chosen; NULL: greedily.
    pub sampler: *const unisonic_sampler_options,
    /// Texts that end the answer.
    pub stops: *const unisonic_text,
    /// How many.
    pub stops_len: usize,
    /// Ends the generation from another thread; NULL: nobody does.
    pub cancel: *mut unisonic_cancel,
    /// Most tokens to generate; 0: until the model ends its answer, or the context is full.
    pub max_tokens: u32,
    /// 1: `on_token` is given logits.
    pub want_logits: u32,
    /// 1: the completion has a receipt. Reads the model's file once, for its digest.
    pub want_receipt: u32,
    /// 1: does not guess tokens ahead. Guessing changes the speed and nothing else.
    pub no_speculation: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_generate_options {
    const NAME: &'static str = "unisonic_generate_options";
    const FIRST_LEN_BYTES: usize = offset_of!(Self, want_receipt);
}

/// What a caller asks of a generation.
pub(crate) struct Asked {
    pub(crate) choice: Choice,
    pub(crate) stops: Vec<String>,
    pub(crate) cancel: Option<Arc<Cancel>>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) want_receipt: bool,
    pub(crate) want_logits: bool,
    pub(crate) speculation: bool,
    on_token: unisonic_token_fn,
    user: User,
}

impl Asked {
    /// Reads a caller's options.
    ///
    /// # Safety
    /// As of [`options::read`], and of the arrays and handles in it.
    pub(crate) unsafe fn read(given: *const unisonic_generate_options) -> Result<Self> {
        // SAFETY: the caller says so.
        unsafe {
            let given = options::read(given)?;
            let stops = options::array(given.stops, given.stops_len, "stops")?.iter();
            let stops = stops
                .map(|stop| options::text(stop.data, stop.len_bytes, "a stop string").map(str::to_owned));
            Ok(Self {
                choice: Choice::read(given.sampler)?,
                stops: stops.collect::<Result<_>>()?,
                cancel: Cancel::of(given.cancel)?,
                max_tokens: (given.max_tokens != 0).then_some(given.max_tokens),
                want_receipt: options::switch(given.want_receipt, "want_receipt")?,
                want_logits: options::switch(given.want_logits, "want_logits")?,
                speculation: !options::switch(given.no_speculation, "no_speculation")?,
                on_token: given.on_token,
                user: User(given.user),
            })
        }
    }

    /// Whether anyone but the sampler looks at logits.
    pub(crate) fn looks_at_logits(&self) -> bool {
        self.want_logits || self.want_receipt
    }

    /// Does what takes long and does not need the model to be free.
    pub(crate) fn prepare(&self, model: &Model) -> Result {
        if self.want_receipt {
            model.digest()?;
        }
        Ok(())
    }

    pub(crate) fn drafter(&self) -> Option<Box<dyn Drafter>> {
        self.speculation.then(|| Box::new(NgramDrafter::new()) as Box<dyn Drafter>)
    }

    /// Tells the host of a token.
    pub(crate) fn tell(&self, said: &Said<'_>) -> Flow {
        let Some(on_token) = self.on_token else { return Flow::Continue };
        // A text that a model says may have a NUL within; behind it is one in any case.
        let text = [said.text.as_bytes(), b"\0"].concat();
        let logits = if self.want_logits { said.logits } else { &[] };
        let event = unisonic_token_event {
            struct_size: size_of::<unisonic_token_event>(),
            text: unisonic_text { data: text.as_ptr().cast(), len_bytes: said.text.len() },
            logits: if logits.is_empty() { std::ptr::null() } else { logits.as_ptr() },
            logits_len: logits.len(),
            request: said.request,
            token: said.token.unwrap_or(UNISONIC_NO_TOKEN),
            index: said.index,
        };
        // SAFETY: the host's function, as it said when it gave it; the event lives until it returns.
        Flow::of(as_host(|| unsafe { on_token(self.user.0, &raw const event) }))
    }
}

/// What the host is told.
pub(crate) struct Said<'a> {
    pub(crate) request: u64,
    pub(crate) token: Option<u32>,
    pub(crate) text: &'a str,
    pub(crate) logits: &'a [f32],
    pub(crate) index: u32,
}

/// An answer while it comes: its text up to the first stop string, and its receipt.
pub(crate) struct Answer {
    detokenizer: Detokenizer<Arc<Vocabulary>>,
    vocabulary: Arc<Vocabulary>,
    stops: StopStrings,
    pub(crate) stopped: bool,
    receipt: Option<Box<(Receipt, LogitsChain)>>,
}

impl Answer {
    /// The answer to a prompt, all tokens of the sequence before it.
    pub(crate) fn new(model: &Model, engine: &Engine, asked: &Asked, prompt: &[u32]) -> Result<Self> {
        let vocabulary = Arc::clone(&model.tokenizer.vocabulary);
        let receipt = match asked.want_receipt {
            true => {
                let receipt = receipt(model, engine, asked, prompt)?;
                let chain = receipt.new_chain();
                Some(Box::new((receipt, chain)))
            }
            false => None,
        };
        Ok(Self {
            detokenizer: Detokenizer::new(Arc::clone(&vocabulary), ControlTokens::Hide),
            vocabulary,
            stops: StopStrings::new(asked.stops.clone()),
            stopped: false,
            receipt,
        })
    }

    /// The text that a token lets out.
    pub(crate) fn push(&mut self, token: u32, logits: &[f32]) -> String {
        if let Some(receipt) = &mut self.receipt {
            let (receipt, chain) = &mut **receipt;
            receipt.chain.push(chain.push(logits));
        }
        if self.vocabulary.is_stop(token) {
            return String::new();
        }
        let passed = self.stops.push(&self.detokenizer.push(token));
        self.stopped = passed.stopped;
        passed.text
    }

    /// What is left of the text when the generation has ended by itself.
    pub(crate) fn finish(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        let passed = self.stops.push(&self.detokenizer.finish());
        self.stopped = passed.stopped;
        if passed.stopped { passed.text } else { passed.text + &self.stops.finish() }
    }

    /// The whole; `word` is the engine's for why it ended.
    pub(crate) fn complete(
        self,
        tokens: Vec<u32>,
        text: &str,
        stop: unisonic_stop,
        word: &str,
    ) -> Completion {
        let receipt = self.receipt.map(|receipt| {
            let (mut receipt, _) = *receipt;
            receipt.chain.truncate(tokens.len());
            receipt.output_ids = tokens.clone();
            receipt.stop = word.to_owned();
            receipt.seal().to_json()
        });
        Completion::new(tokens, text, stop, receipt)
    }
}

fn receipt(model: &Model, engine: &Engine, asked: &Asked, prompt: &[u32]) -> Result<Receipt> {
    Ok(Receipt {
        unisonic_receipt: 0,
        model: ModelId { file: model.path().to_string_lossy().into_owned(), sha256: model.digest()? },
        profile: engine.device().profile.clone(),
        made_with: MadeWith {
            program: concat!("libunisonic ", env!("CARGO_PKG_VERSION")).into(),
            device: model.facts.device(),
            chunk_rows: engine.chunk_rows(),
            context_len: engine.context_len(),
            passes_off: Vec::new(),
        },
        sampler: asked.choice.options.clone(),
        answer: asked.choice.answer(prompt.len()),
        prompt_ids: prompt.to_vec(),
        output_ids: Vec::new(),
        stop: String::new(),
        chain: Vec::new(),
        sha256: None,
    })
}
