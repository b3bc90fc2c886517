//! The measuring loop.
//!
//! Rows are measured where they are used: the whole step of a model runs, and each launch is timed by the
//! device's clock, so that weights come from memory and caches hold what they hold otherwise. A round gives
//! every kernel its next row; there are as many rounds as the kernel with the most rows has. At the end the
//! step with the rows that were found is measured against the step of the rules, in turns and without stamps
//! between the launches, and where it is slower the rules stay: launches may be joined or overlap, of which
//! one alone does not tell.

use std::time::Duration;

use unisonic_core::launch::Hardware;
use unisonic_core::plan::DeviceError;
use unisonic_planner::tune::{Table, Tuning};

use super::kernels::{TunedKernel, median, unknown};
use super::table::TuningTable;
use crate::{Clock, Engine, EngineError, Session};

/// The step with the rows that were found may take so much longer, in thousandths: more is no noise.
const LOSS_PER_MILLE: u64 = 10;
/// Turns of the comparison of whole steps.
const TURNS: usize = 3;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// No round begins later than this. The first step is measured anyhow, with two rows.
    pub budget: Duration,
    /// Times that a round runs the step.
    pub repetitions: u32,
    /// Rows of the steps, those first that matter most; more than a chunk has are left out.
    pub step_rows: Vec<u32>,
}

impl Default for TuneOptions {
    /// Generating, then a chunk of a prompt, then what guesses and many requests take.
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(30),
            repetitions: 5,
            step_rows: vec![1, 1024, 64, 16, 8, 4, 2, 32],
        }
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuneProgress {
    /// Rows of the step.
    pub step_rows: u32,
    /// Its kernels.
    pub kernels: usize,
    /// Rounds that are done.
    pub done: usize,
    /// Rounds in all.
    pub total: usize,
}

/// What a step takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunedStep {
    /// Its rows.
    pub rows: u32,
    /// Kernels that were measured.
    pub kernels: usize,
    /// Those of them that got another row than the rules'.
    pub changed: usize,
    /// Nanoseconds by the rules.
    pub rules_ns: u64,
    /// Nanoseconds with the rows that were found.
    pub tuned_ns: u64,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TuneReport {
    /// Kernels that were measured.
    pub measured: usize,
    /// Kernels that the table knew before: nothing was measured of them.
    pub known: usize,
    /// Kernels of which rows are left that were not tried when the budget had run out.
    pub unfinished: usize,
    /// Steps of which nothing could be measured within the budget.
    pub left_out: Vec<u32>,
    /// Steps that were measured.
    pub steps: Vec<TunedStep>,
}

/// Measures what `table` does not know, within a budget, and adds it. The engine was loaded on a device with
/// the hardware, whose lowering has the handle; it has the table when this returns.
///
/// # Errors
/// [`unisonic_core::plan::DeviceError::NoClock`] where launches cannot be timed, and those of a run.
pub fn tune(
    engine: &mut Engine,
    (tuning, hardware): (&Tuning, &Hardware),
    table: &mut TuningTable,
    options: &TuneOptions,
    clock: &Clock,
    progress: &mut dyn FnMut(TuneProgress),
) -> Result<TuneReport, EngineError> {
    let mut tuner = Tuner { engine, tuning, hardware, options, clock, started: clock(), rounds: 0 };
    let mut report = TuneReport::default();
    let most = tuner.engine.chunk_rows().min(tuner.engine.context_len());
    let mut sizes: Vec<u32> = options.step_rows.iter().map(|&rows| rows.min(most)).collect();
    let mut seen = std::collections::HashSet::new();
    sizes.retain(|&rows| rows > 0 && seen.insert(rows));
    let result = sizes.into_iter().try_for_each(|rows| tuner.step(rows, table, &mut report, progress));
    tuning.watch(false);
    tuning.set_table(table.rows());
    result.map(|()| report)
}

struct Tuner<'a> {
    engine: &'a mut Engine,
    tuning: &'a Tuning,
    hardware: &'a Hardware,
    options: &'a TuneOptions,
    clock: &'a Clock,
    started: Duration,
    /// Rounds of all steps so far.
    rounds: usize,
}

impl Tuner<'_> {
    /// Measures a step of so many rows.
    fn step(
        &mut self,
        rows: u32,
        table: &mut TuningTable,
        report: &mut TuneReport,
        progress: &mut dyn FnMut(TuneProgress),
    ) -> Result<(), EngineError> {
        let mut step = Step::new(self.engine, rows);
        let before = table.rows();
        self.tuning.set_table(before.clone());
        self.tuning.watch(true);
        step.run(self.engine, 0)?;
        let (mut kernels, known) = unknown(&self.tuning.watched(), self.hardware, table);
        report.known += known;
        if kernels.is_empty() {
            return Ok(());
        }
        let total = kernels.iter().map(TunedKernel::rows).max().unwrap_or(0);
        let mut done = 0;
        let tell = |done, kernels: &[TunedKernel]| TuneProgress {
            step_rows: rows,
            kernels: kernels.len(),
            done,
            total,
        };
        progress(tell(0, &kernels));
        while done < total && self.may_go_on() {
            self.round(&mut step, &before, &mut kernels, done)?;
            done += 1;
            progress(tell(done, &kernels));
        }
        progress(tell(total, &kernels));
        if kernels.iter().all(|kernel| kernel.measured().is_none()) {
            report.left_out.push(rows);
            return Ok(());
        }
        let step = self.compare(&mut step, &before, &kernels)?;
        let is_slower =
            step.tuned_ns.saturating_mul(1000) > step.rules_ns.saturating_mul(1000 + LOSS_PER_MILLE);
        for kernel in &kernels {
            let measured = if is_slower { kernel.kept() } else { kernel.measured() };
            let Some(measured) = measured else { continue };
            report.unfinished += usize::from(!measured.is_complete());
            table.kernels.insert(kernel.site.clone(), measured);
        }
        report.measured += step.kernels;
        report.steps.push(match is_slower {
            true => TunedStep { changed: 0, tuned_ns: step.rules_ns, ..step },
            false => step,
        });
        Ok(())
    }

    /// Whether there is time for another round: at least two are made, so that there is something to choose.
    fn may_go_on(&self) -> bool {
        let is_asked = self.options.budget > Duration::ZERO;
        is_asked && (self.rounds < 2 || (self.clock)().saturating_sub(self.started) < self.options.budget)
    }

    fn round(
        &mut self,
        step: &mut Step,
        before: &Table,
        kernels: &mut [TunedKernel],
        round: usize,
    ) -> Result<(), EngineError> {
        self.rounds += 1;
        let mut table = before.clone();
        kernels.iter().for_each(|kernel| kernel.choose(round, &mut table));
        self.tuning.set_table(table);
        self.tuning.watch(true);
        let run = match step.run(self.engine, self.options.repetitions) {
            // A driver that does not take a kernel: which one, it does not say. The rules' it has to take.
            Err(EngineError::Device(DeviceError::Machine { lost: false, message, .. })) if round > 0 => {
                tracing::info!(
                    "round {round} of a step of {} rows is left out: {message}",
                    step.tokens.len()
                );
                kernels.iter_mut().for_each(|kernel| kernel.refuse(round));
                return Ok(());
            }
            run => run?,
        };
        let templates = self.tuning.watched();
        kernels.iter_mut().for_each(|kernel| kernel.record(round, &templates, &run));
        Ok(())
    }

    /// Whole steps by the rules and with what was found, in turns.
    fn compare(
        &mut self,
        step: &mut Step,
        before: &Table,
        kernels: &[TunedKernel],
    ) -> Result<TunedStep, EngineError> {
        let mut tables = [before.clone(), before.clone()];
        kernels.iter().for_each(|kernel| {
            tables[0].remove(&kernel.site);
        });
        let found: Vec<_> =
            kernels.iter().filter_map(|k| Some((k.site.clone(), k.measured()?.row))).collect();
        let changed = found.iter().filter(|(_, row)| row != "rules").count();
        let measured = found.len();
        tables[1].extend(found);
        self.tuning.watch(false);
        let mut ns = [vec![], vec![]];
        for _ in 0..if changed > 0 { TURNS } else { 1 } {
            for (table, ns) in tables.iter().zip(&mut ns) {
                self.tuning.set_table(table.clone());
                ns.extend(step.run(self.engine, self.options.repetitions)?.whole_ns);
            }
        }
        let [rules_ns, tuned_ns] = ns.map(|ns| median(&ns));
        // What differs by nothing is as fast.
        let tuned_ns = if changed > 0 { tuned_ns } else { rules_ns };
        Ok(TunedStep { rows: step.tokens.len() as u32, kernels: measured, changed, rules_ns, tuned_ns })
    }
}

/// A step that is run again and again: tokens at the beginning of a sequence.
struct Step {
    session: Session,
    tokens: Vec<u32>,
    first_output: usize,
}

impl Step {
    /// Of few rows all have logits, as where guesses are checked; of a longer piece of a prompt the last has.
    fn new(engine: &Engine, rows: u32) -> Self {
        let vocab_len = engine.plan().vocab_len.max(1);
        let tokens: Vec<u32> = (0..rows).map(|position| position.wrapping_mul(7919) % vocab_len).collect();
        let all = rows <= engine.max_outputs();
        Self { session: engine.session(), first_output: if all { 0 } else { tokens.len() - 1 }, tokens }
    }

    fn run(
        &mut self,
        engine: &mut Engine,
        repetitions: u32,
    ) -> Result<unisonic_core::plan::RunProfile, EngineError> {
        engine.profile(&mut self.session, &self.tokens, self.first_output, repetitions)
    }
}
