//! Each step of a plan as tasks on vectors; those over heads are in [`super::head_steps`].

use std::ops::Range;

use unisonic_core::numerics::activation::scaled;
use unisonic_core::numerics::elementary::sigmoid;
use unisonic_core::numerics::range::ACTIVATION_LIMIT;
use unisonic_core::plan::{Batch, BufferId, Op, WeightId};

use super::program::State;
use crate::pool::Pool;
use crate::simd::LANES;

/// Panels of a task of a linear layer; small enough that threads end together.
const TASK_PANELS: usize = 4;

/// Where a step puts its rows.
#[derive(Clone, Copy)]
struct Results {
    out: Option<BufferId>,
    quantized: Option<BufferId>,
    width: usize,
}

/// The operands of a linear layer.
#[derive(Clone, Copy)]
struct Linear {
    step: usize,
    x: BufferId,
    weight: WeightId,
    bias: Option<WeightId>,
    add: Option<BufferId>,
    out: BufferId,
    head: bool,
}

impl State {
    /// Runs steps `group`: one, or several linear layers.
    pub(super) fn run_group(&self, group: Range<usize>, batch: &Batch<'_>, pool: &mut Pool) {
        let step = group.start;
        let op = &self.plan.steps[step].op;
        let rows = self.plan.row_count(op, batch);
        if rows == 0 {
            return;
        }
        let results = |out, quantized| Results { out, quantized, width: self.width(op) };
        match *op {
            Op::Linear { .. } => self.linears(group, rows, batch, pool),
            Op::Embed { table, scale, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    self.matrix(table).embed(batch.tokens[row] as usize, y);
                    if let Some(scale) = scale {
                        y.iter_mut().for_each(|y| *y *= scale);
                    }
                    true
                })
            }
            Op::EmbedPositions { table, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    let table = self.matrix(table);
                    let position = batch.positions[self.plan.source_row(op, batch, row)] as usize;
                    table.embed(position.min(table.rows - 1), y);
                    true
                })
            }
            Op::LayerNorm { x, weight, bias, eps, out, quantized } => {
                self.each_row(step, rows, results(out, quantized), batch, pool, &|row, y| {
                    let (weight, bias) = (self.vector(weight), self.vector(bias));
                    // SAFETY: the step does not write x; `Plan::check` has compared the widths, `unfit` their vectors.
                    unsafe { (self.kernels.layer_norm)(self.buffers.row(x, row), weight, bias, eps, y) }
                })
            }
            Op::RmsNorm { x, weight, eps, add, out, quantized } => {
                self.each_row(step, rows, results(out, quantized), batch, pool, &|row, y| {
                    // SAFETY: the step writes neither x nor add; `Plan::check` has compared the widths, `unfit` their vectors.
                    unsafe {
                        let add = add.map(|add| self.buffers.row(add, row));
                        (self.kernels.rms_norm)(self.buffers.row(x, row), self.vector(weight), eps, add, y)
                    }
                })
            }
            Op::Quantize { x, out } => {
                self.each_row(step, rows, results(None, Some(out)), batch, pool, &|row, y| {
                    // SAFETY: the step does not write x.
                    y.copy_from_slice(unsafe { self.buffers.row(x, row) });
                    true
                })
            }
            Op::HeadNorm { x, weight, head_len, eps, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    let head_len = head_len as usize;
                    // SAFETY: the step does not write x.
                    let heads = unsafe { self.buffers.row(x, row) }.chunks_exact(head_len);
                    let heads = heads.zip(y.chunks_exact_mut(head_len));
                    heads.fold(true, |in_range, (head, y)| self.normed_head(head, weight, eps, y) & in_range)
                })
            }
            Op::Rope { x, rope, head_len, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    let source = self.plan.source_row(op, batch, row);
                    // SAFETY: the step does not write x.
                    y.copy_from_slice(unsafe { self.buffers.row(x, row) });
                    y.chunks_exact_mut(head_len as usize).for_each(|head| self.rotate(rope, source, head));
                    true
                })
            }
            Op::Gate { activation, gate, up, part, out, quantized } => {
                self.each_row(step, rows, results(out, quantized), batch, pool, &|row, y| {
                    // SAFETY: the step writes neither operand.
                    unsafe {
                        let up = &self.buffers.row(up, row)[part as usize * y.len()..][..y.len()];
                        (self.kernels.gate)(activation, self.buffers.row(gate, row), up, y);
                    }
                    true
                })
            }
            Op::Gelu { x, out, quantized } => {
                self.each_row(step, rows, results(out, quantized), batch, pool, &|row, y| {
                    // SAFETY: the step does not write x.
                    unsafe { (self.kernels.gelus)(self.buffers.row(x, row), y) };
                    true
                })
            }
            Op::Route { .. } => self.route(op, rows, pool),
            Op::ExpertLinear { .. } => self.expert_linear(op, rows, pool),
            Op::SumExperts { x, routes, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    // SAFETY: the step writes neither operand.
                    unsafe { self.sum_experts(x, routes, row, y) };
                    true
                })
            }
            Op::AddShared { x, gate, a, b, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    // SAFETY: the step writes no operand; `Plan::check` has compared the widths, `unfit` their vectors.
                    unsafe {
                        let gate = (self.kernels.router_dot)(self.buffers.row(x, row), self.vector(gate));
                        y.copy_from_slice(self.buffers.row(a, row));
                        (self.kernels.add_expert)(y, sigmoid(gate), self.buffers.row(b, row));
                    }
                    true
                })
            }
            Op::Add { a, b, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    // SAFETY: the step writes neither operand.
                    let (a, b) = unsafe { (self.buffers.row(a, row), self.buffers.row(b, row)) };
                    y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = a + b);
                    true
                })
            }
            Op::Scale { x, scale, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    let s = self.vector(scale)[0];
                    // SAFETY: the step does not write x.
                    let x = unsafe { self.buffers.row(x, row) };
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = scaled(x, s));
                    true
                })
            }
            Op::SelectOutputs { x, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    let slots = self.plan.slots_of(op) as usize;
                    let source = self.plan.source_row(op, batch, row) * slots + row % slots;
                    // SAFETY: the step does not write x.
                    y.copy_from_slice(unsafe { self.buffers.row(x, source) });
                    true
                })
            }
            Op::SoftCap { x, cap, out } => {
                self.each_row(step, rows, results(Some(out), None), batch, pool, &|row, y| {
                    // SAFETY: the step does not write x.
                    unsafe { (self.kernels.soft_caps)(self.buffers.row(x, row), cap, y) };
                    true
                })
            }
            Op::PrepareQuery { q, norm, rope, out } => pool.run(rows, &|row| {
                let source = self.plan.source_row(op, batch, row);
                if !self.prepare_query(q, norm, rope, out, row, source) {
                    self.flag(source, step);
                }
            }),
            Op::WriteKv { .. } => pool.run(rows, &|row| {
                if !self.write_kv(op, batch, row) {
                    self.flag(row, step);
                }
            }),
            Op::Attention { .. } => self.attention(op, rows, batch, pool),
        }
    }

    /// Values of a row of a step's f32 or A16 result.
    fn width(&self, op: &Op) -> usize {
        use unisonic_core::plan::BufferKind;
        match op.result().map(|id| self.plan.buffers[id.index()].kind) {
            Some(BufferKind::F32 { width } | BufferKind::A16 { width }) => width as usize,
            _ => 0,
        }
    }

    /// Makes each row of a step's results from what `compute(row, y)` leaves in `y`; `compute` returns whether the row
    /// is in range.
    fn each_row(
        &self,
        step: usize,
        rows: usize,
        results: Results,
        batch: &Batch<'_>,
        pool: &mut Pool,
        compute: &(dyn Fn(usize, &mut [f32]) -> bool + Sync),
    ) {
        pool.run(rows, &|row| {
            let mut scratch = Vec::new();
            let y = match results.out {
                // SAFETY: each task has a row of its own.
                Some(out) => unsafe { self.buffers.row_mut(out, row) },
                None => {
                    scratch.resize(results.width, 0.0);
                    &mut scratch
                }
            };
            let mut in_range = compute(row, y);
            if let Some(quantized) = results.quantized {
                // SAFETY: each task has a row of its own.
                unsafe {
                    let mut to = self.buffers.a16_mut(quantized, row);
                    in_range &= (self.kernels.quantize_a16)(y, ACTIVATION_LIMIT, &mut to);
                }
            }
            if !in_range {
                self.flag(self.plan.source_row(&self.plan.steps[step].op, batch, row), step);
            }
        });
    }

    /// Linear layers of the same activation, as one list of tasks.
    fn linears(&self, group: Range<usize>, rows: usize, batch: &Batch<'_>, pool: &mut Pool) {
        let layers = group.filter_map(|step| match self.plan.steps[step].op {
            Op::Linear { x, weight, bias, add, out, head } => {
                Some(Linear { step, x, weight, bias, add, out, head })
            }
            _ => None,
        });
        let layers: Vec<(Linear, usize)> =
            layers.map(|layer| (layer, self.matrix(layer.weight).panels().div_ceil(TASK_PANELS))).collect();
        let tasks = layers.iter().map(|(_, tasks)| tasks).sum();
        pool.run(tasks, &|mut task| {
            let mut acc = vec![0.0; rows * LANES];
            for (layer, tasks) in &layers {
                if task < *tasks {
                    let panels = self.matrix(layer.weight).panels();
                    for panel in task * TASK_PANELS..panels.min((task + 1) * TASK_PANELS) {
                        self.linear_panel(layer, panel, rows, batch, &mut acc);
                    }
                    return;
                }
                task -= tasks;
            }
        });
    }

    /// One panel of a linear layer for all rows.
    fn linear_panel(&self, layer: &Linear, panel: usize, rows: usize, batch: &Batch<'_>, acc: &mut [f32]) {
        let matrix = self.matrix(layer.weight);
        let first = panel * LANES;
        let len = LANES.min(matrix.rows - first);
        // SAFETY: the panel is one of this packing, the activations have as many tiles (`Plan::check`) and `rows` rows, and `acc` has room for them.
        unsafe {
            let activations = self.buffers.activations(layer.x);
            let from = matrix.panel(panel).as_ptr();
            (self.kernels.panel)(matrix.packing, from, matrix.tiles, activations, rows, acc.as_mut_ptr());
        }
        let bias = layer.bias.map(|bias| &self.vector(bias)[first..first + len]);
        for (row, acc) in acc.as_chunks::<LANES>().0.iter().enumerate() {
            // SAFETY: panels are disjoint columns of the result; the step does not write `add`.
            let (out, add) = unsafe {
                let out = self.buffers.columns_mut(layer.out, row, first, len);
                (out, layer.add.map(|add| &self.buffers.row(add, row)[first..first + len]))
            };
            if !self.finish(acc, bias, add, out) && layer.head {
                let op = &self.plan.steps[layer.step].op;
                self.flag(self.plan.source_row(op, batch, row), layer.step);
            }
        }
    }

    /// End of a linear layer for up to 16 outputs; returns whether they obey the head's range.
    fn finish(&self, acc: &[f32; LANES], bias: Option<&[f32]>, add: Option<&[f32]>, out: &mut [f32]) -> bool {
        let null = std::ptr::null();
        if out.len() == LANES {
            let pointer = |x: Option<&[f32]>| x.map_or(null, <[f32]>::as_ptr);
            // SAFETY: each operand has 16 values or is absent.
            return unsafe {
                (self.kernels.finish_linear)(acc.as_ptr(), pointer(bias), pointer(add), out.as_mut_ptr())
            };
        }
        let padded = |x: Option<&[f32]>| {
            let mut values = [0.0; LANES];
            values[..out.len()].copy_from_slice(x?);
            Some(values)
        };
        let (bias, add) = (padded(bias), padded(add));
        let pointer = |x: &Option<[f32; LANES]>| x.as_ref().map_or(null, |x| x.as_ptr());
        let mut all = [0.0; LANES];
        // SAFETY: each operand has 16 values or is absent; filling lanes are zero.
        let in_range = unsafe {
            (self.kernels.finish_linear)(acc.as_ptr(), pointer(&bias), pointer(&add), all.as_mut_ptr())
        };
        out.copy_from_slice(&all[..out.len()]);
        in_range
    }
}
