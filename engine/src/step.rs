//! Running tokens: rows of one session or of many in one step of the device.

use std::ops::Range;

use unisonic_core::plan::{Batch, PAGE_TOKENS, Picks, RangeFlag, RunProfile};

use crate::kv::{CommonSlots, locked};
use crate::{Engine, EngineError, Greedy, Sample, Session};

/// Tokens that a session gets in a step. Its last page must be its own ([`Engine::own_tail`]).
pub(crate) struct Part<'a> {
    pub session: &'a mut Session,
    pub tokens: &'a [u32],
    /// Index into `tokens` of the first whose logits are wanted.
    pub first_output: usize,
}

/// What of a step someone looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The logits of each output row.
    AtLogits,
    /// The most likely token of each output row alone; the device may then run the step so many times, each time with
    /// these tokens after those before. More than once only if each part has a single token, whose session has room for as
    /// many.
    AtTokens { runs: u32 },
}

/// What came of an output row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Output<'a> {
    Logits(&'a [f32]),
    /// The most likely token.
    Token(u32),
}

impl<'a> Output<'a> {
    /// The logits; none where only a token is known.
    pub fn logits(self) -> &'a [f32] {
        match self {
            Output::Logits(logits) => logits,
            Output::Token(_) => &[],
        }
    }

    /// What is told of a choice: none where they are not needed, whether or not they are there.
    pub fn logits_for(self, sampler: &(dyn Sample + '_)) -> &'a [f32] {
        if sampler.needs_logits() { self.logits() } else { &[] }
    }
}

/// Is handed what comes of a step: index of the part, index into its tokens, and what comes after that token
/// or why there is nothing; after an error there is nothing more of that part. Of a later run the index is beyond the
/// tokens of the part.
pub(crate) type Outputs<'a> = dyn FnMut(usize, usize, Result<Output<'_>, EngineError>) + 'a;

/// How long a device may run without the host: others wait so long, and a stream of tokens stands still.
const RUNS_SECONDS: f64 = 0.02;
/// Most runs where each token may show what to guess.
const RUNS_BETWEEN_GUESSES: u32 = 4;

impl Engine {
    /// Appends tokens to a sequence, in chunks, and hands over the logits that follow each token from index
    /// `first_output` of `tokens` on: `sink(index, logits)`, in order.
    ///
    /// After an error the session holds the tokens before the one that failed, or before its chunk.
    pub fn extend(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        first_output: usize,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let len = session.tokens.len() + tokens.len();
        self.check(session, len)?;
        let mut again = self.own_tail(session)?;
        let offset = again.len();
        again.extend_from_slice(tokens);
        let first_output = first_output.saturating_add(offset);
        self.reserve(session, len)?;
        let mut start = 0;
        while start < again.len() {
            let end = self.chunk_end(start, again.len(), first_output);
            let mut failed = Ok(());
            let part = Part {
                session: &mut *session,
                tokens: &again[start..end],
                first_output: first_output.saturating_sub(start),
            };
            self.step(&mut [part], Look::AtLogits, &mut |_, index, output| match output {
                Ok(output) => sink(start + index - offset, output.logits()),
                Err(error) => failed = Err(error),
            })?;
            failed?;
            start = end;
        }
        Ok(())
    }

    /// Appends tokens to each of some sequences, all in one step, and says the most likely token after each of them,
    /// sequence by sequence. They are together at most [`Self::chunk_rows`] and [`Self::max_outputs`] tokens.
    ///
    /// After an error each session holds its tokens before the one that failed.
    pub fn pick_each(&mut self, parts: &mut [(&mut Session, &[u32])]) -> Result<Vec<u32>, EngineError> {
        for (session, tokens) in parts.iter_mut() {
            let len = session.tokens.len() + tokens.len();
            self.check(session, len)?;
            let again = self.own_tail(session)?;
            self.extend(session, &again, again.len(), &mut |_, _| {})?;
            self.reserve(session, len)?;
        }
        let parts = parts.iter_mut();
        let mut step: Vec<Part<'_>> =
            parts.map(|(session, tokens)| Part { session, tokens, first_output: 0 }).collect();
        let mut found = Ok(vec![]);
        self.step(&mut step, Look::AtTokens { runs: 1 }, &mut |_, _, output| {
            let picked = output.and_then(|output| match output {
                Output::Token(token) => Ok(token),
                Output::Logits(logits) => Greedy.sample(logits, &[]),
            });
            match (&mut found, picked) {
                (Ok(all), Ok(token)) => all.push(token),
                (Ok(_), Err(error)) => found = Err(error),
                (Err(_), _) => {}
            }
        })?;
        found
    }

    /// End of the chunk that begins at `start`: at most `chunk_rows` rows of which at most `max_outputs` are
    /// outputs.
    fn chunk_end(&self, start: usize, len: usize, first_output: usize) -> usize {
        let rows_end = start + self.chunk_rows() as usize;
        let outputs_end = start.max(first_output).saturating_add(self.max_outputs() as usize);
        len.min(rows_end).min(outputs_end)
    }

    /// Gets pages for a session that is to become `len` tokens long.
    pub(crate) fn reserve(&self, session: &mut Session, len: usize) -> Result<(), EngineError> {
        let pages = len.div_ceil(PAGE_TOKENS as usize);
        session.pages.grow(pages).map_err(|(needed, free)| EngineError::OutOfPages {
            needed,
            free,
            total: locked(&self.cache).page_use().total,
        })
    }

    /// Refuses a session of another engine, and a length beyond the context.
    pub(crate) fn check(&self, session: &Session, len: usize) -> Result<(), EngineError> {
        if !session.pages.is_of(&self.cache) {
            return Err(EngineError::ForeignSession);
        }
        if len > self.context_len() as usize {
            return Err(EngineError::ContextOverflow {
                needed: len,
                context_len: self.context_len(),
                trained_len: self.plan().context_len,
            });
        }
        Ok(())
    }

    /// Makes the last page of a session its own, where it has been truncated in the middle of a page that
    /// others may read. The tokens that have to be run again for that, which the session no longer holds:
    /// none if the device copies pages.
    pub(crate) fn own_tail(&mut self, session: &mut Session) -> Result<Vec<u32>, EngineError> {
        let len = session.tokens.len();
        let Some(slots) = session.pages.shared_slots(len) else { return Ok(Vec::new()) };
        let start = len - slots.len;
        let copied = self.copy_slots(session, &slots, Some(start / PAGE_TOKENS as usize))?;
        Ok(if copied { Vec::new() } else { session.tokens.split_off(start) })
    }

    /// Copies the page of some slots to the end of a session's pages; before that, keeps only `keep` of them.
    /// False if the device copies no pages, or none is free.
    pub(crate) fn copy_slots(
        &mut self,
        session: &mut Session,
        slots: &CommonSlots,
        keep: Option<usize>,
    ) -> Result<bool, EngineError> {
        let copy = session.pages.begin_copy(slots);
        session.pages.shrink(keep.unwrap_or(usize::MAX));
        let Some(copy) = copy else { return Ok(false) };
        let copied = self.program.copy_page(copy.from, copy.to);
        session.pages.end_copy(copy, matches!(copied, Ok(true)));
        Ok(copied?)
    }

    /// Most runs that a step of so many rows, a sequence each, may take without the host.
    pub(crate) fn most_runs(&self, rows: usize, guesses: bool) -> u32 {
        let most = self.program.max_runs(rows).min(if guesses { RUNS_BETWEEN_GUESSES } else { u32::MAX });
        let in_time = (RUNS_SECONDS / self.costs.seconds(rows)) as u32;
        most.min(in_time).max(1)
    }

    /// Runs one batch. The sessions have room for their tokens ([`Self::reserve`]); together these are at
    /// most [`Self::chunk_rows`] with at most [`Self::max_outputs`] outputs. The error is of the step as a
    /// whole, and then no session has changed; one of a single row comes to `outputs`, and ends that session
    /// before it.
    pub(crate) fn step(
        &mut self,
        parts: &mut [Part<'_>],
        look: Look,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), EngineError> {
        parts.iter_mut().for_each(|part| part.session.pages.publish(&part.session.tokens));
        let rows = Rows::of(parts);
        let page_tables: Vec<&[u32]> = parts.iter().map(|part| part.session.pages.pages()).collect();
        let started = self.clock.as_ref().map(|clock| clock());
        let Picks { tokens: picked, flags } = self.run_batch(&rows.batch(&page_tables), look)?;
        let runs = (picked.len() / rows.outputs.len().max(1)).max(1);
        // Steps of prompts are of another kind: what rows without outputs take says little about decoding.
        if let (Some(clock), Some(started)) = (&self.clock, started)
            && rows.outputs.len() == rows.tokens.len()
        {
            let seconds = clock().saturating_sub(started).as_secs_f64();
            self.costs.record(rows.tokens.len(), seconds / runs as f64);
        }
        self.rows_run += (rows.tokens.len() * runs) as u64;
        for (index, part) in parts.iter_mut().enumerate() {
            let range = rows.parts[index].clone();
            let flag = flags.iter().find(|flag| range.contains(&(flag.row as usize)));
            let good = flag.map_or(part.tokens.len(), |flag| flag.row as usize - range.start);
            part.session.tokens.extend_from_slice(&part.tokens[..good]);
            for token in part.first_output..good {
                let output = rows.outputs.partition_point(|&row| (row as usize) < range.start + token);
                let found = match picked.get(output) {
                    Some(&picked) => Output::Token(picked),
                    None => Output::Logits(self.program.logits(output)),
                };
                outputs(index, token, Ok(found));
            }
            if let Some(flag) = flag {
                outputs(index, good, Err(self.range_error(*flag, rows.positions[flag.row as usize])));
            }
        }
        // Of later runs: each part has one row, and what came of the run before is its token.
        for run in 1..runs {
            let (before, now) = (&picked[(run - 1) * parts.len()..], &picked[run * parts.len()..]);
            for (index, part) in parts.iter_mut().enumerate() {
                part.session.tokens.push(before[index]);
                outputs(index, run, Ok(Output::Token(now[index])));
            }
        }
        Ok(())
    }

    /// Without tokens there are logits.
    fn run_batch(&mut self, batch: &Batch<'_>, look: Look) -> Result<Picks, EngineError> {
        if let Look::AtTokens { runs } = look
            && let Some(picks) = self.program.pick(batch, runs)?
        {
            return Ok(picks);
        }
        Ok(Picks { tokens: vec![], flags: self.program.run(batch)? })
    }

    /// Runs the step in which `tokens` follow a sequence some times, and says what its launches take on the
    /// device. The sequence stays as it is; logits are computed for tokens from index `first_output` on.
    pub fn profile(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        first_output: usize,
        repetitions: u32,
    ) -> Result<RunProfile, EngineError> {
        let len = session.tokens.len() + tokens.len();
        self.check(session, len)?;
        // What has to be run again for that is no part of the step.
        let again = self.own_tail(session)?;
        self.extend(session, &again, again.len(), &mut |_, _| {})?;
        self.reserve(session, len)?;
        let parts = [Part { session, tokens, first_output }];
        let rows = Rows::of(&parts);
        let [part] = &parts;
        Ok(self.program.profile(&rows.batch(&[part.session.pages.pages()]), repetitions)?)
    }

    fn range_error(&self, flag: RangeFlag, position: u32) -> EngineError {
        EngineError::Range {
            position,
            step: self.plan().steps[flag.step as usize].label.clone(),
            profile: self.device().profile.clone(),
        }
    }
}

/// The lists of a [`Batch`].
struct Rows {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    sequences: Vec<u32>,
    outputs: Vec<u32>,
    /// Rows of each part.
    parts: Vec<Range<usize>>,
}

impl Rows {
    fn of(parts: &[Part<'_>]) -> Self {
        let (tokens, positions, sequences) = (Vec::new(), Vec::new(), Vec::new());
        let mut rows = Self { tokens, positions, sequences, outputs: Vec::new(), parts: Vec::new() };
        for (sequence, part) in parts.iter().enumerate() {
            let (start, base) = (rows.tokens.len(), part.session.tokens.len());
            rows.tokens.extend_from_slice(part.tokens);
            rows.positions.extend((base..base + part.tokens.len()).map(|position| position as u32));
            rows.sequences.extend(part.tokens.iter().map(|_| sequence as u32));
            let end = rows.tokens.len();
            rows.outputs.extend((start.saturating_add(part.first_output)..end).map(|row| row as u32));
            rows.parts.push(start..end);
        }
        rows
    }

    fn batch<'a>(&'a self, page_tables: &'a [&'a [u32]]) -> Batch<'a> {
        Batch {
            tokens: &self.tokens,
            positions: &self.positions,
            sequences: &self.sequences,
            page_tables,
            outputs: &self.outputs,
            values: &[],
        }
    }
}
