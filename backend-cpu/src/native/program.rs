//! A loaded plan on vectors and threads: the loop over steps.
//!
//! A step is cut into tasks that write disjoint rows or columns of its result; the pool runs them in any order.
//! Consecutive linear layers of the same activation (q, k and v; gate and up) are one step here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unisonic_core::numerics::rope;
use unisonic_core::plan::{
    Batch, BufferId, DeviceError, Limits, LoadedWeight, Op, Plan, Program, RangeFlag, Rows, WeightId,
    WeightSource, load_weight,
};

use super::buffers::Buffers;
use super::kv::KvCache;
use super::matrix::PackedMatrix;
use crate::float_state::DefaultFloatState;
use crate::isa::Kernels;
use crate::pool::Pool;

/// A weight as kernels read it.
pub(super) enum NativeWeight {
    Matrix(PackedMatrix),
    Vector(Vec<f32>),
}

/// What tasks share: everything but the pool.
pub(super) struct State {
    pub plan: Arc<Plan>,
    pub kernels: &'static Kernels,
    pub weights: Vec<NativeWeight>,
    pub buffers: Buffers,
    pub kv: Vec<KvCache>,
    pub rope_rows: Vec<RopeRows>,
    /// First step that flagged each row of the batch; `u32::MAX` for none.
    flags: Vec<AtomicU32>,
}

/// One RoPE table at the positions of the batch.
pub(super) struct RopeRows {
    pairs: usize,
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

impl RopeRows {
    pub(super) fn row(&self, row: usize) -> (&[f32], &[f32]) {
        let range = row * self.pairs..(row + 1) * self.pairs;
        (&self.cosines[range.clone()], &self.sines[range])
    }
}

/// A loaded plan.
pub(super) struct NativeProgram {
    state: State,
    limits: Limits,
    pool: Pool,
    /// Steps that run as one: a range of linear layers, or a single step.
    groups: Vec<std::ops::Range<usize>>,
}

impl NativeProgram {
    /// Loads a plan that [`super::supports`] said yes to.
    pub(super) fn load(
        plan: Arc<Plan>,
        kernels: &'static Kernels,
        threads: usize,
        source: &dyn WeightSource,
        limits: Limits,
        progress: &dyn Fn(usize, usize),
    ) -> Result<Self, DeviceError> {
        let total = plan.weights.len();
        progress(0, total);
        let mut weights = Vec::with_capacity(total);
        for weight in &plan.weights {
            let loaded = load_weight(source, weight)?;
            weights.push(match (PackedMatrix::pack(weight, &loaded)?, loaded) {
                (Some(matrix), _) => NativeWeight::Matrix(matrix),
                (None, LoadedWeight::F32(values)) => NativeWeight::Vector(values),
                (None, _) => unreachable!("`supports` admits only matrices that can be packed"),
            });
            progress(weights.len(), total);
        }
        let rope_rows = plan.rope_tables.iter().map(|table| {
            let pairs = table.inverse_frequencies.len();
            let values = || vec![0.0; pairs * limits.max_rows as usize];
            RopeRows { pairs, cosines: values(), sines: values() }
        });
        let kv = plan.kv_layers.iter().map(|&layer| KvCache::allocate(layer, limits));
        let state = State {
            kernels,
            weights,
            buffers: Buffers::allocate(&plan.buffers, limits)?,
            kv: kv.collect::<Result<_, _>>()?,
            rope_rows: rope_rows.collect(),
            flags: (0..limits.max_rows).map(|_| AtomicU32::new(u32::MAX)).collect(),
            plan: Arc::clone(&plan),
        };
        Ok(Self { state, limits, pool: Pool::new(threads), groups: group_linears(&plan) })
    }
}

/// Ranges of steps that run as one: linear layers of the same activation that do not feed each other.
fn group_linears(plan: &Plan) -> Vec<std::ops::Range<usize>> {
    let activation = |step: usize| match plan.steps[step].op {
        Op::Linear { x, .. } => Some(x),
        _ => None,
    };
    let mut groups = Vec::new();
    let mut start = 0;
    while start < plan.steps.len() {
        let mut end = start + 1;
        while end < plan.steps.len() && activation(start).is_some() && activation(end) == activation(start) {
            end += 1;
        }
        groups.push(start..end);
        start = end;
    }
    groups
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

    /// Row of the batch behind a row of a step's result.
    pub(super) fn source_row(&self, op: &Op, batch: &Batch<'_>, row: usize) -> usize {
        match self.plan.rows_of(op) {
            Rows::All => row,
            Rows::Outputs => batch.outputs[row] as usize,
        }
    }

    /// Rows of a step's result.
    pub(super) fn rows(&self, op: &Op, batch: &Batch<'_>) -> usize {
        match self.plan.rows_of(op) {
            Rows::All => batch.rows(),
            Rows::Outputs => batch.outputs.len(),
        }
    }

    fn fill_rope_rows(&mut self, positions: &[u32]) {
        for (table, rows) in self.plan.rope_tables.iter().zip(&mut self.rope_rows) {
            for (row, &position) in positions.iter().enumerate() {
                let range = row * rows.pairs..(row + 1) * rows.pairs;
                let (cosines, sines) = (&mut rows.cosines[range.clone()], &mut rows.sines[range]);
                rope::table_row(&table.inverse_frequencies, table.scale, position, cosines, sines);
            }
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

    fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<RangeFlag>, DeviceError> {
        batch.check(self.state.plan.vocab_len, self.limits)?;
        let _state = DefaultFloatState::enter();
        self.state.fill_rope_rows(batch.positions);
        let rows = batch.rows();
        self.state.flags[..rows].iter_mut().for_each(|flag| *flag.get_mut() = u32::MAX);
        for group in &self.groups {
            self.state.run_group(group.clone(), batch, &mut self.pool);
        }
        let flagged = self.state.flags[..rows].iter().enumerate();
        let flagged =
            flagged.map(|(row, step)| RangeFlag { row: row as u32, step: step.load(Ordering::Relaxed) });
        Ok(flagged.filter(|flag| flag.step != u32::MAX).collect())
    }

    fn logits(&self, output: usize) -> &[f32] {
        self.state.logits(self.state.plan.logits, output)
    }
}
