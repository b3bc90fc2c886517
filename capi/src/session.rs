//! One sequence of tokens.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard};

use unisonic_engine::constraint::ConstrainedAnswer;
use unisonic_engine::sampling::SamplerOptions;
use unisonic_engine::schedule::Scheduler;
use unisonic_engine::{Engine, SavedSession, Session as Kv};

use crate::buffer::{Buffer, unisonic_buffer};
use crate::cancel::{Cancel, unisonic_cancel};
use crate::entry::{answer, entry};
use crate::error::{Error, Result, unisonic_error};
use crate::handle::{self, Object};
use crate::locks::{broken, try_lock};
use crate::model::{Model, unisonic_model};
use crate::options::{self, SizeTagged};
use crate::sampler::{Sampler, unisonic_sampler};
use crate::status::unisonic_status;
use crate::tokenizer::UNISONIC_NO_TOKEN;
use crate::turns::Turn;

/// One sequence of tokens on a model. Sessions of a model may be used from several threads; one session by
/// one thread at a time: UNISONIC_STATUS_BUSY for others, also in callbacks of its own calls.
///
/// A call that fails leaves the session as it was before.
pub struct unisonic_session {
    _opaque: (),
}

/// Options of unisonic_session_new.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_session_options {
    /// sizeof(unisonic_session_options).
    pub struct_size: usize,
    /// Sequences that begin in the same way share what was computed for that, if they are of equal salts:
    /// whoever measures time can tell. Any bytes.
    pub salt: *const c_char,
    /// Bytes of `salt`.
    pub salt_len: usize,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_session_options {
    const NAME: &'static str = "unisonic_session_options";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What is behind a session.
pub(crate) struct Session {
    pub(crate) model: Arc<Model>,
    pub(crate) salt: Vec<u8>,
    state: Mutex<Sequence>,
}

/// Tokens, and how far they were run.
#[derive(Default)]
pub(crate) struct Sequence {
    pub(crate) tokens: Vec<u32>,
    /// Holds a beginning of the tokens; none before something runs.
    pub(crate) kv: Option<Kv>,
    /// Those that follow the last token; empty if they are not known.
    logits: Vec<f32>,
    /// How the last answer was chosen, and what it follows.
    pub(crate) chosen_by: SamplerOptions,
    pub(crate) answer: Option<ConstrainedAnswer>,
}

impl Object for Session {
    type Handle = unisonic_session;
    const NAME: &'static str = "session";
}

impl Session {
    fn new(model: Arc<Model>, salt: Vec<u8>, state: Sequence) -> Arc<Self> {
        Arc::new(Self { model, salt, state: Mutex::new(state) })
    }

    /// The sequence, for one call.
    pub(crate) fn begin(&self) -> Result<MutexGuard<'_, Sequence>> {
        let busy = "the session is used by another thread, or by the call that this callback came from; wait until that has \
                    returned, or use a session of its own";
        try_lock(&self.state, busy)
    }

    /// Appends tokens and runs all that were not.
    fn append(&self, tokens: &[u32], cancel: Option<&Cancel>) -> Result {
        let mut sequence = self.begin()?;
        self.model.check(tokens, "tokens")?;
        let before = sequence.tokens.len();
        sequence.check_room(self, before + tokens.len())?;
        sequence.tokens.extend_from_slice(tokens);
        let ran = sequence.run(self, cancel);
        if ran.is_err() {
            sequence.cut(before);
        }
        ran
    }
}

impl Sequence {
    /// How much of it was run.
    fn run_len(&self) -> usize {
        self.kv.as_ref().map_or(0, |kv| kv.tokens().len())
    }

    /// Forgets all tokens past the first `len`.
    pub(crate) fn cut(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.logits.clear();
        if let Some(kv) = &mut self.kv {
            kv.truncate(len.min(kv.tokens().len()));
        }
    }

    /// What follows the last token is no longer known.
    pub(crate) fn forget_logits(&mut self) {
        self.logits.clear();
    }

    /// Refuses a sequence that is longer than the context.
    pub(crate) fn check_room(&self, session: &Session, needed: usize) -> Result {
        let facts = &session.model.facts;
        match needed > facts.context_len as usize {
            true => Err(facts.overflow(needed).into()),
            false => Ok(()),
        }
    }

    /// Keys and values for the tokens, those of others that begin in the same way to begin with.
    pub(crate) fn attach(&mut self, session: &Session, engine: &mut Engine) -> Result<&mut Kv> {
        if self.kv.as_ref().is_none_or(|kv| kv.tokens().is_empty()) {
            // An empty one first gives its pages back.
            self.kv = None;
            self.kv = Some(engine.session_for(&session.salt, &self.tokens)?);
        }
        self.kv.as_mut().ok_or_else(broken)
    }

    /// Runs what was not run, a step at a time, and keeps the logits that follow the last token.
    fn run(&mut self, session: &Session, cancel: Option<&Cancel>) -> Result {
        self.logits.clear();
        while self.run_len() < self.tokens.len() {
            Cancel::check(cancel)?;
            let mut turn = session.model.turn(cancel)?;
            let engine = turn.engine_mut();
            let chunk_rows = engine.chunk_rows() as usize;
            self.attach(session, engine)?;
            let Self { tokens, kv: Some(kv), logits, .. } = self else { return Err(broken()) };
            let start = kv.tokens().len();
            let end = tokens.len().min(start + chunk_rows);
            let rows = &tokens[start..end];
            let first_output = if end == tokens.len() { rows.len() - 1 } else { rows.len() };
            engine.extend(kv, rows, first_output, &mut |_, row| logits.extend_from_slice(row))?;
        }
        Ok(())
    }

    /// The logits that follow the last token.
    fn logits(&mut self, session: &Session, cancel: Option<&Cancel>) -> Result<&[f32]> {
        let Some(last) = self.tokens.len().checked_sub(1) else {
            return Err(Error::argument(
                "the session is empty, and nothing follows nothing: append tokens first",
            ));
        };
        if self.logits.is_empty() {
            if let Some(kv) = &mut self.kv {
                kv.truncate(last.min(kv.tokens().len()));
            }
            self.run(session, cancel)?;
        }
        Ok(&self.logits)
    }
}

/// An empty session. Free it with unisonic_session_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_new(
    model: *mut unisonic_model,
    session_options: *const unisonic_session_options,
    session: *mut *mut unisonic_session,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let session = options::out(session, "session")?;
            let (model, library) = entry.object_of::<Model>(model)?;
            let given = options::read(session_options)?;
            let salt = options::array(given.salt.cast::<u8>(), given.salt_len, "salt")?;
            handle::write(session, &library, Session::new(model, salt.to_vec(), Sequence::default()))
        })
    }
}

/// Appends tokens and runs them: afterwards unisonic_session_get_logits says what may follow. `cancel` may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_append(
    session: *mut unisonic_session,
    tokens: *const u32,
    tokens_len: usize,
    cancel: *mut unisonic_cancel,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let session = entry.object::<Session>(session)?;
            let tokens = options::array(tokens, tokens_len, "tokens")?;
            session.append(tokens, Cancel::of(cancel)?.as_deref())
        })
    }
}

/// Copies the logits that follow the last token: `logits_len` is vocab_len of unisonic_model_info. Runs the
/// last token if that was not done, as after a generation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_get_logits(
    session: *mut unisonic_session,
    logits: *mut f32,
    logits_len: usize,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let session = entry.object::<Session>(session)?;
            let vocab_len = session.model.facts.vocab_len as usize;
            if logits_len != vocab_len {
                let message = format!("logits_len is {logits_len}, but the model has {vocab_len} logits");
                return Err(Error::argument(message));
            }
            let logits = options::array_mut(logits, logits_len, "logits")?;
            let mut sequence = session.begin()?;
            logits.copy_from_slice(sequence.logits(&session, None)?);
            Ok(())
        })
    }
}

/// The token that the sampler chooses to follow the last one; it is not appended. UNISONIC_NO_TOKEN if the
/// sampler's constraint allows nothing more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_sample(
    session: *mut unisonic_session,
    sampler: *mut unisonic_sampler,
    token: *mut u32,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            options::write_value(token, UNISONIC_NO_TOKEN, "token")?;
            let session = entry.object::<Session>(session)?;
            let sampler = entry.object::<Sampler>(sampler)?;
            if !Arc::ptr_eq(&sampler.model, &session.model) {
                return Err(Error::argument("the sampler is of another model than the session"));
            }
            let mut sequence = session.begin()?;
            sequence.logits(&session, None)?;
            let chosen = sampler.choose(&sequence.logits, &sequence.tokens)?;
            options::write_value(token, chosen.unwrap_or(UNISONIC_NO_TOKEN), "token")
        })
    }
}

/// Number of tokens; 0 if it is no session, or another thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_len(session: *mut unisonic_session) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Session>(session)?.begin()?.tokens.len()) })
}

/// All tokens, into a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_get_tokens(
    session: *mut unisonic_session,
    tokens: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let tokens = options::out(tokens, "tokens")?;
            let (session, library) = entry.object_of::<Session>(session)?;
            let all = session.begin()?.tokens.clone();
            Buffer::Tokens(all).write(tokens, &library)
        })
    }
}

/// Forgets all tokens past the first `len`; what stays is as if nothing had followed it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_truncate(
    session: *mut unisonic_session,
    len: usize,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let session = entry.object::<Session>(session)?;
            let mut sequence = session.begin()?;
            let found = sequence.tokens.len();
            if len > found {
                return Err(Error::argument(format!("len is {len}, but the session has {found} tokens")));
            }
            if len < found {
                sequence.cut(len);
            }
            Ok(())
        })
    }
}

/// A session with the same tokens, which then goes its own way. What was computed is shared where it can be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_fork(
    session: *mut unisonic_session,
    fork: *mut *mut unisonic_session,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let fork = options::out(fork, "fork")?;
            let (session, library) = entry.object_of::<Session>(session)?;
            let sequence = session.begin()?;
            let same = Sequence {
                tokens: sequence.tokens.clone(),
                logits: sequence.logits.clone(),
                chosen_by: sequence.chosen_by.clone(),
                answer: sequence.answer.clone(),
                // It begins with the pages of this one that are full.
                kv: None,
            };
            let (model, salt) = (Arc::clone(&session.model), session.salt.clone());
            handle::write(fork, &library, Session::new(model, salt, same))
        })
    }
}

/// The session as bytes, for unisonic_session_restore in any process and on any device: tokens, keys and
/// values, and how the last answer was chosen. The same as `unisonic run --save-session`. Reads the model's
/// file once, for its digest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_save(
    session: *mut unisonic_session,
    bytes: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let bytes = options::out(bytes, "bytes")?;
            let (session, library) = entry.object_of::<Session>(session)?;
            let mut sequence = session.begin()?;
            let digest = session.model.digest()?;
            let mut turn: Turn<'_, Scheduler> = session.model.turn(None)?;
            let engine = turn.engine_mut();
            sequence.attach(&session, engine)?;
            let Sequence { tokens, kv: Some(kv), chosen_by, answer, .. } = &*sequence else {
                return Err(broken());
            };
            let saved = SavedSession::of(engine, kv, tokens, digest, chosen_by.clone())?;
            Buffer::of_bytes(saved.with_answer(answer.clone()).to_bytes()).write(bytes, &library)
        })
    }
}

/// A session from the bytes that unisonic_session_save or `unisonic run --save-session` gave:
/// UNISONIC_STATUS_MISMATCH for those of another model or arithmetic, and for damaged ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_restore(
    model: *mut unisonic_model,
    session_options: *const unisonic_session_options,
    bytes: *const u8,
    bytes_len: usize,
    session: *mut *mut unisonic_session,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let session = options::out(session, "session")?;
            let (model, library) = entry.object_of::<Model>(model)?;
            let given = options::read(session_options)?;
            let salt = options::array(given.salt.cast::<u8>(), given.salt_len, "salt")?.to_vec();
            let saved = SavedSession::from_bytes(options::array(bytes, bytes_len, "bytes")?)?;
            saved.check_model(model.digest()?)?;
            model.check(saved.tokens(), "tokens of the saved session")?;
            let kv = {
                let mut turn = model.turn(None)?;
                saved.check_profile(&turn.engine().device().profile)?;
                if saved.tokens().len() > turn.engine().context_len() as usize {
                    return Err(model.facts.overflow(saved.tokens().len()).into());
                }
                saved.restore(turn.engine_mut())?
            };
            let sequence = Sequence {
                tokens: saved.tokens().to_vec(),
                kv: Some(kv),
                logits: Vec::new(),
                chosen_by: saved.sampler().clone(),
                answer: saved.answer().cloned(),
            };
            handle::write(session, &library, Session::new(model, salt, sequence))
        })
    }
}

/// Frees a session; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_free(session: *mut unisonic_session) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Session>(session) }
}
