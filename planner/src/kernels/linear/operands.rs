//! What a linear layer reads and writes, and where an invocation finds its part of it.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, Mem, V};
use unisonic_core::planes::activation::{ActivationLayout, TILE_ROWS};
use unisonic_core::planes::digits::Digits;
use unisonic_core::planes::region::Region;
use unisonic_core::planes::weight::{Plane, WeightFormat, WeightLayout};

use super::Form;
use super::staged::{COLUMN_LEN, DIGITS_LEN};

/// What there is of each region, by [`Region::index`].
pub type OfRegions<T> = [Option<T>; Region::ALL.len()];

/// Something of each region that weights of a format read.
pub fn of_regions<T>(format: WeightFormat, of: impl Fn(Region) -> T) -> OfRegions<T> {
    Region::ALL.map(|region| region.is_read_by(format).then(|| of(region)))
}

/// Buffers that a linear layer reads, in the order of the kernel: `weights` (u32), then the regions of the
/// activations that the format reads, each by its name ([`Region::name`]) behind `x_`.
#[derive(Clone, Copy)]
pub struct Operands<'k> {
    /// The matrix.
    pub weights: Mem<'k>,
    /// The activations.
    pub x: OfRegions<Mem<'k>>,
}

impl<'k> Operands<'k> {
    /// Declares them.
    pub fn declare(k: &'k Build, weights: WeightLayout) -> Self {
        let buffer = |region: Region| k.read(&format!("x_{}", region.name()), region.scalar());
        Self { weights: k.read("weights", Scalar::U32), x: of_regions(weights.format(), buffer) }
    }
}

/// Where an invocation is: a cluster of the workgroup, lane `4g + t` of it.
#[derive(Clone, Copy)]
pub struct Place<'k> {
    /// Cluster of 32 invocations.
    pub cluster: V<'k>,
    /// Number in it.
    pub lane: V<'k>,
    /// Weight row, of those of a group g and g + 8.
    pub g: V<'k>,
    /// Elements `4t..` and `16+4t..` of blocks; row of a tile.
    pub t: V<'k>,
}

impl<'k> Place<'k> {
    /// Of this invocation.
    pub fn new(k: &'k Build) -> Self {
        let id = k.local_id();
        let lane = id & 31;
        Self { cluster: id >> 5, lane, g: lane >> 2, t: lane & 3 }
    }
}

/// Words of the planes of a group and superblock, wherever they have been brought to.
pub trait Words<'k> {
    /// Word `at` of run `run` of 128 words of a plane of integers, and those after it.
    fn run(&self, plane: Plane, run: u32, at: V<'k>) -> V<'k>;

    /// Words of another plane, this many from word `at` of its unit on.
    fn words(&self, plane: Plane, at: V<'k>, width: u8) -> V<'k>;
}

/// Planes in the buffer of the matrix.
#[derive(Clone, Copy)]
pub struct Global<'k> {
    /// Layout.
    pub layout: WeightLayout,
    /// Buffers.
    pub operands: Operands<'k>,
    /// Group of 16 rows.
    pub group: V<'k>,
    /// Superblock.
    pub s: V<'k>,
}

impl<'k> Global<'k> {
    /// First word of the group's plane.
    fn start(&self, plane: Plane) -> V<'k> {
        self.group * self.layout.group_len() + self.layout.plane_offset(plane)
    }

    /// The word that [`Words::run`] begins at. Past the end of a row that is no whole superblocks is its last
    /// run: what it is multiplied with is zero.
    pub fn run_index(&self, plane: Plane, run: V<'k>, at: V<'k>) -> V<'k> {
        let (unit, len) = (self.layout.unit_len(plane), self.layout.plane_len(plane));
        let number = self.s * (unit / 128) + run;
        let is_short = len < unit * self.layout.superblocks();
        let number = if is_short { number.min(number.constant(len / 128 - 1)) } else { number };
        self.start(plane) + number * 128 + at
    }

    /// The word that [`Words::words`] begins at.
    pub fn word_index(&self, plane: Plane, at: V<'k>) -> V<'k> {
        self.start(plane) + self.s * self.layout.unit_len(plane) + at
    }
}

impl<'k> Words<'k> for Global<'k> {
    fn run(&self, plane: Plane, run: u32, at: V<'k>) -> V<'k> {
        self.operands.weights.load_stream(self.run_index(plane, at.constant(run), at), 4)
    }

    fn words(&self, plane: Plane, at: V<'k>, width: u8) -> V<'k> {
        self.operands.weights.load_vector(self.word_index(plane, at), width)
    }
}

/// Rows of a tile that the invocations of a cluster work on: in [`Form::Matrix`] row t, in [`Form::Dot4`] one
/// row together.
#[derive(Clone, Copy)]
pub struct Columns<'k> {
    /// Tile.
    pub tile: V<'k>,
    /// Row of the tile whose results this invocation has.
    pub row: V<'k>,
    /// Whether it is this invocation that hands them on.
    pub is_writer: V<'k>,
    /// Columns of the planes that it multiplies with: its own, or those of h and l.
    columns: [V<'k>; 2],
    form: Form,
}

impl<'k> Columns<'k> {
    /// Those of one row of a tile, in [`Form::Dot4`].
    pub fn of_row(place: &Place<'k>, tile: V<'k>, row: V<'k>) -> Self {
        let high = row << 1;
        let is_writer = place.t.eq(place.t.constant(0));
        Self { tile, row, is_writer, columns: [high, high + 1], form: Form::Dot4 }
    }

    /// Those of a tile: one set with all rows, or a set a row.
    pub fn of_tile(
        k: &'k Build,
        form: Form,
        place: &Place<'k>,
        x: ActivationLayout,
        tile: V<'k>,
    ) -> Vec<Self> {
        let rows = x.tile_rows();
        match form {
            Form::Matrix => {
                let row = if rows == TILE_ROWS as u32 { place.t } else { place.t & (rows - 1) };
                let column = if rows == TILE_ROWS as u32 { place.g } else { place.g & (x.columns() - 1) };
                let is_writer = place.t.lt(k.u32(rows));
                vec![Self { tile, row, is_writer, columns: [column; 2], form }]
            }
            Form::Dot4 => {
                let one = |row: u32| {
                    let columns = [k.u32(2 * row), k.u32(2 * row + 1)];
                    Self { tile, row: k.u32(row), is_writer: place.t.eq(k.u32(0)), columns, form }
                };
                (0..rows).map(one).collect()
            }
        }
    }

    /// What `load` gives for each column.
    pub fn each<T>(&self, load: impl Fn(V<'k>) -> T) -> Vec<T> {
        let count = if self.form == Form::Matrix { 1 } else { 2 };
        self.columns[..count].iter().map(|&column| load(column)).collect()
    }
}

/// A superblock of activations, in their buffers or wherever they have been brought to.
#[derive(Clone, Copy)]
pub struct Activations<'k> {
    /// Layout.
    pub layout: ActivationLayout,
    /// Of each region.
    pub regions: OfRegions<Mem<'k>>,
    /// Units from a tile to the next.
    pub tile_units: u32,
    /// The unit of tile 0.
    pub first_unit: V<'k>,
    /// Whether planes and digits lie column by column (`RowStages::columns`).
    pub columns: bool,
}

impl<'k> Activations<'k> {
    /// `width` elements of a region from `at` of a tile's unit on.
    fn load(&self, region: Region, tile: V<'k>, at: V<'k>, width: u8) -> V<'k> {
        let Some(from) = self.regions[region.index()] else {
            panic!("the format was said not to read {}", region.name())
        };
        let unit = tile * self.tile_units + self.first_unit;
        from.load_vector(unit * self.layout.unit_len(region) + at, width)
    }

    /// For each of the two blocks of a chunk, the two words of a column for invocations t.
    pub fn planes(&self, k: &'k Build, tile: V<'k>, chunk: u32, column: V<'k>, t: V<'k>) -> [V<'k>; 2] {
        if self.columns
            && let Some(planes) = self.regions[Region::Planes.index()]
        {
            // A matrix has all columns of the tile.
            let first = (tile * self.tile_units + self.first_unit) * (self.layout.columns() * COLUMN_LEN);
            return [0, 8].map(|block| planes.load_b(first + (16 * chunk + block), COLUMN_LEN));
        }
        let at = column * 16 + t * 4 + 16 * chunk * self.layout.columns();
        let four = self.load(Region::Planes, tile, at, 4);
        [0, 2].map(|first| k.vector([four.part(first), four.part(first + 1)]))
    }

    /// The two words of digits of a column for invocations t.
    pub fn digits(&self, digits: Digits, tile: V<'k>, column: V<'k>, t: V<'k>) -> V<'k> {
        if self.columns
            && let Some(of) = self.regions[Region::Digits(digits).index()]
        {
            let first = (tile * self.tile_units + self.first_unit) * (self.layout.columns() * DIGITS_LEN);
            return of.load_b(first, DIGITS_LEN);
        }
        self.load(Region::Digits(digits), tile, column * 8 + t * 2, 2)
    }

    /// The sums of half a superblock of a row of the tile.
    pub fn sums(&self, tile: V<'k>, row: V<'k>, half: u32) -> V<'k> {
        self.load(Region::Sums, tile, row * 8 + 4 * half, 4)
    }

    /// D of a row of the tile.
    pub fn scale(&self, tile: V<'k>, row: V<'k>) -> V<'k> {
        self.load(Region::Scales, tile, row, 1)
    }
}
