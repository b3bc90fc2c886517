//! Driving the requests.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::job::{Job, Running};
use super::rows::{Wish, share};
use super::{Event, Request, RequestId, RequestProgress, ScheduleLimits, SubmitError};
use crate::draft::Load;
use crate::generate::{Budget, Generation};
use crate::step::{Look, Part};
use crate::{Completion, Engine, EngineError, Stop};

/// Is told what happens; `Break` at a token ends its request with [`Stop::Cancelled`] there.
type Events<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// Runs many requests on an engine.
pub struct Scheduler {
    engine: Engine,
    limits: ScheduleLimits,
    queue: VecDeque<Job>,
    /// Oldest first.
    running: Vec<Running>,
    next_id: u64,
    steps: u64,
    /// The first of the queue has no room until one that runs has ended.
    blocked: bool,
}

impl Scheduler {
    /// A scheduler without requests.
    pub fn new(engine: Engine, limits: ScheduleLimits) -> Self {
        let (queue, running) = (VecDeque::new(), Vec::new());
        Self { engine, limits, queue, running, next_id: 0, steps: 0, blocked: false }
    }

    /// What runs.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What runs, for sessions between the steps. Requests go on over the same pages.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Requests that wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Requests that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How far each request that runs has come, the oldest first.
    pub fn progress(&self) -> impl Iterator<Item = RequestProgress> {
        self.running.iter().map(|Running { job, session, .. }| RequestProgress {
            id: job.id,
            known_tokens: session.tokens().len(),
            generated_tokens: job.generation.generated().len(),
            drafts: job.generation.stats(),
        })
    }

    /// Takes a request, which waits until there is room.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, SubmitError> {
        if self.queue.len() >= self.limits.max_queued {
            return Err(SubmitError::QueueFull { max_queued: self.limits.max_queued });
        }
        if request.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt.into());
        }
        let generation = Generation::new(request.prompt.clone(), request.max_tokens);
        generation.limit(&self.engine)?;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.queue.push_back(Job { id, request, generation });
        Ok(id)
    }

    /// Ends a request at once, wherever it is; what it had generated. None if there is no such request any
    /// more.
    pub fn cancel(&mut self, id: RequestId) -> Option<Completion> {
        if let Some(index) = self.queue.iter().position(|job| job.id == id) {
            self.blocked = false;
            return Some(self.queue.remove(index)?.completion(Stop::Cancelled));
        }
        let index = self.running.iter().position(|running| running.job.id == id)?;
        self.blocked = false;
        Some(self.running.remove(index).job.completion(Stop::Cancelled))
    }

    /// Runs one step for all that have rows in it, and tells what came of it; whether there is more to do.
    ///
    /// An error is of the device, not of a request: no request has changed, and a later step may succeed.
    pub fn step(&mut self, events: &mut Events<'_>) -> Result<bool, EngineError> {
        self.admit(events)?;
        self.share_rows();
        self.find_pages();
        self.plan()?;
        self.run(events)?;
        self.finish(events)?;
        Ok(!self.running.is_empty() || !self.queue.is_empty())
    }

    /// Lets requests of the queue run, as long as there is room for their prompts.
    fn admit(&mut self, events: &mut Events<'_>) -> Result<(), EngineError> {
        while self.running.len() < self.limits.max_running.max(1) && !self.blocked {
            let Some(mut job) = self.queue.pop_front() else { break };
            match job.generation.end(&self.engine, &mut *job.request.sampler) {
                Ok(None) => {}
                Ok(Some(stop)) => {
                    let _ = events(Event::Done { id: job.id, completion: job.completion(stop) });
                    continue;
                }
                Err(error) => {
                    let _ = events(Event::Failed { id: job.id, error });
                    continue;
                }
            }
            let tokens = job.generation.tokens();
            let session = self.engine.session_for(&job.request.salt, tokens);
            let reserved = session.and_then(|mut session| {
                self.engine.reserve(&mut session, tokens.len())?;
                Ok(session)
            });
            match reserved {
                Ok(session) => {
                    let (turn, end) = (None, None);
                    self.running.push(Running { job, session, served: self.steps, rows: 0, turn, end });
                    self.running.sort_by_key(|running| running.job.id);
                }
                Err(EngineError::OutOfPages { .. }) if !self.running.is_empty() => {
                    self.queue.push_front(job);
                    self.blocked = true;
                }
                Err(error @ EngineError::OutOfPages { .. }) => {
                    let _ = events(Event::Failed { id: job.id, error });
                }
                Err(error) => {
                    self.queue.push_front(job);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Divides the rows of a step.
    fn share_rows(&mut self) {
        let wish = |running: &Running| Wish { pending: running.pending(), served: running.served };
        let wishes: Vec<Wish> = self.running.iter().map(wish).collect();
        let (rows, outputs) = (self.engine.chunk_rows() as usize, self.engine.max_outputs() as usize);
        for (running, rows) in self.running.iter_mut().zip(share(rows, outputs, &wishes)) {
            running.rows = rows;
            running.turn = None;
        }
    }

    /// Gets pages for the rows, for the oldest first. Where there are none, the youngest is set aside: it
    /// goes on when another has ended, from what is then left of its pages.
    fn find_pages(&mut self) {
        let mut index = 0;
        while index < self.running.len() {
            let running = &mut self.running[index];
            let len = running.session.tokens().len() + running.rows;
            let Err(error) = self.engine.reserve(&mut running.session, len) else {
                index += 1;
                continue;
            };
            if self.running.len() == 1 {
                // Others than this scheduler hold the pages; waiting would not end.
                let running = &mut self.running[0];
                (running.rows, running.end) = (0, Some(Err(error)));
                return;
            }
            if let Some(youngest) = self.running.pop() {
                self.queue.push_front(youngest.job);
                self.blocked = true;
            }
        }
    }

    /// Fixes the rows of each request, with guesses where rows are left.
    fn plan(&mut self) -> Result<(), EngineError> {
        let is_last = |running: &Running| running.rows > 0 && running.rows == running.pending();
        let tokens = self.running.iter().filter(|running| is_last(running)).count();
        let mut rows: usize = self.running.iter().map(|running| running.rows).sum();
        let mut outputs = tokens;
        let (most_rows, most_outputs) =
            (self.engine.chunk_rows() as usize, self.engine.max_outputs() as usize);
        let count = self.running.len();
        // Another one comes first each time, so that what is left over is not always the same one's.
        for index in (0..count).map(|index| (index + self.steps as usize) % count) {
            let running = &mut self.running[index];
            if running.rows == 0 {
                continue;
            }
            let last = is_last(running);
            let others = Load { rows: rows - running.rows, tokens: tokens - usize::from(last) };
            let budget = Budget {
                rows: running.rows + if last { most_rows - rows } else { 0 },
                outputs: if last { 1 + most_outputs - outputs } else { 0 },
                guesses: last.then_some(others),
            };
            let Running { job, session, .. } = running;
            let Request { sampler, drafter, .. } = &mut job.request;
            let drafter = drafter.as_deref_mut();
            let turn = job.generation.plan(&mut self.engine, session, budget, &mut **sampler, drafter)?;
            rows += turn.tokens.len() - running.rows;
            outputs += turn.outputs().saturating_sub(1);
            running.turn = (!turn.tokens.is_empty()).then_some(turn);
        }
        Ok(())
    }

    /// How a step looks at what comes of it: at tokens alone if nobody needs more, in as many runs as serve all.
    fn look(&mut self) -> Look {
        let guesses = self.running.iter().any(|running| running.job.request.drafter.is_some());
        let rows = self.running.iter().filter(|running| running.turn.is_some()).count();
        let mut most = self.engine.most_runs(rows, guesses);
        for Running { job, session, turn, .. } in &mut self.running {
            let Some(turn) = turn else { continue };
            match job.generation.look(&self.engine, session, turn, &*job.request.sampler, most) {
                Look::AtTokens { runs } => most = runs,
                // A piece of a prompt has nothing to look at.
                Look::AtLogits if turn.outputs() == 0 => most = 1,
                Look::AtLogits => return Look::AtLogits,
            }
        }
        Look::AtTokens { runs: most }
    }

    /// Runs what is planned.
    fn run(&mut self, events: &mut Events<'_>) -> Result<(), EngineError> {
        self.steps += 1;
        let look = self.look();
        let (mut parts, mut players) = (Vec::new(), Vec::new());
        for running in &mut self.running {
            let Running { job, session, turn: Some(turn), served, end, .. } = running else { continue };
            *served = self.steps;
            parts.push(Part { session, tokens: &turn.tokens, first_output: turn.first_output });
            players.push((job, &*turn, end));
        }
        if parts.is_empty() {
            return Ok(());
        }
        self.engine.step(&mut parts, look, &mut |part, row, output| {
            let (job, turn, end) = &mut players[part];
            if end.is_none() {
                **end = job.take(turn, row, output, events);
            }
        })
    }

    /// Settles the step, and tells of those that have come to their end.
    fn finish(&mut self, events: &mut Events<'_>) -> Result<(), EngineError> {
        let mut stored = Ok(());
        for mut running in std::mem::take(&mut self.running) {
            if let Some(turn) = running.turn.take() {
                running.job.generation.settle(&turn, &mut running.session);
                stored = stored.and(self.engine.store_pages(&mut running.session));
            }
            let end = running.end.take().or_else(|| running.job.generation.limit(&self.engine).transpose());
            let id = running.job.id;
            let _ = match end {
                None => {
                    self.running.push(running);
                    continue;
                }
                Some(Ok(stop)) => events(Event::Done { id, completion: running.job.completion(stop) }),
                Some(Err(error)) => events(Event::Failed { id, error }),
            };
            self.blocked = false;
        }
        stored
    }
}
