//! A16 rows as kernels write them: a cluster of 32 invocations has a superblock of a row in its registers.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, Mem, V};
use unisonic_core::numerics::a16::scales_len;
use unisonic_core::numerics::range::ACTIVATION_LIMIT;
use unisonic_core::planes::digits::Digits;
use unisonic_core::planes::region::{Region, Regions};

use super::elementary::abs_bits;
use super::quantizer::{Bits, Quantizer, pack, split};
use super::reduce::{CLUSTER, cluster_max};

/// Elements of a superblock, and of a pass of a cluster over a row.
pub const SUPERBLOCK: u32 = unisonic_core::numerics::a16::SUPERBLOCK as u32;

/// What a quantising kernel writes: the regions of [`unisonic_core::planes::activation`] for rows of `width`
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct A16Form {
    /// Values of a row.
    pub width: u32,
    /// Rows of a tile that have a place, 1, 2 or 4: `ActivationLayout::tile_rows` of the rows of the buffer.
    pub tile_rows: u32,
    /// What the weights need that read the rows.
    pub regions: Regions,
}

impl A16Form {
    /// Superblocks of a row.
    pub fn superblocks(self) -> u32 {
        scales_len(self.width as usize) as u32
    }
}

/// The objects of an A16 result: those of the form's regions, in their order and with their names.
#[derive(Clone, Copy)]
pub struct A16Out<'k> {
    k: &'k Build,
    form: A16Form,
    planes: Mem<'k>,
    scales: Mem<'k>,
    digits: [Option<Mem<'k>>; 2],
    sums: Option<Mem<'k>>,
}

/// Where a cluster is: superblock `s` of row `row`, and the invocation in it.
#[derive(Clone, Copy)]
pub struct Place<'k> {
    /// Row of the batch.
    pub row: V<'k>,
    /// Superblock of the row.
    pub s: V<'k>,
    /// Whether the row has such a superblock; else nothing is stored.
    pub exists: V<'k>,
    /// Number of the invocation in its cluster, 4b + t.
    pub lane: V<'k>,
}

impl<'k> Place<'k> {
    /// Of an invocation whose cluster has superblock `s` of a row of `width` values.
    pub fn new(k: &'k Build, row: V<'k>, s: V<'k>, width: u32) -> Self {
        let exists = s.lt(k.u32(width.div_ceil(SUPERBLOCK)));
        Self { row, s, exists, lane: k.local_id() & (CLUSTER - 1) }
    }

    /// Columns of the row at which the invocation's two vectors of four begin: with lane 4b + t, elements
    /// 4t.. and 16 + 4t.. of sub-block b of 32, as a matrix instruction takes them.
    pub fn columns(self) -> [V<'k>; 2] {
        let first = self.s * SUPERBLOCK + ((self.lane >> 2) << 5) + ((self.lane & 3) << 2);
        [first, first + 16]
    }
}

/// Four values of a row of `width` from element `column` on, which `at(first, len)` loads: zeros past the
/// row.
pub fn four<'k>(k: &'k Build, width: u32, column: V<'k>, at: impl Fn(V<'k>, u8) -> V<'k>) -> V<'k> {
    let zero = k.f32(0.0);
    if width.is_multiple_of(4) {
        let zeros = k.vector([zero; 4]);
        let [four] = k.choose(column.lt(k.u32(width)), || [at(column, 4)], || [zeros]);
        return four;
    }
    let parts = [0, 1, 2, 3].map(|i| {
        let column = column + i;
        let [one] = k.choose(column.lt(k.u32(width)), || [at(column, 1)], || [zero]);
        one
    });
    k.vector(parts)
}

/// Stores what of four values lies in a row of `width`.
pub fn store_four<'k>(k: &'k Build, out: Mem<'k>, first: V<'k>, width: u32, column: V<'k>, four: V<'k>) {
    if width.is_multiple_of(4) {
        k.when(column.lt(k.u32(width)), || out.store(first + column, four));
    } else {
        for i in 0..4 {
            let column = column + i;
            k.when(column.lt(k.u32(width)), || out.store(first + column, four.part(i)));
        }
    }
}

impl<'k> A16Out<'k> {
    /// Declares the objects of a form.
    pub fn declare(k: &'k Build, form: A16Form) -> Self {
        let write = |region: Region| k.write(region.name(), region.scalar());
        let beside = |region: Region| form.regions.has(region).then(|| write(region));
        Self {
            k,
            form,
            planes: write(Region::Planes),
            scales: write(Region::Scales),
            digits: Digits::ALL.map(|digits| beside(Region::Digits(digits))),
            sums: beside(Region::Sums),
        }
    }

    /// Quantises and stores a superblock, `values` at [`Place::columns`], zeros past the row. Returns whether
    /// it is in range. Reached by the whole workgroup. 2.06 bytes an element, about 15 operations.
    pub fn store(&self, at: Place<'k>, values: [V<'k>; 2]) -> V<'k> {
        let k = self.k;
        let largest = |four: V<'k>| {
            let bits = abs_bits(four);
            bits.part(0).max(bits.part(1)).max(bits.part(2).max(bits.part(3)))
        };
        let amax = cluster_max(largest(values[0]).max(largest(values[1])), CLUSTER).cast(Scalar::F32);
        let quantizer = Quantizer::new(k, Bits::Sixteen, amax, ACTIVATION_LIMIT);
        let integers = values.map(|four| quantizer.integers(k, four));

        let (b, t) = (at.lane >> 2, at.lane & 3);
        let row_of_tile = at.row & 3;
        let unit = (at.row >> 2) * self.form.superblocks() + at.s;
        let columns = 2 * self.form.tile_rows;
        let chunk = unit * self.unit_len(Region::Planes) + (b >> 1) * (16 * columns);
        let word = chunk + (row_of_tile << 5) + (t << 2) + ((b & 1) << 1);
        let [(h0, l0), (h1, l1)] = integers.map(split);
        k.when(at.exists, || {
            self.planes.store(word, k.vector([pack(k, h0), pack(k, h1)]));
            self.planes.store(word + 16, k.vector([pack(k, l0), pack(k, l1)]));
        });
        k.when(at.exists & at.lane.eq(k.u32(0)), || {
            self.scales.store(unit * self.unit_len(Region::Scales) + row_of_tile, quantizer.scale);
        });
        self.store_sums(at, unit, integers);
        quantizer.in_range
    }

    /// The sums over sub-blocks, as digits and as floats. The four invocations 4b.. have sub-block b.
    fn store_sums(&self, at: Place<'k>, unit: V<'k>, integers: [V<'k>; 2]) {
        let k = self.k;
        if self.form.regions == Regions::LEAST {
            return;
        }
        let halves = integers.map(|four| {
            let sum = (four.part(0) + four.part(1)) + (four.part(2) + four.part(3));
            let sum = sum + sum.shuffle_xor(8, 1);
            sum + sum.shuffle_xor(8, 2)
        });
        let sum = halves[0] + halves[1];
        let (b, t) = (at.lane >> 2, at.lane & 3);
        if let Some(sums) = self.sums {
            k.when(at.exists & t.eq(k.u32(0)), || {
                let index = unit * self.unit_len(Region::Sums) + ((at.row & 3) << 3) + b;
                sums.store(index, sum.to_f32());
            });
        }
        for (digits, to) in Digits::ALL.into_iter().zip(self.digits) {
            let Some(to) = to else { continue };
            let parts = match digits {
                Digits::Eight => self.digits_of_8(at, sum),
                Digits::Sixteen => self.digits_of_16(at, halves),
            };
            for (part, (word, number, is_mine)) in (0..).zip(parts) {
                let column = ((at.row & 3) << 1) + part;
                let first = unit * self.unit_len(Region::Digits(digits));
                let index = first + (column << 3) + ((number & 3) << 1) + (number >> 2);
                k.when(at.exists & is_mine, || to.store(index, word));
            }
        }
    }

    fn unit_len(&self, region: Region) -> u32 {
        region.unit_len(self.form.tile_rows)
    }

    /// For u and v: a word of four digits, its number, and whether this invocation stores it. Invocation t of
    /// a sub-block makes its digit e = t: `e0 + 2*(e1 + e2 + e3)`.
    fn digits_of_8(&self, at: Place<'k>, sum: V<'k>) -> [(V<'k>, V<'k>, V<'k>); 2] {
        let k = self.k;
        let (b, t) = (at.lane >> 2, at.lane & 3);
        let limit = |x: V<'k>| x.max(k.i32(-127)).min(k.i32(127));
        split_sum(sum).map(|x| {
            let half = x >> 1;
            let e1 = limit(half);
            let e2 = limit(half - e1);
            let e3 = half - e1 - e2;
            let first = t.lt(k.u32(1)).select(x & 1, e1);
            let digit = t.lt(k.u32(2)).select(first, t.lt(k.u32(3)).select(e2, e3));
            // Four sub-blocks on end are sixteen invocations.
            let others = [4, 8, 12].map(|mask| digit.shuffle_xor(16, mask));
            let word = k.pack([digit, others[0], others[1], others[2]]);
            (word, (t << 1) + (b >> 2), (b & 3).eq(k.u32(0)))
        })
    }

    /// The same for sub-blocks of 16, of which a sub-block of 32 has two: `e0 + 8*e1`.
    fn digits_of_16(&self, at: Place<'k>, halves: [V<'k>; 2]) -> [(V<'k>, V<'k>, V<'k>); 2] {
        let k = self.k;
        let (b, t) = (at.lane >> 2, at.lane & 3);
        let [u, v] = [0, 1].map(|part| {
            halves.map(|sum| {
                let x = split_sum(sum)[part];
                t.eq(k.u32(0)).select(x & 7, x >> 3)
            })
        });
        [u, v].map(|[first, second]| {
            let others = [first, second].map(|digit| digit.shuffle_xor(8, 4));
            let word = k.pack([first, second, others[0], others[1]]);
            let is_mine = (b & 1).eq(k.u32(0)) & t.lt(k.u32(2));
            (word, (t << 2) + (b >> 1), is_mine)
        })
    }
}

/// `bs = u + 1024*v`.
fn split_sum(sum: V<'_>) -> [V<'_>; 2] {
    let u = ((sum + 512) & 1023) - 512;
    [u, (sum - u) >> 10]
}
