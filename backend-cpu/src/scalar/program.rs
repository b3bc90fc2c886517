//! A loaded plan and the loop over its steps.

use std::sync::Arc;

use unisonic_core::numerics::embedding::host_row;
use unisonic_core::plan::{
    Batch, BufferId, DeviceError, DeviceInfo, Limits, LoadProgress, LoadedWeight, Plan, Program, Progress,
    RangeFlag, Weight, WeightSource, load_weight,
};

use super::ScalarDevice;
use super::buffers::Buffers;
use super::kv::KvCache;
use crate::float_state::DefaultFloatState;
use crate::rope_rows::RopeRows;

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
    pub rope_rows: RopeRows,
    /// Room for one row of a result.
    pub row: Vec<f32>,
    /// First step that flagged each row of the running batch.
    flags: Vec<Option<u32>>,
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
        let total_bytes = plan.weights.iter().map(Weight::len_bytes).sum();
        let mut weights = Vec::with_capacity(plan.weights.len());
        let mut loaded_bytes = 0;
        progress(LoadProgress { loaded_bytes, total_bytes });
        for weight in &plan.weights {
            weights.push(load_weight(source, weight)?);
            loaded_bytes += weight.len_bytes();
            progress(LoadProgress { loaded_bytes, total_bytes });
        }
        let kv = plan.kv_layers.iter().map(|&layer| KvCache::allocate(layer, device.arithmetic, limits));
        Ok(Self {
            info: device.info.clone(),
            host_float_state: device.host_float_state,
            outputs: 0,
            weights,
            buffers: Buffers::allocate(&plan.buffers, limits)?,
            kv: kv.collect::<Result<_, _>>()?,
            rope_rows: RopeRows::allocate(&plan.rope_tables, limits)?,
            row: Vec::new(),
            flags: vec![None; limits.max_rows as usize],
            limits,
            plan,
        })
    }
}

impl ScalarProgram {
    /// Copies the rows that the host gives.
    fn take_input(&mut self, input: BufferId, batch: &Batch<'_>) {
        let width = self.plan.row_width(input);
        let mut data = self.buffers.lend(input);
        for (row, x) in batch.values.chunks_exact(width).enumerate() {
            host_row(x, data.f32_row_mut(row));
        }
        self.buffers.give_back(input, data);
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
        batch.check(&self.plan, self.limits)?;
        let _state = (!self.host_float_state).then(DefaultFloatState::enter);
        self.outputs = batch.outputs.len();
        self.rope_rows.fill(&self.plan.rope_tables, batch.positions);
        self.flags[..batch.rows()].fill(None);
        let plan = Arc::clone(&self.plan);
        if let Some(input) = plan.input {
            self.take_input(input, batch);
        }
        for (index, step) in plan.steps.iter().enumerate() {
            for row in self.step(&step.op, batch) {
                let row = plan.source_row(&step.op, batch, row);
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

    fn copy_page(&mut self, from: u32, to: u32) -> Result<bool, DeviceError> {
        self.kv.iter_mut().for_each(|layer| layer.copy_page(from, to));
        Ok(true)
    }

    fn read_page(&mut self, page: u32, to: &mut Vec<u8>) -> Result<bool, DeviceError> {
        let len = to.len();
        let read = self.kv.iter().all(|layer| layer.read_page(page, to));
        if !read {
            to.truncate(len);
        }
        Ok(read)
    }

    fn write_page(&mut self, page: u32, from: &[u8]) -> Result<bool, DeviceError> {
        let layers = &self.plan.kv_layers;
        if from.len() != layers.iter().map(|layer| layer.page_len_bytes()).sum::<usize>() {
            return Ok(false);
        }
        let mut rest = from;
        let written = self.kv.iter_mut().zip(layers).all(|(cache, layer)| {
            let (own, others) = rest.split_at(layer.page_len_bytes());
            rest = others;
            cache.write_page(page, own)
        });
        Ok(written)
    }
}
