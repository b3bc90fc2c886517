//! What the thread does.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use unisonic_engine::schedule::{Event, RequestId, ScheduleLimits, Scheduler};
use unisonic_engine::{Engine, EngineError};

use super::job::Job;
use super::{Command, Ended, Limits};
use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::model::{Load, Status};

/// What the thread holds beside the engine.
pub(super) struct Worker {
    pub limits: Limits,
    pub status: watch::Sender<Status>,
    pub metrics: Arc<Metrics>,
    pub commands: Receiver<Command>,
}

/// Why an engine is not driven any more.
enum Left {
    Stopped,
    /// The device cannot be relied on; the model has to be loaded anew.
    Broken,
}

impl Worker {
    /// Loads the model and runs what comes, until told to stop or the model cannot be loaded.
    pub(super) fn run(mut self, mut load: Load) -> Ended {
        loop {
            let loaded = load()?;
            let (engine, model) = loaded.split();
            tracing::info!(model = model.name, device = model.device, "ready");
            self.set(Status::Ready(Arc::new(model)));
            match self.drive(engine) {
                Left::Stopped => return Ok(()),
                Left::Broken => {}
            }
        }
    }

    /// Stopping is for ever.
    fn set(&self, status: Status) {
        self.status.send_if_modified(|now| {
            let changes = !matches!(now, Status::Stopping);
            if changes {
                *now = status;
            }
            changes
        });
    }

    fn drive(&mut self, engine: Engine) -> Left {
        let limits = ScheduleLimits { max_running: self.limits.running, max_queued: self.limits.places() };
        let mut scheduler = Scheduler::new(engine, limits);
        let mut jobs = HashMap::new();
        loop {
            if jobs.is_empty() {
                self.observe(&scheduler, &mut jobs);
                match self.commands.blocking_recv() {
                    Some(Command::Run(new)) => self.take(new, &mut scheduler, &mut jobs),
                    Some(Command::Stop) | None => return Left::Stopped,
                }
            }
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Run(new) => self.take(new, &mut scheduler, &mut jobs),
                    Command::Stop => return Left::Stopped,
                }
            }
            self.cancel_left(&mut scheduler, &mut jobs);
            if jobs.is_empty() {
                continue;
            }
            self.observe(&scheduler, &mut jobs);
            if let Err(error) = self.step(&mut scheduler, &mut jobs)
                && let Some(left) = self.fail_all(&error, &mut scheduler, &mut jobs)
            {
                return left;
            }
        }
    }

    fn take(&self, new: Vec<Job>, scheduler: &mut Scheduler, jobs: &mut HashMap<RequestId, Job>) {
        for mut job in new {
            let Some(request) = job.request(self.limits.speculation) else { continue };
            match scheduler.submit(request) {
                Ok(id) => {
                    jobs.insert(id, job);
                }
                Err(error) => job.fail(error.into()),
            }
        }
    }

    /// Frees the rows and pages of those whose client has gone.
    fn cancel_left(&self, scheduler: &mut Scheduler, jobs: &mut HashMap<RequestId, Job>) {
        jobs.retain(|&id, job| {
            let is_left = job.is_left();
            if is_left {
                scheduler.cancel(id);
                self.metrics.cancelled_requests.inc();
            }
            !is_left
        });
    }

    fn step(&self, scheduler: &mut Scheduler, jobs: &mut HashMap<RequestId, Job>) -> Result<(), EngineError> {
        let metrics = &*self.metrics;
        metrics.steps.inc();
        scheduler.step(&mut |event| {
            match event {
                Event::Token { id, token, logits } => {
                    if let Some(job) = jobs.get_mut(&id) {
                        return job.token(token, logits, metrics);
                    }
                }
                Event::Done { id, completion } => {
                    if let Some(job) = jobs.remove(&id) {
                        job.end(&completion, metrics);
                    }
                }
                Event::Failed { id, error } => {
                    if let Some(job) = jobs.remove(&id) {
                        job.fail(error.into());
                    }
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Fails everyone at once; if the device is to be given up, also those who have just come.
    fn fail_all(
        &mut self,
        error: &EngineError,
        scheduler: &mut Scheduler,
        jobs: &mut HashMap<RequestId, Job>,
    ) -> Option<Left> {
        tracing::error!(%error, requests = jobs.len(), "a step failed");
        self.metrics.failed_steps.inc();
        let is_broken = matches!(error, EngineError::Device(_));
        if is_broken {
            // Before anyone hears of it.
            self.set(Status::Failed(error.to_string()));
        }
        let failure = ApiError::internal(format!("the request was ended by an error: {error}; try again"));
        for (id, job) in jobs.drain() {
            scheduler.cancel(id);
            job.fail(failure.clone());
        }
        // While the model is loaded again nobody looks.
        self.observe(scheduler, jobs);
        if !is_broken {
            return None;
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Run(new) => new.into_iter().for_each(|job| job.fail(failure.clone())),
                Command::Stop => return Some(Left::Stopped),
            }
        }
        Some(Left::Broken)
    }

    fn observe(&self, scheduler: &Scheduler, jobs: &mut HashMap<RequestId, Job>) {
        let pages = scheduler.engine().page_use();
        let metrics = &*self.metrics;
        metrics.running.set(scheduler.running() as i64);
        metrics.waiting.set(scheduler.queued() as i64);
        metrics.kv_pages_held.set(pages.held as i64);
        metrics.kv_pages_cached.set(pages.cached as i64);
        metrics.kv_pages_free.set(pages.free as i64);
        for progress in scheduler.progress() {
            if let Some(job) = jobs.get_mut(&progress.id) {
                job.observe(&progress, metrics);
            }
        }
    }
}
