//! A request with its state.

use std::ops::ControlFlow;

use super::{Event, Request, RequestId};
use crate::generate::{Generation, Turn};
use crate::step::Output;
use crate::{Completion, EngineError, Session, Stop};

/// A request that waits: a new one, or one that was set aside.
pub(super) struct Job {
    pub id: RequestId,
    pub request: Request,
    pub generation: Generation,
}

/// A request that runs.
pub(super) struct Running {
    pub job: Job,
    pub session: Session,
    /// Number of the last step that it had rows in.
    pub served: u64,
    /// How many rows it has in this step, beside guesses.
    pub rows: usize,
    /// Its rows in this step.
    pub turn: Option<Turn>,
    /// Why it ends with this step.
    pub end: Option<Result<Stop, EngineError>>,
}

impl Job {
    pub(super) fn completion(&self, stop: Stop) -> Completion {
        let (token_ids, drafts) = (self.generation.generated().to_vec(), self.generation.stats());
        Completion { token_ids, stop, drafts }
    }

    /// Chooses the token after a row of a turn; how the request ends, if it does.
    pub(super) fn take(
        &mut self,
        turn: &Turn,
        row: usize,
        output: Result<Output<'_>, EngineError>,
        events: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Option<Result<Stop, EngineError>> {
        let bits = output.as_ref().map_or(&[][..], |output| output.logits_for(&*self.request.sampler));
        let token = match self.generation.take(turn, row, output, &mut *self.request.sampler) {
            Ok(token) => token?,
            Err(error) => return Some(Err(error)),
        };
        let flow = events(Event::Token { id: self.id, token, logits: bits });
        let Request { sampler, is_stop, .. } = &mut self.request;
        self.generation.end_at(token, &**is_stop, &mut **sampler, flow).transpose()
    }
}

impl Running {
    /// Tokens that are to be run.
    pub(super) fn pending(&self) -> usize {
        self.job.generation.tokens().len() - self.session.tokens().len()
    }
}
