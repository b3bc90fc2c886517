//! A loaded plan and the loop over its steps.

use std::sync::Arc;

use unisonic_core::numerics::rope;
use unisonic_core::plan::{
    Batch, DeviceError, DeviceInfo, Limits, LoadedWeight, Plan, Program, Progress, RangeFlag, Rows, Weight,
    WeightSource, load_weight,
};

use super::ScalarDevice;
use super::buffers::Buffers;
use super::kv::KvCache;
use crate::float_state::DefaultFloatState;
use crate::memory::allocate;

/// Everything that a plan needs to run.
pub(super) struct ScalarProgram {
    info: DeviceInfo,
    host_float_state: bool,
    /// Output rows of the last run.
    outputs: usize,
    pub plan: Arc<Plan>,
    pub limits: Limits,
    pub weights: Vec<LoadedWeight>,
    pub buffers: Buffers,
    pub kv: Vec<KvCache>,
    /// Cosines and sines at the rows' positions, one a RoPE table.
    pub rope_rows: Vec<RopeRows>,
    /// Room for one row of a result.
    pub row: Vec<f32>,
    /// First step that flagged each row of the running batch.
    flags: Vec<Option<u32>>,
}

/// One RoPE table at the positions of the batch.
pub(super) struct RopeRows {
    pairs: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeRows {
    pub(super) fn row(&self, row: usize) -> (&[f32], &[f32]) {
        let range = row * self.pairs..(row + 1) * self.pairs;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

impl ScalarProgram {
    pub(super) fn load(
        device: &ScalarDevice,
        plan: Arc<Plan>,
        source: &dyn WeightSource,
        limits: Limits,
        progress: &Progress<'_>,
    ) -> Result<Self, DeviceError> {
        // Weights of float matrices are rounded here.
        let _state = DefaultFloatState::enter();
        let total = plan.weights.iter().map(Weight::len_bytes).sum();
        let mut weights = Vec::with_capacity(plan.weights.len());
        let mut read = 0;
        progress(read, total);
        for weight in &plan.weights {
            weights.push(load_weight(source, weight)?);
            read += weight.len_bytes();
            progress(read, total);
        }
        let kv = plan.kv_layers.iter().map(|&layer| KvCache::allocate(layer, device.arithmetic, limits));
        let rope_rows = plan.rope_tables.iter().map(|table| {
            let pairs = table.inverse_frequencies.len();
            let values = || allocate("RoPE rows", limits.max_rows as usize, pairs);
            Ok(RopeRows { pairs, cos: values()?, sin: values()? })
        });
        Ok(Self {
            info: device.info.clone(),
            host_float_state: device.host_float_state,
            outputs: 0,
            weights,
            buffers: Buffers::allocate(&plan.buffers, limits)?,
            kv: kv.collect::<Result<_, _>>()?,
            rope_rows: rope_rows.collect::<Result<_, DeviceError>>()?,
            row: Vec::new(),
            flags: vec![None; limits.max_rows as usize],
            limits,
            plan,
        })
    }

    fn fill_rope_rows(&mut self, positions: &[u32]) {
        for (table, rows) in self.plan.rope_tables.iter().zip(&mut self.rope_rows) {
            for (row, &position) in positions.iter().enumerate() {
                let range = row * rows.pairs..(row + 1) * rows.pairs;
                rope::table_row(
                    &table.inverse_frequencies,
                    table.scale,
                    position,
                    &mut rows.cos[range.clone()],
                    &mut rows.sin[range],
                );
            }
        }
    }
}

impl Program for ScalarProgram {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<RangeFlag>, DeviceError> {
        batch.check(self.plan.vocab_len, self.limits)?;
        let _state = (!self.host_float_state).then(DefaultFloatState::enter);
        self.outputs = batch.outputs.len();
        self.fill_rope_rows(batch.positions);
        self.flags[..batch.rows()].fill(None);
        let plan = Arc::clone(&self.plan);
        for (index, step) in plan.steps.iter().enumerate() {
            let rows = plan.rows_of(&step.op);
            for row in self.step(&step.op, batch) {
                let row = match rows {
                    Rows::All => row,
                    Rows::Outputs => batch.outputs[row] as usize,
                };
                self.flags[row].get_or_insert(index as u32);
            }
        }
        let flagged = self.flags[..batch.rows()].iter().enumerate();
        Ok(flagged.filter_map(|(row, &step)| Some(RangeFlag { row: row as u32, step: step? })).collect())
    }

    fn logits(&self, output: usize) -> &[f32] {
        assert!(output < self.outputs, "output row {output}, but the last run had {}", self.outputs);
        self.buffers.f32(self.plan.logits).row(output)
    }
}
