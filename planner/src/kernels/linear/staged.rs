//! Operands in shared memory: how they get there, ahead of time where copies are asynchronous, and how weights are read
//! from there.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, Mem, V};
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::region::{Region, Regions};
use unisonic_core::planes::weight::{Plane, WeightFormat, WeightLayout};

use super::operands::{Global, OfRegions, Operands, Words, of_regions};

/// Sizes of the stages, each a superblock of some groups of weight rows and some tiles of rows.
#[derive(Clone, Copy)]
pub struct Stages {
    /// Matrix.
    pub weights: WeightLayout,
    /// Groups of 16 weight rows.
    pub groups: u32,
    /// The rows.
    pub x: RowStages,
}

/// The rows of stages, each a superblock of some tiles.
#[derive(Clone, Copy)]
pub struct RowStages {
    /// What they are multiplied with.
    pub format: WeightFormat,
    /// Rows.
    pub layout: ActivationLayout,
    /// Tiles of 4 rows.
    pub tiles: u32,
    /// Stages.
    pub count: u32,
    /// Invocations that copy.
    pub invocations: u32,
    /// Whether planes and digits lie column by column, as [`Mem::load_b`] takes them, [`COLUMN_LEN`] and [`DIGITS_LEN`] words
    /// each, and not in fragment order.
    pub columns: bool,
}

/// Words from a column of planes to the next: the column's 64 and four that keep eight columns on different banks.
pub const COLUMN_LEN: u32 = 68;

/// Words of a column of digits.
pub const DIGITS_LEN: u32 = 8;

/// Shared memory of the stages.
#[derive(Clone, Copy)]
pub struct Arrays<'k> {
    /// `[stage][group][plane]` of whole units.
    weights: Mem<'k>,
    /// Of the rows.
    pub x: RowArrays<'k>,
}

/// Of each region that is read, `[stage][tile]` of units.
pub type RowArrays<'k> = OfRegions<Mem<'k>>;

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

    fn weights_len(self) -> u32 {
        self.x.count * self.groups * self.unit_len()
    }

    /// Bytes of shared memory.
    pub fn len_bytes(self) -> u32 {
        4 * self.weights_len() + self.x.len_bytes()
    }

    /// Declares the arrays.
    pub fn declare<'k>(self, k: &'k Build) -> Arrays<'k> {
        Arrays { weights: k.shared("staged_weights", Scalar::U32, self.weights_len()), x: self.x.declare(k) }
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
        let stage = s % self.x.count;
        for &plane in self.weights.format().planes() {
            let len = self.weights.unit_len(plane);
            each_quad(k, self.x.invocations, self.groups, len, |group, at| {
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
        self.x.begin(k, &operands.x, &arrays.x, first_tile, s);
    }
}

impl RowStages {
    /// Elements of a region in all stages.
    fn region_len(self, region: Region) -> u32 {
        let unit_len = match region {
            Region::Planes if self.columns => self.layout.columns() * COLUMN_LEN,
            _ => self.layout.unit_len(region),
        };
        self.count * self.tiles * unit_len
    }

    /// Bytes of shared memory.
    pub fn len_bytes(self) -> u32 {
        4 * Regions::read_by(&[self.format]).iter().map(|region| self.region_len(region)).sum::<u32>()
    }

    /// Declares the arrays.
    pub fn declare<'k>(self, k: &'k Build) -> RowArrays<'k> {
        of_regions(self.format, |region| {
            k.shared(&format!("staged_{}", region.name()), region.scalar(), self.region_len(region))
        })
    }

    /// What is needed of superblock `s` of the tiles from `first_tile` on, in registers: for devices whose copies are not
    /// asynchronous. There is one stage, and [`Held::store`] fills it.
    pub fn load<'k>(
        self,
        k: &'k Build,
        from: &RowArrays<'k>,
        to: &RowArrays<'k>,
        first_tile: V<'k>,
        s: V<'k>,
    ) -> Vec<Held<'k>> {
        let mut held = vec![];
        for region in Region::ALL {
            let (Some(to), Some(from)) = (to[region.index()], from[region.index()]) else {
                continue;
            };
            let len = self.layout.unit_len(region);
            let quads = self.tiles * len / 4;
            for first in (0..quads).step_by(self.invocations as usize) {
                // Past the end, the last four once more, which are not stored.
                let exists =
                    (first + self.invocations > quads).then(|| (k.local_id() + first).lt(k.u32(quads)));
                let quad = k.local_id() + first;
                let quad = if exists.is_some() { quad.min(k.u32(quads - 1)) } else { quad };
                let (tile, at) = (quad >> (len / 4).trailing_zeros(), (quad & (len / 4 - 1)) * 4);
                let unit = self.unit(k, first_tile + tile, s);
                let four = from.load_vector(unit * len + at, 4);
                let places = match self.places_in_columns(region, tile, at) {
                    Some(places) => {
                        places.into_iter().zip(0..).map(|(to, part)| (to, four.part(part))).collect()
                    }
                    None => vec![(quad * 4, four)],
                };
                held.push(Held { to, places, exists });
            }
        }
        held
    }

    /// Where the four elements from `at` of a tile's unit on go, where the region lies column by column.
    fn places_in_columns<'k>(self, region: Region, tile: V<'k>, at: V<'k>) -> Option<[V<'k>; 4]> {
        match region {
            // Words t and 4 + t of two blocks of the column.
            Region::Planes if self.columns => {
                let (chunk, column, t) = (at >> 7, tile * 8 + ((at >> 4) & 7), (at >> 2) & 3);
                let first = column * COLUMN_LEN + chunk * 16 + t;
                Some([0, 4, 8, 12].map(|word| first + word))
            }
            // Words t and 4 + t, then t + 1 and 5 + t of the column.
            Region::Digits(_) if self.columns => {
                let (column, t) = (tile * 8 + (at >> 3), (at >> 1) & 3);
                let first = column * DIGITS_LEN + t;
                Some([0, 4, 1, 5].map(|word| first + word))
            }
            _ => None,
        }
    }

    /// The unit of a tile and superblock; past the last tile, that of the last.
    fn unit<'k>(self, k: &'k Build, tile: V<'k>, s: V<'k>) -> V<'k> {
        tile.min(k.u32(self.layout.tiles() - 1)) * self.layout.superblocks() + s
    }

    /// Begins to copy superblock `s` of the tiles from `first_tile` on into its stage.
    pub fn begin<'k>(
        self,
        k: &'k Build,
        from: &RowArrays<'k>,
        to: &RowArrays<'k>,
        first_tile: V<'k>,
        s: V<'k>,
    ) {
        let stage = s % self.count;
        for region in Region::ALL {
            let (Some(to), Some(from)) = (to[region.index()], from[region.index()]) else {
                continue;
            };
            let len = self.layout.unit_len(region);
            each_quad(k, self.invocations, self.tiles, len, |tile, at| {
                let unit = self.unit(k, first_tile + tile, s);
                to.copy_async((stage * self.tiles + tile) * len + at, from, unit * len + at);
            });
        }
    }
}

/// Four elements on their way to a stage.
pub struct Held<'k> {
    to: Mem<'k>,
    places: Vec<(V<'k>, V<'k>)>,
    exists: Option<V<'k>>,
}

impl Held<'_> {
    /// Writes them.
    pub fn store(&self, k: &Build) {
        let store = || self.places.iter().for_each(|&(index, value)| self.to.store(index, value));
        match self.exists {
            Some(exists) => k.when(exists, store),
            None => store(),
        }
    }
}

/// For each four elements of some units: the number of the unit and the place in it. All lengths are powers of two.
fn each_quad<'k>(k: &'k Build, invocations: u32, units: u32, len: u32, mut copy: impl FnMut(V<'k>, V<'k>)) {
    let (quads, of_unit) = (units * len / 4, len / 4);
    let mut first = 0;
    while first < quads {
        let quad = k.local_id() + first;
        let mut one = || copy(quad >> of_unit.trailing_zeros(), (quad & (of_unit - 1)) * 4);
        match first + invocations <= quads {
            true => one(),
            false => k.when(quad.lt(k.u32(quads)), one),
        }
        first += invocations;
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
