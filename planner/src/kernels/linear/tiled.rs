//! Many rows: a workgroup computes a tile of the result, and brings its operands to shared memory ahead of time.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::kernel;
use unisonic_core::launch::Hardware;
use unisonic_core::planes::activation::{ActivationLayout, TILE_ROWS};
use unisonic_core::planes::weight::WeightLayout;

use super::super::fit::Room;
use super::super::{Grid, GridKernel};
use super::operands::{Activations, Columns, Operands, Place};
use super::output::{Epilogue, Output};
use super::staged::{RowStages, Stages};
use super::totals::{Multiply, Unit, scaled_totals};
use super::{Form, spread};

/// What may be chosen freely: the result does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiled {
    /// Clusters of a workgroup, that many along the weight rows and along the rows.
    pub clusters: [u32; 2],
    /// Groups of 16 weight rows of a cluster.
    pub groups: u32,
    /// Tiles of 4 rows of a cluster.
    pub tiles: u32,
    /// Superblocks in shared memory, at least 2: the one that is computed with, and those under way.
    pub stages: u32,
    /// Workgroups that a multiprocessor should hold at once, as in `SplitK`.
    pub resident: u32,
}

impl Tiled {
    /// Four clusters along the weight rows, and a tile as `spread` chooses it. None where no part of a tile fits, and
    /// without matrix instructions.
    pub fn new(weights: WeightLayout, x: ActivationLayout, hardware: &Hardware) -> Option<Self> {
        let of_size =
            |&(groups, tiles): &(u32, u32)| Self { clusters: [4, 1], groups, tiles, stages: 2, resident: 2 };
        let fits = |tuning: &Self| tuning.room(weights, x).fits(hardware);
        let tunings = [(2, 8), (1, 8), (2, 4), (1, 4)].iter().filter(|(_, tiles)| *tiles <= x.tiles());
        let tunings = tunings.map(of_size).filter(fits).map(|tuning| (tuning, tuning.workgroups(weights, x)));
        let smallest = Some(of_size(&(1, 2))).filter(fits);
        spread(tunings, hardware).or(smallest).filter(|_| hardware.caps.mma32)
    }

    /// Workgroups of a launch.
    pub fn workgroups(self, weights: WeightLayout, x: ActivationLayout) -> u32 {
        let stages = self.stages(weights, x);
        weights.groups().div_ceil(stages.groups) * x.tiles().div_ceil(stages.x.tiles)
    }

    fn room(self, weights: WeightLayout, x: ActivationLayout) -> Room {
        let stages = self.stages(weights, x);
        Room { workgroup: stages.x.invocations, shared_len_bytes: stages.len_bytes(), exchanged: 1 }
    }

    fn stages(self, weights: WeightLayout, x: ActivationLayout) -> Stages {
        let (groups, tiles) = (self.clusters[0] * self.groups, self.clusters[1] * self.tiles);
        let invocations = self.clusters[0] * self.clusters[1] * 32;
        let x = RowStages {
            format: weights.format(),
            layout: x,
            tiles,
            count: self.stages,
            invocations,
            columns: false,
        };
        Stages { weights, groups, x }
    }
}

/// `out = [add +] snap(acc [+ bias])`, `acc = sum over s ascending of T_s*D_s` (`core::numerics::linear`), of many rows, at
/// least 3. Each invocation keeps the sums of its outputs in registers and goes through the superblocks in order.
///
/// Buffers: [`Operands`], then those of [`Output`]. With `R = 16*groups*clusters[0]` weight rows and `C = 4*tiles*clusters[1]`
/// rows of a workgroup, it reads each weight byte `rows/C` times and each activation (2 bytes an element) `weight rows/R`
/// times, once to shared memory and from there once for each cluster that needs it. Operations as in [`super::split_k()`].
pub fn tiled(weights: WeightLayout, x: ActivationLayout, epilogue: Epilogue, tuning: Tiled) -> GridKernel {
    assert_eq!(weights.width(), x.width(), "elements of a row");
    assert_eq!(x.tile_rows(), TILE_ROWS as u32, "rows of a tile");
    assert!(tuning.stages >= 2, "one stage is computed with while another is filled");
    let stages = tuning.stages(weights, x);
    let superblocks = weights.superblocks();
    let row_blocks = weights.groups().div_ceil(stages.groups);
    let tile_blocks = x.tiles().div_ceil(stages.x.tiles);
    let kernel = kernel("linear_tiled", stages.x.invocations, |k| {
        k.resident(tuning.resident);
        let operands = Operands::declare(k, weights);
        let output = Output::declare(k, epilogue, weights.rows(), x.rows());
        let arrays = stages.declare(k);
        let workgroup = k.group_id();
        let first = [workgroup / tile_blocks * stages.groups, workgroup % tile_blocks * stages.x.tiles];
        let place = Place::new(k);
        let yes = k.constant(Scalar::Bool.into(), 1);
        let of_cluster = [
            place.cluster / tuning.clusters[1] * tuning.groups,
            place.cluster % tuning.clusters[1] * tuning.tiles,
        ];
        let columns = |tile: u32| Columns::of_tile(k, Form::Matrix, &place, x, of_cluster[1] + tile);
        let columns: Vec<Columns<'_>> = (0..tuning.tiles).flat_map(columns).collect();
        let multiply = Multiply { k, form: Form::Matrix, place };

        for s in 0..tuning.stages - 1 {
            if s < superblocks {
                stages.begin(k, &operands, &arrays, first, k.u32(s));
            }
            k.copy_commit();
        }
        let zeros = vec![k.f32(0.0); (2 * tuning.groups * tuning.tiles) as usize];
        let sums = k.fold_any([k.u32(0), k.u32(superblocks)], 1, &zeros, |s, sums| {
            // What has arrived for all, and nobody reads the stage that is filled next.
            k.copy_wait(tuning.stages - 2);
            k.barrier();
            let next = s + (tuning.stages - 1);
            k.when(next.lt(k.u32(superblocks)), || stages.begin(k, &operands, &arrays, first, next));
            k.copy_commit();
            let stage = s % tuning.stages;
            let unit = |i: u32| {
                let from = arrays.words(stages, stage, of_cluster[0] + i);
                Unit::load(weights.format(), &place, &from)
            };
            let units: Vec<Unit<'_>> = (0..tuning.groups).map(unit).collect();
            let first_unit = stage * stages.x.tiles;
            let x = Activations { layout: x, regions: arrays.x, tile_units: 1, first_unit, columns: false };
            let totals = scaled_totals(&multiply, &units, &columns, &x);
            sums.iter().zip(totals.iter().flatten().flatten()).map(|(&sum, &total)| sum + total).collect()
        });
        for (i, sum) in (0..).zip(sums) {
            let (half, tile, group) = (i % 2, i / 2 % tuning.tiles, i / 2 / tuning.tiles);
            let weight_row = (first[0] + of_cluster[0] + group) * 16 + half * 8 + place.g;
            let row = (first[1] + of_cluster[1] + tile) * 4 + place.t;
            let at = output.at(weight_row, row, yes);
            output.finish(sum, &at, TILE_ROWS as u32, &output.load_addends(&at));
        }
    });
    let grid = Grid::Fixed(row_blocks * tile_blocks);
    GridKernel { kernel, grid, flags_a_row: epilogue.flags_a_row(weights.rows()) }
}
