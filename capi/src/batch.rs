//! Many requests at once.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unisonic_engine::schedule::{Request, RequestId, Scheduler, SubmitError};
use unisonic_engine::{Sample, Stop};

use crate::asked::{Answer, Asked, Said, unisonic_generate_options};
use crate::callback::{Flow, failed};
use crate::cancel::Cancel;
use crate::completion::{Completion, unisonic_completion, unisonic_stop};
use crate::entry::entry;
use crate::error::{Error, Result, unisonic_error};
use crate::handle::{self, Object};
use crate::locks::{lock_whole, try_lock};
use crate::model::{Model, unisonic_model};
use crate::options::{self, SizeTagged};
use crate::requests::InFlight;
use crate::status::unisonic_status;

/// Requests that share the steps of a model. Which of them meet in a step changes no bit of an answer.
/// Several batches of a model share steps too.
pub struct unisonic_batch {
    _opaque: (),
}

/// Options of unisonic_batch_new.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_batch_options {
    /// sizeof(unisonic_batch_options).
    pub struct_size: usize,
    /// As of unisonic_session_options.
    pub salt: *const c_char,
    /// Bytes of `salt`.
    pub salt_len: usize,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_batch_options {
    const NAME: &'static str = "unisonic_batch_options";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What is behind a batch.
pub(crate) struct Batch {
    model: Arc<Model>,
    salt: Vec<u8>,
    next: AtomicU64,
    /// Apart from the rest, for callbacks to add to.
    waiting: Mutex<VecDeque<Waiting>>,
    work: Mutex<Work>,
}

/// A request that the scheduler has not got yet.
struct Waiting {
    number: u64,
    prompt: Vec<u32>,
    asked: Asked,
    sampler: Box<dyn Sample>,
}

/// Requests that the scheduler is given at a time.
pub(crate) const MAX_QUEUED: usize = 256;

#[derive(Default)]
struct Work {
    running: Vec<Running>,
    ended: HashMap<u64, Result<Completion>>,
}

struct Running {
    number: u64,
    id: RequestId,
    asked: Asked,
    request: Arc<Mutex<InFlight>>,
}

impl Object for Batch {
    type Handle = unisonic_batch;
    const NAME: &'static str = "batch";
}

impl Batch {
    fn begin(&self) -> Result<MutexGuard<'_, Work>> {
        let busy = "the batch is used by another thread, or by the call that this callback came from";
        try_lock(&self.work, busy)
    }

    /// Runs one step, tells what came of it, and whether there is more to do.
    fn step(&self) -> Result<bool> {
        let mut work = self.begin()?;
        {
            let mut scheduler = self.model.turn(None)?;
            work.cancel_asked(&mut scheduler);
            self.submit(&mut work, &mut scheduler);
            // Also where nothing of its own runs: requests of other batches fill the queue, and nobody may step those.
            if self.has_more(&work) {
                scheduler.step(&mut |event| self.model.requests.take(event))?;
            }
        }
        work.tell(&self.model)?;
        Ok(self.has_more(&work))
    }

    fn has_more(&self, work: &Work) -> bool {
        !work.running.is_empty() || !lock_whole(&self.waiting).is_empty()
    }

    /// Gives the scheduler what waits, as far as it takes it.
    fn submit(&self, work: &mut Work, scheduler: &mut Scheduler) {
        while scheduler.queued() < MAX_QUEUED {
            let Some(waiting) = lock_whole(&self.waiting).pop_front() else { break };
            let number = waiting.number;
            match self.start(waiting, scheduler) {
                Ok(running) => work.running.push(running),
                Err(error) => {
                    work.ended.insert(number, Err(error));
                }
            }
        }
    }

    fn start(&self, waiting: Waiting, scheduler: &mut Scheduler) -> Result<Running> {
        let Waiting { number, prompt, asked, sampler } = waiting;
        let model = &self.model;
        let vocabulary = Arc::clone(&model.tokenizer.vocabulary);
        let answer = Answer::new(model, scheduler.engine(), &asked, &prompt)?;
        let request = Request {
            prompt,
            max_tokens: asked.max_tokens,
            salt: self.salt.clone(),
            sampler,
            drafter: asked.drafter(),
            is_stop: Arc::new(move |token| vocabulary.is_stop(token)),
        };
        let id = scheduler.submit(request).map_err(|error| match error {
            SubmitError::QueueFull { .. } => Error::new(unisonic_status::Busy, error.to_string()),
            SubmitError::Request(error) => error.into(),
        })?;
        let request = InFlight::new(answer, asked.want_logits);
        model.requests.insert(id, &request);
        Ok(Running { number, id, asked, request })
    }
}

impl Work {
    /// Ends the requests whose switch is set.
    fn cancel_asked(&mut self, scheduler: &mut Scheduler) {
        for running in &self.running {
            if running.asked.cancel.as_deref().is_some_and(Cancel::is_requested)
                && scheduler.cancel(running.id).is_some()
            {
                lock_whole(&running.request).finish(Stop::Cancelled);
            }
        }
    }

    /// Tells the host what has happened, and collects what has come to its end.
    fn tell(&mut self, model: &Model) -> Result {
        let mut index = 0;
        while index < self.running.len() {
            let running = &self.running[index];
            let flow = running.tell();
            let end = match flow {
                Flow::Continue => lock_whole(&running.request).completion(),
                Flow::Stop => lock_whole(&running.request).cut(unisonic_stop::Callback).map(Ok),
                Flow::Failed(said) => Some(Err(failed("on_token", said))),
            };
            let Some(end) = end else {
                index += 1;
                continue;
            };
            let Running { number, id, .. } = self.running.swap_remove(index);
            model.requests.remove(id);
            // Before what can fail, so that the request can be taken in any case.
            self.ended.insert(number, end);
            if flow != Flow::Continue {
                model.turn(None)?.cancel(id);
            }
        }
        Ok(())
    }
}

impl Running {
    /// Tells the host what has happened, until it wants no more.
    fn tell(&self) -> Flow {
        loop {
            // Not held while the host is called.
            let Some(happened) = lock_whole(&self.request).happened.pop_front() else {
                return Flow::Continue;
            };
            let said = Said {
                request: self.number,
                token: happened.token,
                text: &happened.text,
                logits: &happened.logits,
                index: happened.index,
            };
            let flow = self.asked.tell(&said);
            lock_whole(&self.request).told(&happened);
            if flow != Flow::Continue {
                return flow;
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner);
        if work.running.is_empty() {
            return;
        }
        for running in &work.running {
            // Nobody follows it any more, so it ends with its next token in any case.
            self.model.requests.remove(running.id);
        }
        if let Ok(mut scheduler) = self.model.turn(None) {
            for running in &work.running {
                scheduler.cancel(running.id);
            }
        }
    }
}

/// An empty batch. Free it with unisonic_batch_free, which ends what it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_batch_new(
    model: *mut unisonic_model,
    batch_options: *const unisonic_batch_options,
    batch: *mut *mut unisonic_batch,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let batch = options::out(batch, "batch")?;
            let (model, library) = entry.object_of::<Model>(model)?;
            let given = options::read(batch_options)?;
            let salt = options::array(given.salt.cast::<u8>(), given.salt_len, "salt")?.to_vec();
            let (waiting, work) = (Mutex::default(), Mutex::default());
            let made = Batch { model, salt, next: AtomicU64::new(1), waiting, work };
            handle::write(batch, &library, Arc::new(made))
        })
    }
}

/// Adds a request, from any thread and also while the batch runs, in callbacks too. `request` is set to its
/// number: 1, 2 and so on. Callbacks come from the call that runs the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_batch_add(
    batch: *mut unisonic_batch,
    prompt: *const u32,
    prompt_len: usize,
    generate_options: *const unisonic_generate_options,
    request: *mut u64,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            options::write_value(request, 0, "request")?;
            let batch = entry.object::<Batch>(batch)?;
            let prompt = options::array(prompt, prompt_len, "prompt")?;
            let asked = Asked::read(generate_options)?;
            batch.model.check(prompt, "prompt")?;
            if prompt.is_empty() {
                return Err(unisonic_engine::EngineError::EmptyPrompt.into());
            }
            if prompt.len() >= batch.model.facts.context_len as usize {
                return Err(batch.model.facts.overflow(prompt.len() + 1).into());
            }
            // What is wrong with the options is said now.
            let sampler = asked.choice.sampler(&batch.model, prompt.len(), asked.looks_at_logits())?;
            asked.prepare(&batch.model)?;
            let number = batch.next.fetch_add(1, Ordering::Relaxed);
            let prompt = prompt.to_vec();
            lock_whole(&batch.waiting).push_back(Waiting { number, prompt, asked, sampler });
            options::write_value(request, number, "request")
        })
    }
}

/// Runs one step of the model for all requests and calls their callbacks. `more` is set to 1 if there is more
/// to do, otherwise to 0. An error is of the device, not of a request, and the step may be tried again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_batch_step(
    batch: *mut unisonic_batch,
    more: *mut u32,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            options::write_value(more, 0, "more")?;
            let batch = entry.object::<Batch>(batch)?;
            options::write_value(more, u32::from(batch.step()?), "more")
        })
    }
}

/// Runs steps until all requests have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_batch_run(
    batch: *mut unisonic_batch,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let batch = entry.object::<Batch>(batch)?;
            while batch.step()? {}
            Ok(())
        })
    }
}

/// What a request came to: its completion, which then is the caller's, or its error. UNISONIC_STATUS_BUSY
/// while it has not ended. A request can be taken once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_batch_take(
    batch: *mut unisonic_batch,
    request: u64,
    completion: *mut *mut unisonic_completion,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let completion = options::out(completion, "completion")?;
            let (batch, library) = entry.object_of::<Batch>(batch)?;
            let mut work = batch.begin()?;
            let Some(ended) = work.ended.remove(&request) else {
                let waits = lock_whole(&batch.waiting).iter().any(|waiting| waiting.number == request);
                let is_there = waits || work.running.iter().any(|running| running.number == request);
                return Err(match is_there {
                    true => Error::new(
                        unisonic_status::Busy,
                        format!("request {request} has not ended; run the batch"),
                    ),
                    false => Error::argument(format!("the batch has no request {request}, or it was taken")),
                });
            };
            handle::write(completion, &library, Arc::new(ended?))
        })
    }
}

/// Frees a batch and ends its requests; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_batch_free(batch: *mut unisonic_batch) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Batch>(batch) }
}
