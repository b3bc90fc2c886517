//! Operands in shared memory: how they get there ahead of time, and how weights are read from there.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, Mem, V};
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::weight::{Plane, WeightLayout};

use super::operands::{Global, Operands, Region, Words};

/// Sizes of the stages, each a superblock of some groups of weight rows and some tiles of rows.
#[derive(Clone, Copy)]
pub struct Stages {
    /// Matrix.
    pub weights: WeightLayout,
    /// Rows.
    pub x: ActivationLayout,
    /// Groups of 16 weight rows.
    pub groups: u32,
    /// Tiles of 4 rows.
    pub tiles: u32,
    /// Stages.
    pub count: u32,
    /// Invocations that copy.
    pub threads: u32,
}

/// Shared memory of the stages.
#[derive(Clone, Copy)]
pub struct Arrays<'k> {
    /// `[stage][group][plane]` of whole units.
    weights: Mem<'k>,
    /// `[stage][tile]` of units, of each region that is needed.
    pub x: [Option<Mem<'k>>; 4],
}

impl Stages {
    /// Words of a group: all planes.
    fn unit_len(self) -> u32 {
        self.weights.format().planes().iter().map(|&plane| self.weights.unit_len(plane)).sum()
    }

    /// Where a plane begins in them.
    fn plane_start(self, plane: Plane) -> u32 {
        let planes = self.weights.format().planes().iter();
        planes.take_while(|&&other| other != plane).map(|&other| self.weights.unit_len(other)).sum()
    }

    /// Elements of a region in all stages; none where it is not needed.
    fn region_len(self, region: Region) -> Option<u32> {
        let is_needed = region.is_needed(self.weights.format());
        is_needed.then(|| self.count * self.tiles * region.unit_len(self.x))
    }

    /// Bytes of shared memory.
    pub fn len_bytes(self) -> u32 {
        let x: u32 = Region::ALL.iter().filter_map(|&region| self.region_len(region)).sum();
        4 * (self.count * self.groups * self.unit_len() + x)
    }

    /// Declares the arrays.
    pub fn declare<'k>(self, k: &'k Build) -> Arrays<'k> {
        let names = ["staged_planes", "staged_scales", "staged_digits", "staged_sums"];
        let array = |region: Region| {
            let len = self.region_len(region)?;
            Some(k.shared(names[region as usize], region.scalar(), len))
        };
        let weights = k.shared("staged_weights", Scalar::U32, self.count * self.groups * self.unit_len());
        Arrays { weights, x: Region::ALL.map(array) }
    }

    /// Begins to copy superblock `s` of the groups and tiles from `first` on into its stage. What does not exist is the last
    /// that does, and nobody looks at the result.
    pub fn begin<'k>(
        self,
        k: &'k Build,
        operands: &Operands<'k>,
        arrays: &Arrays<'k>,
        [first_group, first_tile]: [V<'k>; 2],
        s: V<'k>,
    ) {
        let stage = s % self.count;
        for &plane in self.weights.format().planes() {
            let len = self.weights.unit_len(plane);
            self.each_quad(k, self.groups, len, |group, at| {
                let from = Global {
                    layout: self.weights,
                    operands: *operands,
                    group: (first_group + group).min(k.u32(self.weights.groups() - 1)),
                    s,
                };
                let is_run = len >= 128 && plane != Plane::FloatScales;
                let from = match is_run {
                    true => from.run_index(plane, at >> 7, at & 127),
                    false => from.word_index(plane, at),
                };
                let to = (stage * self.groups + group) * self.unit_len() + self.plane_start(plane) + at;
                arrays.weights.copy_async(to, operands.weights, from);
            });
        }
        for region in Region::ALL {
            let (Some(to), Some(from)) = (arrays.x[region as usize], operands.x[region as usize]) else {
                continue;
            };
            let len = region.unit_len(self.x);
            self.each_quad(k, self.tiles, len, |tile, at| {
                let unit = (first_tile + tile).min(k.u32(self.x.tiles() - 1)) * self.x.superblocks() + s;
                to.copy_async((stage * self.tiles + tile) * len + at, from, unit * len + at);
            });
        }
    }

    /// For each four elements of some units: the number of the unit and the place in it. All lengths are powers of two.
    fn each_quad<'k>(self, k: &'k Build, units: u32, len: u32, copy: impl Fn(V<'k>, V<'k>)) {
        let (quads, of_unit) = (units * len / 4, len / 4);
        let mut first = 0;
        while first < quads {
            let quad = k.local_id() + first;
            let one = || copy(quad >> of_unit.trailing_zeros(), (quad & (of_unit - 1)) * 4);
            match first + self.threads <= quads {
                true => one(),
                false => k.when(quad.lt(k.u32(quads)), one),
            }
            first += self.threads;
        }
    }
}

impl<'k> Arrays<'k> {
    /// The planes of a group in a stage.
    pub fn words(&self, stages: Stages, stage: V<'k>, group: V<'k>) -> StagedWords<'k> {
        let first = (stage * stages.groups + group) * stages.unit_len();
        StagedWords { stages, weights: self.weights, first }
    }
}

/// Planes in shared memory.
pub struct StagedWords<'k> {
    stages: Stages,
    weights: Mem<'k>,
    first: V<'k>,
}

impl<'k> Words<'k> for StagedWords<'k> {
    fn run(&self, plane: Plane, run: u32, at: V<'k>) -> V<'k> {
        self.words(plane, at + 128 * run, 4)
    }

    fn words(&self, plane: Plane, at: V<'k>, width: u8) -> V<'k> {
        self.weights.load_vector(self.first + self.stages.plane_start(plane) + at, width)
    }
}
