//! Mixture of experts: which experts a row takes, their linear layers, and the sum of what they make (docs/numerics.md
//! "Mixture of experts").

use unisonic_core::numerics::moe;
use unisonic_core::plan::{BufferId, Op};

use super::linear::Activations;
use super::program::State;
use crate::pool::Pool;
use crate::simd::LANES;

/// Panels of a task of an expert.
const TASK_PANELS: usize = 4;
/// Most rows that are copied together: what a cache holds beside the panels.
const GATHERED_ROWS: usize = 32;

/// Copies of activation rows that lie apart, one after the other, so that a panel is unpacked once for several of them.
#[derive(Default)]
struct Gathered {
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
    sums_high: Vec<i32>,
    sums_low: Vec<i32>,
}

impl Gathered {
    /// Replaces the copies; the rows as kernels read them, until the next call.
    ///
    /// # Safety
    /// x has these rows, and nobody writes them meanwhile.
    unsafe fn fill(&mut self, x: Activations, rows: impl Iterator<Item = usize>) -> Activations {
        /// # Safety
        /// There are that many values, and nobody writes them meanwhile.
        unsafe fn append<T: Copy>(to: &mut Vec<T>, from: *const T, len: usize) {
            // SAFETY: the caller's promise.
            to.extend_from_slice(unsafe { std::slice::from_raw_parts(from, len) });
        }
        self.high.clear();
        self.low.clear();
        self.scales.clear();
        self.sums_high.clear();
        self.sums_low.clear();
        let (width, superblocks, sums) = (x.width, x.width.div_ceil(256), x.width / 16);
        for row in rows {
            // SAFETY: the caller's promise; lengths are those of a row of `A16Rows`.
            unsafe {
                let from = x.starting_at(row);
                append(&mut self.high, from.high, width);
                append(&mut self.low, from.low, width);
                append(&mut self.scales, from.scales, superblocks);
                append(&mut self.sums_high, from.sums_high, sums);
                append(&mut self.sums_low, from.sums_low, sums);
            }
        }
        Activations {
            high: self.high.as_ptr(),
            low: self.low.as_ptr(),
            scales: self.scales.as_ptr(),
            sums_high: self.sums_high.as_ptr(),
            sums_low: self.sums_low.as_ptr(),
            width,
        }
    }
}

impl State {
    /// `Op::Route`.
    pub(super) fn route(&self, op: &Op, rows: usize, pool: &mut Pool) {
        let &Op::Route { x, router, denominator, out } = op else { return };
        pool.run(rows, &|row| {
            // SAFETY: the step does not write x, and each task has a row of the result; `Plan::check` has compared the
            // widths, `unfit` their vectors.
            let (x, y) = unsafe { (self.buffers.row(x, row), self.buffers.row_mut(out, row)) };
            let experts = self.vector(router).chunks_exact(x.len());
            // SAFETY: as above.
            let z: Vec<f32> = experts.map(|weight| unsafe { (self.kernels.router_dot)(x, weight) }).collect();
            let (numbers, weights) = y.split_at_mut(y.len() / 2);
            let routing = moe::route(&z, numbers.len(), denominator, None);
            numbers.iter_mut().zip(routing.experts).for_each(|(y, expert)| *y = expert as f32);
            weights.copy_from_slice(&routing.weights);
        });
    }

    /// `Op::ExpertLinear`: a task has some panels of an expert and goes through the slots that chose it, so that a panel is
    /// read from memory once, and unpacked once for several of them.
    pub(super) fn expert_linear(&self, op: &Op, rows: usize, pool: &mut Pool) {
        let &Op::ExpertLinear { x, routes, weight, out } = op else { return };
        let matrix = self.matrix(weight);
        let slots = self.plan.buffers[out.index()].slots as usize;
        let slots_of_x = self.plan.buffers[x.index()].slots as usize;
        let width = self.plan.row_width(out);
        // `Plan::check` and `unfit`: whole experts, of whole panels.
        let (experts, panels) = (matrix.rows / width, width / LANES);
        let mut slots_of = vec![Vec::new(); experts];
        for row in 0..rows {
            // SAFETY: the step does not write the routes.
            let number = unsafe { self.buffers.row(routes, row / slots) }[row % slots];
            // Exact floats.
            slots_of[(number as usize).min(experts - 1)].push(row);
        }
        let tasks = panels.div_ceil(TASK_PANELS);
        let chosen: Vec<usize> = (0..experts).filter(|&expert| !slots_of[expert].is_empty()).collect();
        pool.run(chosen.len() * tasks, &|task| {
            let (expert, task) = (chosen[task / tasks], task % tasks);
            let (mut gathered, mut acc) = (Gathered::default(), [0.0; GATHERED_ROWS * LANES]);
            for rows in slots_of[expert].chunks(GATHERED_ROWS) {
                let row_of_x = |&row: &usize| row / slots * slots_of_x + row % slots_of_x;
                let x = self.buffers.activations(x);
                // SAFETY: x has these rows, and the step does not write it.
                let x = unsafe {
                    match rows {
                        [row] => x.starting_at(row_of_x(row)),
                        _ => gathered.fill(x, rows.iter().map(row_of_x)),
                    }
                };
                for panel in task * TASK_PANELS..panels.min((task + 1) * TASK_PANELS) {
                    let from = matrix.panel(expert * panels + panel).as_ptr();
                    // SAFETY: the panel is one of this packing, x has as many tiles (`Plan::check`) and these rows, for which
                    // `acc` has room; and panels are disjoint columns of rows of the result.
                    unsafe {
                        let to = acc.as_mut_ptr();
                        (self.kernels.panel)(matrix.packing, from, matrix.tiles, x, rows.len(), to);
                        for (&row, acc) in rows.iter().zip(acc.as_chunks::<LANES>().0) {
                            let out = self.buffers.columns_mut(out, row, panel * LANES, LANES);
                            let null = std::ptr::null();
                            (self.kernels.finish_linear)(acc.as_ptr(), null, null, out.as_mut_ptr());
                        }
                    }
                }
            }
        });
    }

    /// `Op::SumExperts` of a row.
    ///
    /// # Safety
    /// Nobody writes the operands meanwhile.
    pub(super) unsafe fn sum_experts(&self, x: BufferId, routes: BufferId, row: usize, y: &mut [f32]) {
        // SAFETY: the caller's promise.
        let routes = unsafe { self.buffers.row(routes, row) };
        let weights = &routes[routes.len() / 2..];
        y.fill(0.0);
        for (slot, &weight) in weights.iter().enumerate() {
            // SAFETY: the caller's promise; `Plan::check` has compared the widths, `unfit` their vectors.
            unsafe {
                let output = self.buffers.row(x, row * weights.len() + slot);
                (self.kernels.add_expert)(y, weight, output);
            }
        }
    }
}
