//! Many rows, on devices without asynchronous copies: weights go straight to the registers of the one cluster that needs
//! them, and only the rows, which all clusters need, through shared memory.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::kernel;
use unisonic_core::launch::Hardware;
use unisonic_core::planes::activation::{ActivationLayout, TILE_ROWS};
use unisonic_core::planes::weight::WeightLayout;

use super::super::fit::Room;
use super::super::{Grid, GridKernel};
use super::operands::{Activations, Columns, Global, Operands, Place};
use super::output::{Epilogue, Output};
use super::scales::takes_two_products;
use super::staged::RowStages;
use super::totals::{Multiply, Unit, scaled_totals};
use super::{Form, spread};

/// What may be chosen freely: the result does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HalfStaged {
    /// Clusters of a workgroup, along the weight rows.
    pub clusters: u32,
    /// Groups of 16 weight rows of a cluster.
    pub groups: u32,
    /// Tiles of 4 rows of a workgroup.
    pub tiles: u32,
    /// Whether rows lie in shared memory as [`unisonic_core::kir::Op::LoadB`] takes them.
    pub columns: bool,
    /// Workgroups that a multiprocessor should hold at once, as in `SplitK`.
    pub resident: u32,
}

impl HalfStaged {
    /// Four clusters, and a tile as `spread` chooses it of which two workgroups find room side by side. None where no part
    /// of a tile does, and without matrix instructions.
    pub fn new(weights: WeightLayout, x: ActivationLayout, hardware: &Hardware) -> Option<Self> {
        let takes_two = takes_two_products(weights.format());
        let sizes = match takes_two {
            // The larger tile spills, and its matrices are made of so many bytes that staging them is faster.
            true => &[(2, 4), (1, 4)][..],
            false => &[(2, 8), (2, 4), (1, 4)],
        };
        let columns = hardware.caps.load_b && !takes_two;
        let of_size =
            |&(groups, tiles): &(u32, u32)| Self { clusters: 4, groups, tiles, columns, resident: 2 };
        let half = Hardware { shared_len_bytes: hardware.shared_len_bytes / 2, ..*hardware };
        let fits = |tuning: &Self| tuning.room(weights, x).fits(&half);
        let tunings =
            sizes.iter().map(of_size).filter(fits).map(|tuning| (tuning, tuning.workgroups(weights, x)));
        let smallest = Some(of_size(&(1, 2))).filter(fits);
        spread(tunings, hardware).or(smallest).filter(|_| hardware.caps.mma32)
    }

    /// Workgroups of a launch.
    fn workgroups(self, weights: WeightLayout, x: ActivationLayout) -> u32 {
        weights.groups().div_ceil(self.clusters * self.groups) * x.tiles().div_ceil(self.tiles)
    }

    fn room(self, weights: WeightLayout, x: ActivationLayout) -> Room {
        let stages = self.stages(weights, x);
        // What a device may need to make matrices of registers: 768 bytes a cluster.
        let shared_len_bytes = stages.len_bytes() + self.clusters * 768;
        Room { workgroup: stages.invocations, shared_len_bytes, exchanged: 1 }
    }

    fn stages(self, weights: WeightLayout, x: ActivationLayout) -> RowStages {
        RowStages {
            format: weights.format(),
            layout: x,
            tiles: self.tiles,
            count: 1,
            invocations: self.clusters * 32,
            columns: self.columns,
        }
    }
}

/// The same result as [`super::tiled()`], of at least 3 rows, from the same buffers. Each invocation keeps the sums of its
/// outputs in registers and goes through the superblocks in order.
///
/// With `R = 16*groups*clusters` weight rows and `C = 4*tiles` rows of a workgroup, it reads each weight byte `rows/C` times
/// and each activation (2 bytes an element) `weight rows/R` times, once to shared memory and from there once for each cluster.
/// Operations as in [`super::split_k()`].
pub fn half_staged(
    weights: WeightLayout,
    x: ActivationLayout,
    epilogue: Epilogue,
    tuning: HalfStaged,
) -> GridKernel {
    assert_eq!(weights.width(), x.width(), "elements of a row");
    assert_eq!(x.tile_rows(), TILE_ROWS as u32, "rows of a tile");
    let stages = tuning.stages(weights, x);
    let superblocks = weights.superblocks();
    let row_blocks = weights.groups().div_ceil(tuning.clusters * tuning.groups);
    let tile_blocks = x.tiles().div_ceil(tuning.tiles);
    let kernel = kernel("linear_half_staged", stages.invocations, |k| {
        k.resident(tuning.resident);
        let operands = Operands::declare(k, weights);
        let output = Output::declare(k, epilogue, weights.rows(), x.rows());
        let arrays = stages.declare(k);
        let place = Place::new(k);
        let workgroup = k.group_id();
        let first_tile = workgroup % tile_blocks * tuning.tiles;
        let first_group = (workgroup / tile_blocks * tuning.clusters + place.cluster) * tuning.groups;
        let yes = k.constant(Scalar::Bool.into(), 1);
        let columns = |tile: u32| Columns::of_tile(k, Form::Matrix, &place, x, k.u32(tile));
        let columns: Vec<Columns<'_>> = (0..tuning.tiles).flat_map(columns).collect();
        let multiply = Multiply { k, form: Form::Matrix, place };

        let zeros = vec![k.f32(0.0); (2 * tuning.groups * tuning.tiles) as usize];
        let sums = k.fold_any([k.u32(0), k.u32(superblocks)], 1, &zeros, |s, sums| {
            let rows = stages.load(k, &operands.x, &arrays, first_tile, s);
            let unit = |i: u32| {
                let group = (first_group + i).min(k.u32(weights.groups() - 1));
                let from = Global { layout: weights, operands, group, s };
                Unit::load(weights.format(), &place, &from)
            };
            let units: Vec<Unit<'_>> = (0..tuning.groups).map(unit).collect();
            // Nobody reads the superblock before any more; then all of this one is there.
            k.barrier();
            rows.iter().for_each(|four| four.store(k));
            k.barrier();
            let x = Activations {
                layout: x,
                regions: arrays,
                tile_units: 1,
                first_unit: k.u32(0),
                columns: tuning.columns,
            };
            let totals = scaled_totals(&multiply, &units, &columns, &x);
            sums.iter().zip(totals.iter().flatten().flatten()).map(|(&sum, &total)| sum + total).collect()
        });
        for (i, sum) in (0..).zip(sums) {
            let (half, tile, group) = (i % 2, i / 2 % tuning.tiles, i / 2 / tuning.tiles);
            let weight_row = (first_group + group) * 16 + half * 8 + place.g;
            let row = (first_tile + tile) * 4 + place.t;
            let at = output.at(weight_row, row, yes);
            output.finish(sum, &at, TILE_ROWS as u32, &output.load_addends(&at));
        }
    });
    let grid = Grid::Fixed(row_blocks * tile_blocks);
    GridKernel { kernel, grid, flags_a_row: epilogue.flags_a_row(weights.rows()) }
}
