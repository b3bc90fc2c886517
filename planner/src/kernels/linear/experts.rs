//! Linear layers of chosen experts: each row of a result is multiplied with the matrix of its own expert.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::kernel;
use unisonic_core::planes::activation::{ActivationLayout, TILE_ROWS};
use unisonic_core::planes::weight::{GROUP_ROWS, WeightLayout};

use super::super::GridKernel;
use super::super::elementary::snap;
use super::super::experts::expert_number;
use super::Form;
use super::operands::{Activations, Columns, Global, Operands, Place};
use super::totals::{Multiply, Unit, scaled_totals};

/// The matrices of experts and what they are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertLinear {
    /// The matrices of all experts, one after the other.
    pub weights: WeightLayout,
    /// The activations.
    pub x: ActivationLayout,
    /// Values of a result, a multiple of 16: rows of the matrix of an expert.
    pub width: u32,
    /// Experts that a row of the batch takes.
    pub slots: u32,
    /// Whether the activations are one row for each of them.
    pub x_has_slots: bool,
}

/// Clusters of a workgroup, each with 16 rows of the matrix.
const CLUSTERS: u32 = 4;

/// `out[slot] = snap(acc)`, `acc = sum over s ascending of T_s*D_s` (`core::numerics::linear`), with the matrix of the slot's
/// expert. A cluster has 16 rows of a matrix and goes through the superblocks in order.
///
/// Buffers: [`Operands`]; `routes`, `2*slots` f32 for each row of the batch, as [`super::super::route()`] writes them; `out`, rows of `width`
/// f32, `slots` for each row of the batch. Reads the matrix of each slot's expert once, and for each 64 of its rows the
/// activation. Slots that chose the same expert read its matrix again.
pub fn expert_linear(of: ExpertLinear) -> GridKernel {
    let ExpertLinear { weights, x, width, slots, x_has_slots } = of;
    assert_eq!(weights.width(), x.width(), "elements of a row");
    let groups = width / GROUP_ROWS as u32;
    let blocks = groups.div_ceil(CLUSTERS);
    let last_expert = (weights.rows() / width).saturating_sub(1);
    let kernel = kernel("expert_linear", CLUSTERS * 32, |k| {
        let operands = Operands::declare(k, weights);
        let routes = k.read("routes", Scalar::F32);
        let out = k.write("out", Scalar::F32);
        let place = Place::new(k);
        let (row, block) = (k.group_id() / blocks, k.group_id() % blocks);
        let (of_batch, slot) = (row / slots, row % slots);
        let expert = expert_number(k, routes.load(of_batch * (2 * slots) + slot), last_expert);
        let group = block * CLUSTERS + place.cluster;
        let exists = group.lt(k.u32(groups));
        let of_matrix = expert * groups + group.min(k.u32(groups - 1));
        let row_of_x = if x_has_slots { row } else { of_batch };
        let tile_rows = TILE_ROWS as u32;
        let columns = Columns::of_row(&place, row_of_x / tile_rows, row_of_x % tile_rows);
        let multiply = Multiply { k, form: Form::Dot4, place };
        let add = |s, sums: &[_]| {
            let from = Global { layout: weights, operands, group: of_matrix, s };
            let unit = Unit::load(weights.format(), &place, &from);
            let tile_units = x.superblocks();
            let x = Activations { layout: x, regions: operands.x, tile_units, first_unit: s, columns: false };
            let totals = scaled_totals(&multiply, &[unit], &[columns], &x);
            totals.iter().flatten().flatten().zip(sums).map(|(&total, &sum)| sum + total).collect()
        };
        let sums = k.fold_any([k.u32(0), k.u32(weights.superblocks())], 1, &[k.f32(0.0); 2], add);
        k.when(exists & columns.is_writer, || {
            for (g, sum) in [place.g, place.g + 8].into_iter().zip(sums) {
                out.store(row * width + group * GROUP_ROWS as u32 + g, snap(k, sum));
            }
        });
    });
    GridKernel::rows(kernel, blocks)
}
