//! A loaded plan on vectors and threads: the loop over steps.
//!
//! A step is cut into tasks that write disjoint rows or columns of its result; the pool runs them in any
//! order. Consecutive linear layers of the same activation (q, k and v; gate and up) are one step here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unisonic_core::numerics::embedding::host_row;
use unisonic_core::plan::{
    Batch, BufferId, DeviceError, DeviceInfo, Limits, Op, Plan, Program, Progress, RangeFlag, WeightId,
    WeightSource,
};

use super::buffers::Buffers;
use super::kv::KvCache;
use super::loading::{NativeWeight, load_weights};
use super::matrix::PackedMatrix;
use crate::float_state::DefaultFloatState;
use crate::isa::Kernels;
use crate::pool::Pool;
use crate::rope_rows::RopeRows;

/// What tasks share: everything but the pool.
pub(super) struct State {
    pub plan: Arc<Plan>,
    pub kernels: &'static Kernels,
    pub weights: Vec<NativeWeight>,
    pub buffers: Buffers,
    pub kv: Vec<KvCache>,
    pub rope_rows: RopeRows,
    /// First step that flagged each row of the batch; `u32::MAX` for none.
    flags: Vec<AtomicU32>,
}

/// A loaded plan.
pub(super) struct NativeProgram {
    state: State,
    info: DeviceInfo,
    limits: Limits,
    pool: Pool,
    /// Output rows of the last run.
    outputs: usize,
    /// Steps that run as one: a range of linear layers, or a single step.
    groups: Vec<std::ops::Range<usize>>,
}

impl NativeProgram {
    /// Loads a plan that [`super::unfit`] has nothing against.
    pub(super) fn load(
        plan: Arc<Plan>,
        info: DeviceInfo,
        kernels: &'static Kernels,
        threads: usize,
        source: &dyn WeightSource,
        limits: Limits,
        progress: &Progress<'_>,
    ) -> Result<Self, DeviceError> {
        // Weights of float matrices are rounded here.
        let _state = DefaultFloatState::enter();
        let mut pool = Pool::new(threads);
        let weights = load_weights(&plan, source, &mut pool, progress)?;
        let kv = plan.kv_layers.iter().map(|&layer| KvCache::allocate(layer, limits));
        let state = State {
            kernels,
            weights,
            buffers: Buffers::allocate(&plan.buffers, limits)?,
            kv: kv.collect::<Result<_, _>>()?,
            rope_rows: RopeRows::allocate(&plan.rope_tables, limits)?,
            flags: (0..limits.max_rows).map(|_| AtomicU32::new(u32::MAX)).collect(),
            plan: Arc::clone(&plan),
        };
        let info = DeviceInfo { threads: u32::try_from(pool.threads()).ok(), ..info };
        Ok(Self { state, info, limits, pool, outputs: 0, groups: group_linears(&plan) })
    }
}

/// Ranges of steps that run as one: linear layers of the same activation that do not touch each other's
/// results.
fn group_linears(plan: &Plan) -> Vec<std::ops::Range<usize>> {
    let mut groups = Vec::new();
    let mut start = 0;
    while start < plan.steps.len() {
        let mut end = start + 1;
        while end < plan.steps.len() && (start..end).all(|member| may_run_beside(plan, member, end)) {
            end += 1;
        }
        groups.push(start..end);
        start = end;
    }
    groups
}

/// Whether two steps are linear layers of the same activation, neither of which writes what the other reads
/// or writes.
fn may_run_beside(plan: &Plan, a: usize, b: usize) -> bool {
    let linear = |step: usize| match plan.steps[step].op {
        Op::Linear { x, add, out, .. } => Some((x, add, out)),
        _ => None,
    };
    let (Some((x_a, add_a, out_a)), Some((x_b, add_b, out_b))) = (linear(a), linear(b)) else { return false };
    x_a == x_b && out_a != out_b && add_a != Some(out_b) && add_b != Some(out_a)
}

impl State {
    /// The vector of a norm or bias.
    pub(super) fn vector(&self, id: WeightId) -> &[f32] {
        match &self.weights[id.index()] {
            NativeWeight::Vector(values) => values,
            NativeWeight::Matrix(_) => panic!("the plan reads weight {} as a vector", id.0),
        }
    }

    /// A matrix.
    pub(super) fn matrix(&self, id: WeightId) -> &PackedMatrix {
        match &self.weights[id.index()] {
            NativeWeight::Matrix(matrix) => matrix,
            NativeWeight::Vector(_) => panic!("the plan multiplies with weight {}, which is a vector", id.0),
        }
    }

    /// Notes that a row of the batch left the range in a step.
    pub(super) fn flag(&self, row: usize, step: usize) {
        self.flags[row].fetch_min(step as u32, Ordering::Relaxed);
    }

    /// Copies the rows that the host gives, if the plan has such.
    fn take_input(&self, batch: &Batch<'_>) {
        let Some(input) = self.plan.input else { return };
        for (row, x) in batch.values.chunks_exact(self.plan.row_width(input)).enumerate() {
            // SAFETY: no step runs: running takes the program exclusively.
            host_row(x, unsafe { self.buffers.row_mut(input, row) });
        }
    }

    /// The f32 values of an output row.
    fn logits(&self, logits: BufferId, output: usize) -> &[f32] {
        // SAFETY: no step runs: running takes the program exclusively.
        unsafe { self.buffers.row(logits, output) }
    }
}

impl Program for NativeProgram {
    fn plan(&self) -> &Plan {
        &self.state.plan
    }

    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<RangeFlag>, DeviceError> {
        batch.check(&self.state.plan, self.limits)?;
        let _state = DefaultFloatState::enter();
        self.outputs = batch.outputs.len();
        self.state.rope_rows.fill(&self.state.plan.rope_tables, batch.positions);
        let rows = batch.rows();
        self.state.flags[..rows].iter_mut().for_each(|flag| *flag.get_mut() = u32::MAX);
        self.state.take_input(batch);
        for group in &self.groups {
            self.state.run_group(group.clone(), batch, &mut self.pool);
        }
        let flagged = self.state.flags[..rows].iter().enumerate();
        let flagged =
            flagged.map(|(row, step)| RangeFlag { row: row as u32, step: step.load(Ordering::Relaxed) });
        Ok(flagged.filter(|flag| flag.step != u32::MAX).collect())
    }

    fn logits(&self, output: usize) -> &[f32] {
        assert!(output < self.outputs, "output row {output}, but the last run had {}", self.outputs);
        self.state.logits(self.state.plan.logits, output)
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<bool, DeviceError> {
        self.state.kv.iter_mut().for_each(|layer| layer.copy_page(from, to));
        Ok(true)
    }

    fn read_page(&mut self, page: u32, to: &mut Vec<u8>) -> Result<bool, DeviceError> {
        self.state.kv.iter_mut().for_each(|layer| layer.read_page(page, to));
        Ok(true)
    }

    fn write_page(&mut self, page: u32, from: &[u8]) -> Result<bool, DeviceError> {
        let layers = &self.state.plan.kv_layers;
        if from.len() != layers.iter().map(|layer| layer.page_len_bytes()).sum::<usize>() {
            return Ok(false);
        }
        let mut rest = from;
        for (cache, layer) in self.state.kv.iter_mut().zip(layers) {
            let (own, others) = rest.split_at(layer.page_len_bytes());
            cache.write_page(page, own);
            rest = others;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisonic_core::plan::{Encoding, FloatSource, Step, Weight};

    fn linear(x: u32, add: Option<u32>, out: u32) -> Step {
        let (x, add, out) = (BufferId(x), add.map(BufferId), BufferId(out));
        let op = Op::Linear { x, weight: WeightId(0), bias: None, add, out, head: false };
        Step { label: "linear".into(), op }
    }

    fn groups(steps: Vec<Step>) -> Vec<std::ops::Range<usize>> {
        let encoding = Encoding::W16(FloatSource::F32);
        group_linears(&Plan {
            architecture: "test".into(),
            vocab_len: 1,
            context_len: 1,
            weights: vec![Weight { tensor: "w".into(), encoding, rows: 1, cols: 1, part: None }],
            buffers: vec![],
            rope_tables: vec![],
            kv_layers: vec![],
            input: None,
            steps,
            logits: BufferId(0),
        })
    }

    #[test]
    fn linear_layers_of_one_activation_run_as_one() {
        assert_eq!(groups(vec![linear(0, None, 1), linear(0, None, 2), linear(1, None, 3)]), [0..2, 2..3]);
    }

    #[test]
    fn layers_that_touch_each_others_results_do_not() {
        assert_eq!(
            groups(vec![linear(0, None, 1), linear(0, Some(1), 2)]),
            [0..1, 1..2],
            "reads the first's result"
        );
        assert_eq!(
            groups(vec![linear(0, Some(2), 1), linear(0, None, 2)]),
            [0..1, 1..2],
            "overwrites what is read"
        );
        assert_eq!(groups(vec![linear(0, None, 1), linear(0, None, 1)]), [0..1, 1..2], "overwrites a result");
    }
}
