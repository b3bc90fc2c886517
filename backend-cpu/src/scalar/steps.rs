//! Each step of a plan, as calls of the functions that define it. All but the linear layer fill their result row by
//! row, through [`ScalarProgram::write_rows`].

use std::sync::Arc;

use unisonic_core::format::blocks::{DecodedRow, decode_row};
use unisonic_core::numerics::{a16, activation, embedding, moe, norm};
use unisonic_core::plan::{Activation, Batch, BufferId, BufferKind, LoadedWeight, Op, WeightId};

use super::attention::{KvHeads, Scores};
use super::program::ScalarProgram;

/// Where a step puts its rows: as f32, as A16, or both.
#[derive(Clone, Copy)]
pub(super) struct Results {
    pub out: Option<BufferId>,
    pub quantized: Option<BufferId>,
}

impl Results {
    fn f32(out: BufferId) -> Self {
        Self { out: Some(out), quantized: None }
    }
}

impl ScalarProgram {
    /// Runs one step; returns the rows of its result that broke the range contract.
    pub(super) fn step(&mut self, op: &Op, batch: &Batch<'_>) -> Vec<usize> {
        let plan = Arc::clone(&self.plan);
        let rows = plan.row_count(op, batch);
        let source = |row: usize| plan.source_row(op, batch, row);
        match *op {
            Op::Embed { table, scale, out } => self.write_rows(Results::f32(out), rows, |program, row, y| {
                program.embedding_row(table, batch.tokens[source(row)], y);
                if let Some(scale) = scale {
                    y.iter_mut().for_each(|y| *y *= scale);
                }
                true
            }),
            Op::EmbedPositions { table, out } => {
                let last = plan.weights[table.index()].rows.saturating_sub(1);
                self.write_rows(Results::f32(out), rows, |program, row, y| {
                    program.embedding_row(table, batch.positions[source(row)].min(last), y);
                    true
                })
            }
            Op::LayerNorm { x, weight, bias, eps, out, quantized } => {
                self.write_rows(Results { out, quantized }, rows, |program, row, y| {
                    let (weight, bias) = (program.vector(weight), program.vector(bias));
                    norm::layer_norm(program.buffers.f32(x).row(row), weight, bias, eps, y)
                })
            }
            Op::RmsNorm { x, weight, eps, add, out, quantized } => {
                self.write_rows(Results { out, quantized }, rows, |program, row, y| {
                    let in_range =
                        norm::rms_norm(program.buffers.f32(x).row(row), program.vector(weight), eps, y);
                    if let Some(add) = add {
                        add_to(program.buffers.f32(add).row(row), y);
                    }
                    in_range
                })
            }
            Op::Quantize { x, out } => {
                let results = Results { out: None, quantized: Some(out) };
                self.write_rows(results, rows, |program, row, y| {
                    y.copy_from_slice(program.buffers.f32(x).row(row));
                    true
                })
            }
            Op::Linear { x, weight, bias, add, out, head } => {
                self.linear(super::linear::Linear { x, weight, bias, add, head }, out, rows)
            }
            Op::HeadNorm { x, weight, head_len, eps, out } => {
                self.write_rows(Results::f32(out), rows, |program, row, y| {
                    let heads = program.buffers.f32(x).row(row).chunks_exact(head_len as usize);
                    let mut in_range = true;
                    for (head, y) in heads.zip(y.chunks_exact_mut(head_len as usize)) {
                        in_range &= match weight {
                            Some(weight) => norm::rms_norm(head, program.vector(weight), eps, y),
                            None => norm::rms_norm_plain(head, eps, y),
                        };
                    }
                    in_range
                })
            }
            Op::Rope { x, rope, head_len, out } => {
                self.write_rows(Results::f32(out), rows, |program, row, y| {
                    y.copy_from_slice(program.buffers.f32(x).row(row));
                    y.chunks_exact_mut(head_len as usize)
                        .for_each(|head| program.rotate(rope, source(row), head));
                    true
                })
            }
            Op::PrepareQuery { q, norm, rope, out } => self.prepare_query(q, norm, rope, out, rows, &source),
            Op::WriteKv { k, v, norm, rope, value_eps, layer } => {
                self.write_kv(k, v, KvHeads { norm, rope, value_eps }, layer, batch)
            }
            Op::Attention { q, layer, kappa, window, soft_cap, out } => {
                let scores = Scores { kappa, window, soft_cap };
                self.write_rows(Results::f32(out), rows, |program, row, y| {
                    program.attend(q, row, layer, scores, batch, source(row), y);
                    true
                })
            }
            Op::Gate { activation, gate, up, part, out, quantized } => {
                let function = match activation {
                    Activation::Silu => activation::swiglu,
                    Activation::Gelu => activation::gelu_gate,
                };
                self.write_rows(Results { out, quantized }, rows, |program, row, y| {
                    let (gate, up) = (program.buffers.f32(gate).row(row), program.buffers.f32(up).row(row));
                    let up = &up[part as usize * gate.len()..][..gate.len()];
                    y.iter_mut().zip(gate).zip(up).for_each(|((y, &g), &u)| *y = function(g, u));
                    true
                })
            }
            Op::Gelu { x, out, quantized } => {
                self.write_rows(Results { out, quantized }, rows, |program, row, y| {
                    let x = program.buffers.f32(x).row(row);
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = activation::gelu(x));
                    true
                })
            }
            Op::Route { x, router, denominator, out } => {
                self.write_rows(Results::f32(out), rows, |program, row, y| {
                    let x = program.buffers.f32(x).row(row);
                    let experts = program.vector(router).chunks_exact(x.len());
                    let z: Vec<f32> = experts.map(|weight| moe::router_dot(x, weight)).collect();
                    let (numbers, weights) = y.split_at_mut(y.len() / 2);
                    let routing = moe::route(&z, numbers.len(), denominator, None);
                    numbers.iter_mut().zip(routing.experts).for_each(|(y, expert)| *y = expert as f32);
                    weights.copy_from_slice(&routing.weights);
                    true
                })
            }
            Op::ExpertLinear { x, routes, weight, out } => {
                self.expert_linear(x, routes, weight, out, rows);
                vec![]
            }
            Op::SumExperts { x, routes, out } => {
                self.write_rows(Results::f32(out), rows, |program, row, y| {
                    let routes = program.buffers.f32(routes).row(row);
                    let (_, weights) = routes.split_at(routes.len() / 2);
                    y.fill(0.0);
                    for (slot, &weight) in weights.iter().enumerate() {
                        moe::add_expert(y, weight, program.buffers.f32(x).row(row * weights.len() + slot));
                    }
                    true
                })
            }
            Op::AddShared { x, gate, a, b, out } => {
                self.write_rows(Results::f32(out), rows, |program, row, y| {
                    let gate = moe::router_dot(program.buffers.f32(x).row(row), program.vector(gate));
                    y.copy_from_slice(program.buffers.f32(a).row(row));
                    moe::add_shared_expert(y, gate, program.buffers.f32(b).row(row));
                    true
                })
            }
            Op::Add { a, b, out } => self.write_rows(Results::f32(out), rows, |program, row, y| {
                y.copy_from_slice(program.buffers.f32(b).row(row));
                add_to(program.buffers.f32(a).row(row), y);
                true
            }),
            Op::Scale { x, scale, out } => self.write_rows(Results::f32(out), rows, |program, row, y| {
                let (x, s) = (program.buffers.f32(x).row(row), program.vector(scale)[0]);
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = activation::scaled(x, s));
                true
            }),
            Op::SelectOutputs { x, out } => self.write_rows(Results::f32(out), rows, |program, row, y| {
                let slots = plan.slots_of(op) as usize;
                y.copy_from_slice(program.buffers.f32(x).row(source(row) * slots + row % slots));
                true
            }),
            Op::SoftCap { x, cap, out } => self.write_rows(Results::f32(out), rows, |program, row, y| {
                let x = program.buffers.f32(x).row(row);
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = activation::soft_cap(x, cap));
                true
            }),
        }
    }

    /// Fills the rows of a step's results with what `compute(program, row, y)` leaves in `y`; `compute` returns
    /// whether the row obeys the range contract. Returns the rows that do not.
    fn write_rows(
        &mut self,
        results: Results,
        rows: usize,
        compute: impl Fn(&Self, usize, &mut [f32]) -> bool,
    ) -> Vec<usize> {
        let mut out = results.out.map(|id| (id, self.buffers.lend(id)));
        let mut quantized = results.quantized.map(|id| (id, self.buffers.lend(id)));
        let mut y = std::mem::take(&mut self.row);
        y.resize(self.width(results.out.or(results.quantized)), 0.0);
        let mut flagged = Vec::new();
        for row in 0..rows {
            let mut in_range = compute(self, row, &mut y);
            if let Some((_, data)) = &mut out {
                data.f32_row_mut(row).copy_from_slice(&y);
            }
            if let Some((_, data)) = &mut quantized {
                let (high, low, scales) = data.planes_row_mut(row);
                in_range &= a16::quantize_a16(&y, high, low, scales);
            }
            if !in_range {
                flagged.push(row);
            }
        }
        self.row = y;
        for (id, data) in out.into_iter().chain(quantized) {
            self.buffers.give_back(id, data);
        }
        flagged
    }

    fn embedding_row(&self, table: WeightId, token: u32, y: &mut [f32]) {
        match &self.weights[table.index()] {
            LoadedWeight::Blocks { format, bytes } => {
                let row_len_bytes = self.plan.weights[table.index()].row_len_bytes();
                let mut decoded = DecodedRow::new();
                decode_row(*format, &bytes[token as usize * row_len_bytes..][..row_len_bytes], &mut decoded);
                embedding::embed_row(&decoded, y);
            }
            LoadedWeight::W16(matrix) => embedding::embed_w16_row(&matrix.row(token as usize), y),
            LoadedWeight::F32(_) => panic!("the plan embeds from weight {}, which is a vector", table.0),
        }
    }

    /// Values of a row of a step's result.
    fn width(&self, result: Option<BufferId>) -> usize {
        match result.map(|id| self.plan.buffers[id.index()].kind) {
            Some(BufferKind::F32 { width } | BufferKind::A16 { width }) => width as usize,
            other => panic!("the plan puts rows of values into {other:?}"),
        }
    }

    pub(super) fn vector(&self, id: WeightId) -> &[f32] {
        match &self.weights[id.index()] {
            LoadedWeight::F32(values) => values,
            _ => panic!("the plan reads weight {} as a vector", id.0),
        }
    }
}

/// `y = y + x`, one rounded addition an element.
fn add_to(x: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y += x);
}
