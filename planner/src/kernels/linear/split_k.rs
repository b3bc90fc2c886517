//! Few rows: the superblocks of 16 weight rows are spread over the clusters of a workgroup.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::launch::Hardware;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::weight::{GROUP_ROWS, WeightFormat, WeightLayout};

use super::super::fit::Room;
use super::super::reduce::CLUSTER;
use super::super::{Grid, GridKernel};
use super::Form;
use super::operands::{Activations, Columns, Global, Operands, Place};
use super::output::{At, Epilogue, Output};
use super::totals::{Multiply, Unit, scaled_totals};

/// What may be chosen freely: the result does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitK {
    /// How clusters multiply.
    pub form: Form,
    /// Clusters of a workgroup.
    pub clusters: u32,
    /// Groups of 16 weight rows that a cluster works on at once: more reads of weights under way, and activations read less
    /// often.
    pub groups: u32,
    /// Tiles of 4 rows that a workgroup works on.
    pub tiles: u32,
    /// Superblocks of a cluster between two barriers: what shared memory holds.
    pub rounds: u32,
    /// Workgroups that a multiprocessor should hold at once. Without being told, NVIDIA's assembler saves registers by loading
    /// late, and the loads of a superblock are not under way together.
    pub resident: u32,
    /// Workgroups that ask for all of their weights at once, before they wait for the launches before: those that a device
    /// begins at the same time. Others would ask twice for what they are about to read.
    pub ahead: u32,
}

impl SplitK {
    /// What is fast on the GPUs that were measured: about half as many clusters as superblocks, in whole subgroups, and
    /// 16 KiB of partial results; less where the device has less.
    pub fn new(weights: WeightLayout, x: ActivationLayout, hardware: &Hardware) -> Self {
        let superblocks = weights.superblocks();
        let uses_matrices = hardware.caps.mma32 && (hardware.matrix_registers || x.rows() > 1);
        let (form, most_tiles) = match uses_matrices {
            true => (Form::Matrix, 4),
            // Each row has sums of its own in registers.
            false => (Form::Dot4, 2),
        };
        let tiles = x.tiles().min(most_tiles);
        let one = Self { form, clusters: 1, groups: 1, tiles, rounds: 1, resident: 1, ahead: 0 };

        let step = (hardware.caps.subgroup / CLUSTER).max(1);
        // Compilers that are not told how many workgroups a multiprocessor should hold load late: where there are few
        // workgroups, each cluster has one superblock.
        let loads_late = !uses_matrices && !hardware.matrix_registers;
        let is_few = weights.groups() / 4 < hardware.multiprocessors;
        let wanted = match (superblocks <= 16, loads_late && is_few) {
            (true, false) => superblocks.div_ceil(2),
            (true, true) => superblocks,
            // Registers for two workgroups of so many tiles, where the compiler is told how many there are.
            (false, _) if tiles > 2 && hardware.matrix_registers => 10,
            (false, _) => 15,
        };
        let most = wanted.next_multiple_of(step).min(hardware.workgroup / CLUSTER);
        let fits = |tuning: &Self| tuning.room(x).fits(hardware);
        let largest = |clusters: u32| {
            let rounds = (256 / (clusters * tiles * x.tile_rows())).clamp(1, superblocks.div_ceil(clusters));
            (1..=rounds).rev().map(|rounds| Self { clusters, rounds, ..one }).find(fits)
        };
        let tuning = (1..=most / step).rev().find_map(|steps| largest(steps * step));
        let tuning = tuning.unwrap_or(Self { clusters: step, ..one });
        let resident = tuning.resident(weights.format());
        // On an H200 the requests for a rest that is smaller than what registers hold made a 0.5B model faster by 2 %; larger
        // ones delay the launch before, and made a 7B model slower by 4 %.
        let is_rest_small = (tuning.clusters + 1..2 * tuning.clusters).contains(&superblocks);
        let ahead = if is_rest_small { resident * hardware.multiprocessors } else { 0 };
        Self { resident, ahead, ..tuning }
    }

    /// For so many registers as an invocation needs, of the 65,536 of a multiprocessor.
    fn resident(self, format: WeightFormat) -> u32 {
        let registers = match (format, self.tiles) {
            // Of two tiles; with fewer, NVIDIA's assembler spills.
            _ if self.form == Form::Dot4 => 128,
            (WeightFormat::W16, 1) => 120,
            (_, 1) => 72,
            (_, tiles) => 64 + 16 * tiles,
        };
        ((2048 + self.clusters * registers / 2) / (self.clusters * registers)).max(1)
    }

    fn room(self, x: ActivationLayout) -> Room {
        let partials =
            self.rounds * self.clusters * GROUP_ROWS as u32 * x.tile_rows() * self.groups * self.tiles;
        Room { workgroup: self.clusters * CLUSTER, shared_len_bytes: 4 * partials, exchanged: 1 }
    }
}

/// `out = [add +] snap(acc [+ bias])`, `acc = sum over s ascending of T_s*D_s` (`core::numerics::linear`), of up to about 64
/// rows. Cluster w of a workgroup computes the `T*D` of superblocks w, w + clusters, ...; between barriers, invocations add
/// them up in order, one an output.
///
/// Buffers: [`Operands`], then those of [`Output`]. Reads every weight byte once for each `4*tiles` rows, and for each
/// `16*groups` weight rows the activations (2 bytes an element and row). For 32 elements of 16 weight rows and 4 rows it
/// takes a matrix instruction (W16 and Q3_K and Q6_K two) and, in formats of sub-blocks, 4 integer multiply-adds (8), in
/// formats of blocks 12 operations; Q4_K unpacks with 6. 4 rows cost as much as one.
pub fn split_k(weights: WeightLayout, x: ActivationLayout, epilogue: Epilogue, tuning: SplitK) -> GridKernel {
    assert_eq!(weights.width(), x.width(), "elements of a row");
    let superblocks = weights.superblocks();
    let row_blocks = weights.groups().div_ceil(tuning.groups);
    let tile_blocks = x.tiles().div_ceil(tuning.tiles);
    let kernel = kernel("linear_split_k", tuning.clusters * 32, |k| {
        k.resident(tuning.resident);
        let operands = Operands::declare(k, weights);
        let output = Output::declare(k, epilogue, weights.rows(), x.rows());
        let block = Partials { weights, x, tuning, place: Place::new(k) };
        let partials = k.shared("partials", Scalar::F32, tuning.rounds * tuning.clusters * block.outputs());
        let workgroup = k.group_id();
        let first_group = workgroup / tile_blocks * tuning.groups;
        let first_tile = workgroup % tile_blocks * tuning.tiles;

        prefetch(k, &operands, weights, tuning, first_group);
        let slots = tuning.rounds * tuning.clusters;
        let first = [first_group, first_tile];
        // With more tiles there are no registers for it.
        let is_early = (epilogue.bias || epilogue.add.is_some()) && tuning.tiles == 1;
        let addends: Vec<Addend<'_>> = match is_early {
            true => block.results(k, &output, first).iter().flat_map(|at| addends_of(&output, at)).collect(),
            false => vec![],
        };
        let outputs = block.outputs_of_invocation() as usize;
        let zeros = vec![k.f32(0.0); outputs + addends.len()];
        let carried = k.fold_any([k.u32(0), k.u32(superblocks)], slots, &zeros, |first_s, carried| {
            let (sums, loaded) = carried.split_at(outputs);
            let rounds = [k.u32(0), k.u32(tuning.rounds)];
            let loaded = k.fold_any(rounds, 1, loaded, |round, loaded| {
                let slot = round * tuning.clusters + block.place.cluster;
                let s = first_s + slot;
                // All clusters go through all rounds; what is past the end is the last superblock once more, not stored.
                let s_of_unit = s.min(k.u32(superblocks - 1));
                let at = Superblock { first_group, first_tile, s: s_of_unit };
                let units = block.units(k, &operands, at);
                // The first weights are on their way while the launches that make the rows go on, and what is added at the
                // end while there is something to compute.
                let is_first = (first_s + round).eq(k.u32(0));
                k.when(is_first, || k.wait_launches());
                let loaded =
                    addends.iter().zip(loaded).map(|(addend, &kept)| addend.load_first(k, is_first, kept));
                let loaded = loaded.collect();
                block.compute(k, &operands, (at, units), partials, slot, s.lt(k.u32(superblocks)));
                loaded
            });
            k.barrier();
            let end = (k.u32(superblocks) - first_s).min(k.u32(slots));
            let sums = block.add_in_order(k, partials, end, sums);
            if slots < superblocks {
                k.barrier();
            }
            [sums, loaded].concat()
        });
        let (sums, loaded) = carried.split_at(outputs);
        // Where results are is found once more: registers would have to hold it all the time.
        for (i, (at, &sum)) in block.results(k, &output, first).iter().zip(sums).enumerate() {
            let of_result = loaded.len() / outputs;
            let addends = match is_early {
                true => loaded[i * of_result..][..of_result].to_vec(),
                false => output.load_addends(at),
            };
            output.finish(sum, at, x.tile_rows(), &addends);
        }
    });
    let grid = Grid::Fixed(row_blocks * tile_blocks);
    GridKernel { kernel, grid, flags_a_row: epilogue.flags_a_row(weights.rows()) }
}

/// Words of a line of a cache.
const LINE_LEN: u32 = 32;

/// Asks for the weights of the first groups behind those that registers are about to hold, a line an invocation.
fn prefetch<'k>(
    k: &'k Build,
    operands: &Operands<'k>,
    weights: WeightLayout,
    tuning: SplitK,
    first_group: V<'k>,
) {
    let (len, superblocks) = (weights.group_len(), weights.superblocks());
    let held = len / superblocks * tuning.clusters.min(superblocks) / LINE_LEN * LINE_LEN;
    if tuning.ahead == 0 || held >= len {
        return;
    }
    let offset = k.local_id() * LINE_LEN + held;
    let begins_ahead = k.group_id().lt(k.u32(tuning.ahead));
    k.when(begins_ahead.select(offset.lt(k.u32(len)), k.constant(Scalar::Bool.into(), 0)), || {
        operands.weights.prefetch(first_group * len + offset);
    });
}

/// What is added to a result.
struct Addend<'k> {
    from: Mem<'k>,
    element: V<'k>,
    /// Whether there is such a result.
    exists: V<'k>,
}

fn addends_of<'k>(output: &Output<'k>, at: &At<'k>) -> impl Iterator<Item = Addend<'k>> {
    let exists = at.exists;
    output.addends(at).into_iter().map(move |(from, element)| Addend { from, element, exists })
}

impl<'k> Addend<'k> {
    /// Loads it in the first turn of a loop, and keeps it in the others.
    fn load_first(&self, k: &'k Build, is_first: V<'k>, kept: V<'k>) -> V<'k> {
        let no = k.constant(Scalar::Bool.into(), 0);
        let is_loaded = is_first.select(self.exists, no);
        let [loaded] = k.choose(is_loaded, || [self.from.load(self.element)], || [kept]);
        loaded
    }
}

/// What the clusters of a workgroup hand to each other: `[slot][group][tile][weight row 0..15][row of the tile]`.
#[derive(Clone, Copy)]
struct Partials<'k> {
    weights: WeightLayout,
    x: ActivationLayout,
    tuning: SplitK,
    place: Place<'k>,
}

#[derive(Clone, Copy)]
struct Superblock<'k> {
    first_group: V<'k>,
    first_tile: V<'k>,
    s: V<'k>,
}

impl<'k> Partials<'k> {
    /// Results of a group and tile.
    fn block(&self) -> u32 {
        GROUP_ROWS as u32 * self.x.tile_rows()
    }

    /// Results of a workgroup.
    fn outputs(&self) -> u32 {
        self.block() * self.tuning.groups * self.tuning.tiles
    }

    fn outputs_of_invocation(&self) -> u32 {
        self.outputs().div_ceil(self.tuning.clusters * 32)
    }

    /// The weights of a superblock for a cluster.
    fn units(&self, k: &'k Build, operands: &Operands<'k>, at: Superblock<'k>) -> Vec<Unit<'k>> {
        let last_group = k.u32(self.weights.groups() - 1);
        let unit = |i: u32| {
            let group = (at.first_group + i).min(last_group);
            let from = Global { layout: self.weights, operands: *operands, group, s: at.s };
            Unit::load(self.weights.format(), &self.place, &from)
        };
        (0..self.tuning.groups).map(unit).collect()
    }

    /// `T*D` of a superblock by a cluster.
    fn compute(
        &self,
        k: &'k Build,
        operands: &Operands<'k>,
        (at, units): (Superblock<'k>, Vec<Unit<'k>>),
        partials: Mem<'k>,
        slot: V<'k>,
        exists: V<'k>,
    ) {
        let (form, place, tile_rows) = (self.tuning.form, self.place, self.x.tile_rows());
        let last_tile = k.u32(self.x.tiles() - 1);
        let columns: Vec<(u32, Columns<'k>)> = (0..self.tuning.tiles)
            .flat_map(|i| {
                let tile = (at.first_tile + i).min(last_tile);
                let sets = Columns::of_tile(k, form, &place, self.x, tile);
                sets.into_iter().map(move |set| (i, set))
            })
            .collect();
        let sets: Vec<Columns<'k>> = columns.iter().map(|(_, set)| *set).collect();
        let tile_units = self.x.superblocks();
        let x =
            Activations { layout: self.x, regions: operands.x, tile_units, first_unit: at.s, columns: false };
        let totals = scaled_totals(&Multiply { k, form, place }, &units, &sets, &x);
        let no = k.constant(Scalar::Bool.into(), 0);
        for (group, totals) in (0..).zip(&totals) {
            for ((tile, columns), totals) in columns.iter().zip(totals) {
                let start = slot * self.outputs() + (group * self.tuning.tiles + tile) * self.block();
                k.when(exists.select(columns.is_writer, no), || {
                    for (row, &total) in [place.g, place.g + 8].into_iter().zip(totals) {
                        partials.store(start + row * tile_rows + columns.row, total);
                    }
                });
            }
        }
    }

    /// Adds the slots below `end` to the sums of this invocation's outputs.
    fn add_in_order(&self, k: &'k Build, partials: Mem<'k>, end: V<'k>, sums: &[V<'k>]) -> Vec<V<'k>> {
        let add = |(i, &sum): (u32, &V<'k>)| {
            let at = self.output(k, i);
            let [sum] = k.fold(k.u32(0), end, 1, [sum], |slot, [sum]| {
                [sum + partials.load(slot * self.outputs() + at)]
            });
            sum
        };
        (0..).zip(sums).map(add).collect()
    }

    /// The i-th output of an invocation; beyond the last, the last.
    fn output(&self, k: &'k Build, i: u32) -> V<'k> {
        let at = k.local_id() + i * self.tuning.clusters * 32;
        at.min(k.u32(self.outputs() - 1))
    }

    /// Where the results of an invocation are.
    fn results(&self, k: &'k Build, output: &Output<'k>, first: [V<'k>; 2]) -> Vec<At<'k>> {
        let tile_rows = self.x.tile_rows();
        let result = |i: u32| {
            let holds = (k.local_id() + i * self.tuning.clusters * 32).lt(k.u32(self.outputs()));
            let at = self.output(k, i);
            let (block, inside) = (at / self.block(), at % self.block());
            let (group, tile) = (block / self.tuning.tiles, block % self.tuning.tiles);
            let weight_row = (first[0] + group) * 16 + inside / tile_rows;
            let row = (first[1] + tile) * 4 + inside % tile_rows;
            output.at(weight_row, row, holds)
        };
        (0..self.outputs_of_invocation()).map(result).collect()
    }
}
