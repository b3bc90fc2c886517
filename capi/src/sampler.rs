//! How tokens are chosen.

use std::ffi::c_char;
use std::mem::offset_of;
use std::sync::{Arc, Mutex};

use unisonic_engine::constraint::{ConstrainedAnswer, ConstrainedSampler, Constraint, ConstraintKind};
use unisonic_engine::sampling::{DEFAULT_WINDOW, Sampler as Chooser, SamplerOptions, Window};
use unisonic_engine::{GreedyTokens, Sample};

use crate::entry::entry;
use crate::error::{Error, Result, unisonic_error};
use crate::handle::{self, Object};
use crate::model::{Model, unisonic_model};
use crate::options::{self, SizeTagged};
use crate::status::unisonic_status;

/// For `constraint_kind`: the answer is free.
pub const UNISONIC_CONSTRAINT_NONE: u32 = 0;
/// For `constraint_kind`: a JSON schema; a keyword that is not supported is an error.
pub const UNISONIC_CONSTRAINT_JSON_SCHEMA: u32 = 1;
/// For `constraint_kind`: a regular expression that the whole answer matches.
pub const UNISONIC_CONSTRAINT_REGEX: u32 = 2;
/// For `constraint_kind`: a grammar in the dialect of Lark that llguidance reads.
pub const UNISONIC_CONSTRAINT_LARK: u32 = 3;

/// What is added to the logit of a token.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_logit_bias {
    /// In [-1048576, 1048576]; -INFINITY: never.
    pub bias: f64,
    /// The token.
    pub token: u32,
    /// 0.
    pub reserved: u32,
}

/// How tokens are chosen. All 0 is greedy: the largest logit, of equals the lowest id. The order is:
/// penalties, logit bias, constraint, top_n_sigma, top_k, typical, top_p, min_p, temperature, draw.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_sampler_options {
    /// sizeof(unisonic_sampler_options).
    pub struct_size: usize,
    /// Logits are divided by it before the draw, in [1e-4, 1e4]; 0: greedy.
    pub temperature: f64,
    /// Keeps the most probable tokens that together reach this share, up to 1; 0: all.
    pub top_p: f64,
    /// Keeps tokens at least this fraction as probable as the most probable one, up to 1; 0: all.
    pub min_p: f64,
    /// Keeps the tokens whose surprisal is nearest to the entropy and that together reach this share, up to
    /// 1; 0: all.
    pub typical: f64,
    /// Keeps logits within so many standard deviations of the largest, up to 64; 0: all.
    pub top_n_sigma: f64,
    /// Divides positive logits of tokens in the window and multiplies others, in [1/1024, 1024]; 0: 1, which
    /// changes nothing.
    pub repeat_penalty: f64,
    /// Subtracted from logits of tokens in the window, in [-1024, 1024].
    pub presence_penalty: f64,
    /// Subtracted from logits of tokens in the window for each time they occur there, in [-1024, 1024].
    pub frequency_penalty: f64,
    /// A draw depends on it, on the position of the token in its sequence and on the logits, and on nothing
    /// else.
    pub seed: u64,
    /// Biases, each token at most once.
    pub logit_bias: *const unisonic_logit_bias,
    /// How many.
    pub logit_bias_len: usize,
    /// What the answer follows: a text in the language of `constraint_kind`.
    pub constraint: *const c_char,
    /// Bytes of `constraint`.
    pub constraint_len: usize,
    /// One of UNISONIC_CONSTRAINT_...
    pub constraint_kind: u32,
    /// Keeps the k tokens with the largest logits; 0: all.
    pub top_k: u32,
    /// The window of the penalties: so many tokens before the one that is chosen; -1: all; 0: 64.
    pub repeat_last_n: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_sampler_options {
    const NAME: &'static str = "unisonic_sampler_options";
    const FIRST_LEN_BYTES: usize = offset_of!(Self, logit_bias);
}

/// Chooses tokens for programs that run the model step by step (unisonic_session_sample).
pub struct unisonic_sampler {
    _opaque: (),
}

/// What a caller asked for.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) options: SamplerOptions,
    pub(crate) constraint: Option<Constraint>,
}

impl Choice {
    /// Reads a caller's options; NULL is greedy.
    ///
    /// # Safety
    /// As of [`options::read`], and of the arrays in it.
    pub(crate) unsafe fn read(given: *const unisonic_sampler_options) -> Result<Self> {
        // SAFETY: the caller says so.
        let given = unsafe { options::read(given) }?;
        options::reserved(given.reserved)?;
        let some = |value: f64| (value != 0.0).then_some(value);
        // SAFETY: the caller says so.
        let biases = unsafe { options::array(given.logit_bias, given.logit_bias_len, "logit_bias") }?;
        let repeat_window = match given.repeat_last_n {
            0 => DEFAULT_WINDOW,
            -1 => Window::All,
            len => Window::Last(u32::try_from(len).map_err(|_| {
                Error::argument(format!("repeat_last_n is {len}, but must be -1 (all), 0 (as 64) or more"))
            })?),
        };
        let options = SamplerOptions {
            temperature: given.temperature,
            top_k: (given.top_k != 0).then_some(given.top_k),
            top_p: some(given.top_p),
            min_p: some(given.min_p),
            typical: some(given.typical),
            top_n_sigma: some(given.top_n_sigma),
            repeat_penalty: some(given.repeat_penalty).unwrap_or(1.0),
            repeat_window,
            presence_penalty: given.presence_penalty,
            frequency_penalty: given.frequency_penalty,
            logit_bias: biases.iter().map(|bias| (bias.token, bias.bias)).collect(),
            seed: given.seed,
        };
        let kind = match given.constraint_kind {
            UNISONIC_CONSTRAINT_NONE => None,
            UNISONIC_CONSTRAINT_JSON_SCHEMA => Some(ConstraintKind::JsonSchema),
            UNISONIC_CONSTRAINT_REGEX => Some(ConstraintKind::Regex),
            UNISONIC_CONSTRAINT_LARK => Some(ConstraintKind::Lark),
            other => return Err(Error::argument(format!("constraint_kind is {other}, which is none"))),
        };
        // SAFETY: the caller says so.
        let text = unsafe { options::text(given.constraint, given.constraint_len, "constraint") }?;
        if kind.is_none() && !text.is_empty() {
            return Err(Error::argument("there is a constraint, but constraint_kind is 0, which is none"));
        }
        Ok(Self { options, constraint: kind.map(|kind| Constraint::new(kind, text)) })
    }

    /// What the answer at the end of `start` tokens follows, if anything.
    pub(crate) fn answer(&self, start: usize) -> Option<ConstrainedAnswer> {
        self.constraint.clone().map(|constraint| ConstrainedAnswer { start, constraint })
    }

    /// Chooses the tokens that follow a prompt of `start` tokens. Without `looks_at_logits` nobody but the
    /// sampler may need them.
    pub(crate) fn sampler(
        &self,
        model: &Model,
        start: usize,
        looks_at_logits: bool,
    ) -> Result<Box<dyn Sample>> {
        sampler(&self.options, self.constraint.as_ref(), model, start, looks_at_logits)
    }
}

/// As [`Choice::sampler`], of its parts.
pub(crate) fn sampler(
    options: &SamplerOptions,
    constraint: Option<&Constraint>,
    model: &Model,
    start: usize,
    looks_at_logits: bool,
) -> Result<Box<dyn Sample>> {
    let chooser = Chooser::new(options, model.facts.vocab_len)?;
    Ok(match constraint {
        Some(constraint) => {
            let grammar = model.grammars()?.compile(constraint)?;
            Box::new(ConstrainedSampler::new(chooser, grammar, start))
        }
        None if chooser.is_greedy() && !looks_at_logits => Box::new(GreedyTokens),
        None => Box::new(chooser),
    })
}

/// What is behind a sampler.
pub(crate) struct Sampler {
    pub(crate) model: Arc<Model>,
    choice: Choice,
    /// Made when it chooses for the first time, which is where the answer begins.
    chooser: Mutex<Option<Box<dyn Sample>>>,
}

impl Object for Sampler {
    type Handle = unisonic_sampler;
    const NAME: &'static str = "sampler";
}

impl Sampler {
    /// The token that follows `before`; none if the constraint allows nothing more.
    pub(crate) fn choose(&self, logits: &[f32], before: &[u32]) -> Result<Option<u32>> {
        let mut chooser = crate::locks::lock(&self.chooser)?;
        let chooser = match &mut *chooser {
            Some(chooser) => chooser,
            none => none.insert(self.choice.sampler(&self.model, before.len(), true)?),
        };
        if chooser.is_complete(before)? {
            return Ok(None);
        }
        Ok(Some(chooser.sample(logits, before)?))
    }
}

/// A sampler, of one answer: its constraint begins where it chooses first. Free it with
/// unisonic_sampler_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_sampler_new(
    model: *mut unisonic_model,
    sampler_options: *const unisonic_sampler_options,
    sampler: *mut *mut unisonic_sampler,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let sampler = options::out(sampler, "sampler")?;
            let (model, library) = entry.object_of::<Model>(model)?;
            let choice = Choice::read(sampler_options)?;
            // What is wrong with the options is said now.
            choice.sampler(&model, 0, true)?;
            handle::write(sampler, &library, Arc::new(Sampler { model, choice, chooser: Mutex::new(None) }))
        })
    }
}

/// Frees a sampler; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_sampler_free(sampler: *mut unisonic_sampler) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Sampler>(sampler) }
}
