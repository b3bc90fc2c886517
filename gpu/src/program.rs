//! A loaded plan and a run of it.

use std::sync::Arc;

use unisonic_core::launch::{Checked, Lowered, MAX_RUNS, Shape, Wanted};
use unisonic_core::plan::{
    Batch, DeviceError, DeviceInfo, Limits, Picks, Plan, Program, RangeFlag, Rows, RunProfile,
};

use crate::cost::Costs;
use crate::machine::Machine;
use crate::pages::PageLayout;
use crate::recordings::{Recorded, Recordings};
use crate::shapes;
use crate::shared::SharedMachine;

/// A loaded plan on a machine.
pub(crate) struct GpuProgram<M: Machine> {
    plan: Arc<Plan>,
    info: DeviceInfo,
    limits: Limits,
    machine: SharedMachine<M>,
    lowered: Arc<dyn Lowered>,
    recordings: Recordings<M>,
    /// None if KV pages cannot be had from outside.
    pages: Option<PageLayout>,
    /// What the last run was given.
    inputs: Vec<u8>,
    /// How many output rows of the last batch have logits, in the recording that ran.
    outputs: usize,
    /// Whether tokens are picked on the device.
    picks: bool,
}

impl<M: Machine> GpuProgram<M> {
    /// A program whose images are loaded.
    pub(crate) fn new(
        plan: Arc<Plan>,
        limits: Limits,
        machine: SharedMachine<M>,
        lowered: Arc<dyn Lowered>,
        recordings: Recordings<M>,
        picks: bool,
    ) -> Self {
        let (info, pages) = (machine.info(), PageLayout::of(&plan, &*lowered));
        // What comes next is known where a row of logits is all that a row needs.
        let picks = picks && plan.input.is_none() && plan.output_width() == plan.vocab_len as usize;
        Self { plan, info, limits, machine, lowered, recordings, pages, inputs: vec![], outputs: 0, picks }
    }

    /// Runs a batch that has rows and has been checked; the recording that ran, and its shape.
    fn run_times(
        &mut self,
        batch: &Batch<'_>,
        runs: u32,
        wanted: Wanted,
    ) -> Result<(&Recorded<M>, Shape), DeviceError> {
        let memory = self.lowered.memory();
        let shape = shapes::of_batch(batch, runs, memory.largest);
        let recorded = self.recordings.of_shape(shape, wanted)?;
        let tiles = recorded.inputs.fill(batch, runs, memory, self.limits.kv_pages, &mut self.inputs);
        self.machine.call(|machine| machine.run_kept(&mut recorded.recording, &self.inputs, tiles, runs))?;
        Ok((recorded, shape))
    }
}

impl<M: Machine> Program for GpuProgram<M> {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<RangeFlag>, DeviceError> {
        batch.check(&self.plan, self.limits)?;
        // A run that fails leaves no logits.
        self.outputs = 0;
        if batch.rows() == 0 {
            return Ok(vec![]);
        }
        let (recorded, shape) = self.run_times(batch, 1, Wanted::Logits)?;
        let found = &M::results(&recorded.recording)[..recorded.found_len];
        let flags = range_flags(batch, &recorded.checked, shape.rows as usize, found);
        self.outputs = batch.outputs.len();
        Ok(flags)
    }

    fn pick(&mut self, batch: &Batch<'_>, runs: u32) -> Result<Option<Picks>, DeviceError> {
        if !self.picks || batch.outputs.is_empty() {
            return Ok(None);
        }
        let runs = runs.clamp(1, self.max_runs(batch.rows()));
        batch.check_runs(runs, &self.plan, self.limits)?;
        self.outputs = 0;
        let (recorded, shape) = self.run_times(batch, runs, Wanted::Tokens)?;
        if !recorded.picks {
            return Ok(None);
        }
        let (found, picked) = M::results(&recorded.recording).split_at(recorded.found_len);
        let stride = shape.outputs as usize;
        let (tokens, broken) = picked.split_at(MAX_RUNS as usize * stride);
        let of_run = |words: &[u32], run: u32| words[run as usize * stride..][..batch.outputs.len()].to_vec();
        let flags = match runs {
            1 => range_flags(batch, &recorded.checked, shape.rows as usize, found),
            // The flags are those of the last run; which step the first run broke, if any, a run of its own says.
            _ => vec![],
        };
        let whole =
            (0..runs).take_while(|&run| runs == 1 || of_run(broken, run).iter().all(|&flag| flag == 0));
        let tokens: Vec<u32> = whole.flat_map(|run| of_run(tokens, run)).collect();
        if tokens.is_empty() {
            return self.pick(batch, 1);
        }
        Ok(Some(Picks { tokens, flags }))
    }

    fn max_runs(&self, rows: usize) -> u32 {
        if self.picks { shapes::max_runs(rows) } else { 0 }
    }

    fn profile(&mut self, batch: &Batch<'_>, repetitions: u32) -> Result<RunProfile, DeviceError> {
        batch.check(&self.plan, self.limits)?;
        self.outputs = 0;
        if batch.rows() == 0 {
            return Ok(RunProfile::default());
        }
        let memory = self.lowered.memory();
        let shape = shapes::of_batch(batch, 1, memory.largest);
        let (launches, work) = self.recordings.prepare(shape, Wanted::Logits)?;
        let tiles = launches.inputs.fill(batch, 1, memory, self.limits.kv_pages, &mut self.inputs);
        let times = self.machine.call(|machine| machine.time(&work, &self.inputs, tiles, repetitions))?;
        self.machine.release(work);
        let times = times.ok_or_else(|| DeviceError::NoClock { device: self.info.id.clone() })?;
        let costs = Costs { plan: &self.plan, memory, batch, tiles };
        Ok(costs.profile(&launches, &times))
    }

    fn read_page(&mut self, page: u32, to: &mut Vec<u8>) -> Result<bool, DeviceError> {
        let Some(layout) = &self.pages else { return Ok(false) };
        let mut bytes = vec![0; layout.len_bytes().sum()];
        self.recordings.read_page(page, &mut bytes)?;
        layout.export(&bytes, to);
        Ok(true)
    }

    fn write_page(&mut self, page: u32, from: &[u8]) -> Result<bool, DeviceError> {
        let Some(layout) = &self.pages else { return Ok(false) };
        if from.len() != layout.len_bytes().sum::<usize>() {
            return Ok(false);
        }
        self.recordings.write_page(page, &layout.import(from))?;
        Ok(true)
    }

    fn logits(&self, output: usize) -> &[f32] {
        assert!(output < self.outputs, "output row {output}, but the last run had {}", self.outputs);
        let Some(recorded) = self.recordings.last() else { return &[] };
        let len = self.plan.output_width();
        bytemuck::cast_slice(&M::results(&recorded.recording)[recorded.found_len + output * len..][..len])
    }
}

/// The first step that found each row of the batch out of range; `found` is as [`unisonic_core::launch::Launches::found`].
fn range_flags(batch: &Batch<'_>, checked: &[Checked], shape_rows: usize, found: &[u32]) -> Vec<RangeFlag> {
    // Nearly always.
    if found.iter().all(|&word| word == 0) {
        return vec![];
    }
    let mut first = vec![None; batch.rows()];
    for (checked, found) in checked.iter().zip(found.chunks_exact(shape_rows)) {
        // Rows that only fill the shape up come after those of the batch.
        let mut flag = |row: usize, word: u32| {
            if word != 0 {
                first[row].get_or_insert(checked.step);
            }
        };
        match checked.rows {
            Rows::All => (0..batch.rows()).zip(found).for_each(|(row, &word)| flag(row, word)),
            Rows::Outputs => {
                batch.outputs.iter().zip(found).for_each(|(&row, &word)| flag(row as usize, word));
            }
        }
    }
    let flagged = (0..).zip(first);
    flagged.filter_map(|(row, step): (u32, Option<u32>)| Some(RangeFlag { row, step: step? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_the_first_step_and_the_row_of_the_batch() {
        let zeros = [0; 3];
        let batch = Batch {
            tokens: &zeros,
            positions: &zeros,
            sequences: &zeros,
            page_tables: &[],
            outputs: &[1, 2],
            values: &[],
        };
        let checked = [
            Checked { step: 4, rows: Rows::All },
            Checked { step: 6, rows: Rows::All },
            Checked { step: 9, rows: Rows::Outputs },
        ];
        let flags = |found: &[u32]| {
            let flags = range_flags(&batch, &checked, 4, found);
            flags.iter().map(|flag| (flag.row, flag.step)).collect::<Vec<_>>()
        };
        assert_eq!(flags(&[0; 12]), []);
        assert_eq!(flags(&[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 1, 1]), [], "rows that only fill up");
        assert_eq!(flags(&[0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 0]), [(0, 6), (1, 9), (2, 4)]);
    }
}
