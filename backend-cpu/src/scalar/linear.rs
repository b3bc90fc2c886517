//! The linear layer: each weight row is taken apart once and then meets every activation row.

use unisonic_core::format::blocks::{DecodedRow, decode_row};
use unisonic_core::numerics::a16::A16Row;
use unisonic_core::numerics::linear::{dot_row, finish};
use unisonic_core::numerics::range::logit_in_range;
use unisonic_core::numerics::w16::w16_dot_row;
use unisonic_core::plan::{BufferId, LoadedWeight, WeightId};

use super::program::ScalarProgram;

/// The operands of `Op::Linear`.
pub(super) struct Linear {
    pub x: BufferId,
    pub weight: WeightId,
    pub bias: Option<WeightId>,
    pub add: Option<BufferId>,
    pub head: bool,
}

impl ScalarProgram {
    /// `Op::ExpertLinear`: each slot with the rows of its expert.
    pub(super) fn expert_linear(
        &mut self,
        x: BufferId,
        routes: BufferId,
        weight: WeightId,
        out: BufferId,
        rows: usize,
    ) {
        let mut data = self.buffers.lend(out);
        let slots = self.plan.buffers[out.index()].slots as usize;
        let slots_of_x = self.plan.buffers[x.index()].slots as usize;
        let row_len_bytes = self.plan.weights[weight.index()].row_len_bytes();
        let mut decoded = DecodedRow::new();
        for row in 0..rows {
            // Exact floats.
            let expert = self.buffers.f32(routes).row(row / slots)[row % slots] as usize;
            let (high, low, scales) = self.buffers.planes(x).row(row / slots * slots_of_x + row % slots_of_x);
            let x = A16Row { high, low, scales };
            let y = data.f32_row_mut(row);
            let first = expert * y.len();
            for (column, y) in (first..).zip(y) {
                let acc = match &self.weights[weight.index()] {
                    LoadedWeight::Blocks { format, bytes } => {
                        decode_row(*format, &bytes[column * row_len_bytes..][..row_len_bytes], &mut decoded);
                        dot_row(&decoded, &x)
                    }
                    LoadedWeight::W16(matrix) => w16_dot_row(&matrix.row(column), &x),
                    LoadedWeight::F32(_) => {
                        panic!("the plan multiplies with weight {}, which is a vector", weight.0)
                    }
                };
                *y = finish(acc, None);
            }
        }
        self.buffers.give_back(out, data);
    }

    /// Fills the first `rows` rows of `out`; returns those that broke the range contract.
    pub(super) fn linear(&mut self, op: Linear, out: BufferId, rows: usize) -> Vec<usize> {
        let mut data = self.buffers.lend(out);
        let mut flagged = vec![false; rows];
        let weight = &self.plan.weights[op.weight.index()];
        let row_len_bytes = weight.row_len_bytes();
        let bias = op.bias.map(|bias| self.vector(bias));
        let mut decoded = DecodedRow::new();
        for column in 0..weight.rows as usize {
            let acc: &dyn Fn(&A16Row<'_>) -> f32 = match &self.weights[op.weight.index()] {
                LoadedWeight::Blocks { format, bytes } => {
                    decode_row(*format, &bytes[column * row_len_bytes..][..row_len_bytes], &mut decoded);
                    &|x| dot_row(&decoded, x)
                }
                LoadedWeight::W16(matrix) => &|x| w16_dot_row(&matrix.row(column), x),
                LoadedWeight::F32(_) => {
                    panic!("the plan multiplies with weight {}, which is a vector", op.weight.0)
                }
            };
            for (row, flagged) in flagged.iter_mut().enumerate() {
                let (high, low, scales) = self.buffers.planes(op.x).row(row);
                let y = finish(acc(&A16Row { high, low, scales }), bias.map(|bias| bias[column]));
                *flagged |= op.head && !logit_in_range(y);
                data.f32_row_mut(row)[column] = match op.add {
                    Some(add) => self.buffers.f32(add).row(row)[column] + y,
                    None => y,
                };
            }
        }
        self.buffers.give_back(out, data);
        (0..rows).filter(|&row| flagged[row]).collect()
    }
}
