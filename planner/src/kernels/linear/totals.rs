//! T of a superblock: 16 weight rows times the rows of some tiles (`core::numerics::linear`,
//! `core::numerics::w16`).

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::planes::digits::Digits;
use unisonic_core::planes::weight::{Plane, WeightFormat};

use super::super::elementary::snap;
use super::Form;
use super::integers::{Integers, parts};
use super::operands::{Activations, Columns, Place, Words};
use super::scales::{Scales, minima_registers, scales_fit_bytes};

/// Sixteen weight rows and a superblock.
pub struct Unit<'k> {
    integers: Integers<'k>,
    scales: Scales<'k>,
    format: WeightFormat,
}

impl<'k> Unit<'k> {
    /// Loads all of it.
    pub fn load(format: WeightFormat, place: &Place<'k>, from: &impl Words<'k>) -> Self {
        let integers = Integers::load(format, place, from);
        Self { integers, scales: Scales::load(format, place, from), format }
    }
}

/// What invocations that hold the elements of a product compute together: the sums of rows g and g + 8 (i =
/// 0, 1) on planes h and l, `c[2i + plane]`; in [`Form::Dot4`] over the elements of this invocation only.
type Sums<'k> = [V<'k>; 4];

/// How a cluster multiplies.
pub struct Multiply<'k> {
    /// The kernel.
    pub k: &'k Build,
    /// Form.
    pub form: Form,
    /// Where the invocation is.
    pub place: Place<'k>,
}

impl<'k> Multiply<'k> {
    /// `c + a x`: registers of a block, and two words of each column.
    fn product(&self, a: [V<'k>; 4], x: &[V<'k>], c: Sums<'k>) -> Sums<'k> {
        match self.form {
            Form::Matrix => parts(self.k.mma(self.k.vector(a), x[0], self.k.vector(c))),
            Form::Dot4 => std::array::from_fn(|n| {
                let (row, x) = (n / 2, x[n % 2]);
                self.k.dot4(a[row + 2], x.part(1), self.k.dot4(a[row], x.part(0), c[n]))
            }),
        }
    }

    /// The same for a half of the block: registers of rows g and g + 8.
    fn product16(&self, a: [V<'k>; 2], x: &[V<'k>], half: u32, c: Sums<'k>) -> Sums<'k> {
        match self.form {
            Form::Matrix => parts(self.k.mma(self.k.vector(a), x[0].part(half), self.k.vector(c))),
            Form::Dot4 => std::array::from_fn(|n| self.k.dot4(a[n / 2], x[n % 2].part(half), c[n])),
        }
    }

    /// A sum over all elements, from what each invocation has of it.
    fn whole(&self, sum: V<'k>) -> V<'k> {
        match self.form {
            Form::Matrix => sum,
            Form::Dot4 => {
                let sum = sum + sum.shuffle_xor(8, 1);
                sum + sum.shuffle_xor(8, 2)
            }
        }
    }
}

/// The byte of sub-block j.
fn byte<'k>(words: &[V<'k>], j: u32) -> V<'k> {
    words[j as usize / 4].cast(Scalar::I8x4).byte(j % 4)
}

/// A running total of rows g and g + 8.
#[derive(Clone, Copy)]
enum Running<'k> {
    /// T of the blocks so far.
    Floats([V<'k>; 2]),
    /// Integer sums of the superblock so far.
    Integers(Sums<'k>),
}

/// What a superblock is multiplied with beside the planes.
struct Tail<'k> {
    /// Digits where the format has integer minima: two words of each column.
    digits: Option<(Digits, Vec<V<'k>>)>,
    /// D of the row.
    scale: V<'k>,
}

/// `T*D` (for W16 `snap(T*(D*128))`) of rows g and g + 8 of each unit, for each set of columns:
/// `[unit][columns]`.
///
/// A single set of columns is read before anything is computed; of several, each chunk of 64 elements when
/// its turn comes, which needs fewer registers.
pub fn scaled_totals<'k>(
    multiply: &Multiply<'k>,
    units: &[Unit<'k>],
    columns: &[Columns<'k>],
    x: &Activations<'k>,
) -> Vec<Vec<[V<'k>; 2]>> {
    let (k, t, format) = (multiply.k, multiply.place.t, units[0].format);
    let chunk = |c: u32, columns: &Columns<'k>| columns.each(|n| x.planes(k, columns.tile, c, n, t));
    let sums = |half: u32, columns: &Columns<'k>| {
        format.has(Plane::BlockMinima).then(|| x.sums(columns.tile, columns.row, half))
    };
    let tail = |columns: &Columns<'k>| Tail {
        digits: Digits::of(format)
            .map(|digits| (digits, columns.each(|n| x.digits(digits, columns.tile, n, t)))),
        scale: x.scale(columns.tile, columns.row),
    };
    let early = (columns.len() == 1).then(|| {
        let chunks: [_; 4] = std::array::from_fn(|c| chunk(c as u32, &columns[0]));
        (chunks, [0, 1].map(|half| sums(half, &columns[0])), tail(&columns[0]))
    });

    let mut running: Vec<Vec<Running<'k>>> =
        units.iter().map(|unit| vec![unit.start(k); columns.len()]).collect();
    let mut of_half: Vec<Option<V<'k>>> = vec![];
    for c in 0..4 {
        if c % 2 == 0 {
            of_half = match &early {
                Some((_, halves, _)) => vec![halves[c as usize / 2]],
                None => columns.iter().map(|columns| sums(c / 2, columns)).collect(),
            };
        }
        // Of all units, so that each set of columns is read once and needed no longer than it takes.
        let blocks = [2 * c, 2 * c + 1]
            .map(|b| units.iter().map(|unit| Block::new(multiply, unit, b)).collect::<Vec<_>>());
        for (number, set) in columns.iter().enumerate() {
            let chunk =
                early.as_ref().map_or_else(|| chunk(c, set), |(chunks, ..)| chunks[c as usize].clone());
            for (unit, block) in blocks.iter().flat_map(|blocks| blocks.iter().enumerate()) {
                let sum = of_half[number].map(|four| four.part(block.b % 4));
                running[unit][number] = block.add(running[unit][number], &chunk, sum);
            }
        }
    }
    let tails: Vec<Tail<'k>> = match early {
        Some((.., tail)) => vec![tail],
        None => columns.iter().map(tail).collect(),
    };
    let of_unit = |(unit, running): (&Unit<'k>, Vec<Running<'k>>)| {
        running.into_iter().zip(&tails).map(|(running, tail)| unit.scaled(multiply, running, tail)).collect()
    };
    units.iter().zip(running).map(of_unit).collect()
}

/// A block of 32 elements of a unit, ready to be multiplied.
struct Block<'u, 'k> {
    multiply: &'u Multiply<'k>,
    unit: &'u Unit<'k>,
    b: u32,
    registers: [V<'k>; 4],
    low_registers: Option<[V<'k>; 4]>,
    /// Integer scales of rows g and g + 8, of each half where it has its own.
    scales: [Vec<V<'k>>; 2],
}

impl<'u, 'k> Block<'u, 'k> {
    fn new(multiply: &'u Multiply<'k>, unit: &'u Unit<'k>, b: u32) -> Self {
        let mut registers = unit.integers.registers(multiply.k, b);
        let scales = match &unit.scales {
            Scales::Blocks { .. } | Scales::SubBlocks { len: 256, .. } => [vec![], vec![]],
            Scales::SubBlocks { len: 32, scales, .. } => [0, 1].map(|row| vec![byte(&scales[row], b)]),
            Scales::SubBlocks { scales, .. } => {
                [0, 1].map(|row| vec![byte(&scales[row], 2 * b), byte(&scales[row], 2 * b + 1)])
            }
        };
        if scales_fit_bytes(unit.format) {
            registers = std::array::from_fn(|p| {
                let scale = scales[p % 2][p / 2].cast(Scalar::U32);
                (registers[p].cast(Scalar::U32) * scale).cast(Scalar::I8x4)
            });
        }
        Self { multiply, unit, b, registers, low_registers: unit.integers.low_registers(b), scales }
    }

    /// The running total with this block's products; `sum` is bs of the row where the format has f16 minima.
    fn add(&self, running: Running<'k>, chunk: &[[V<'k>; 2]], sum: Option<V<'k>>) -> Running<'k> {
        let (k, multiply) = (self.multiply.k, self.multiply);
        let x: Vec<_> = chunk.iter().map(|blocks| blocks[self.b as usize % 2]).collect();
        let zeros = [k.i32(0); 4];
        match running {
            Running::Floats(totals) => {
                let sums = multiply.product(self.registers, &x, zeros);
                Running::Floats([0, 1].map(|row| self.add_floats(row, totals[row], sums, &x, sum)))
            }
            // Without scales, or with scales that are in the registers already.
            Running::Integers(sums) if self.scales[0].is_empty() || scales_fit_bytes(self.unit.format) => {
                Running::Integers(multiply.product(self.registers, &x, sums))
            }
            Running::Integers(mut sums) => {
                let products = match self.scales[0].len() {
                    1 => vec![multiply.product(self.registers, &x, zeros)],
                    _ => {
                        let [p0, p1, p2, p3] = self.registers;
                        let halves = [[p0, p1], [p2, p3]].into_iter().zip([0, 1]);
                        halves.map(|(p, half)| multiply.product16(p, &x, half, zeros)).collect()
                    }
                };
                for (half, products) in products.into_iter().enumerate() {
                    sums = std::array::from_fn(|n| sums[n] + self.scales[n / 2][half] * products[n]);
                }
                Running::Integers(sums)
            }
        }
    }

    /// `T + F(I_b)*d_b [+ bs_b*m_b]` of row g or g + 8. With I on either plane below 2^19, F(I) is the
    /// nearest float to `128*I(h) + I(l)`, because both of its terms are exact.
    fn add_floats(&self, row: usize, total: V<'k>, sums: Sums<'k>, x: &[V<'k>], sum: Option<V<'k>>) -> V<'k> {
        let Scales::Blocks { d, m } = &self.unit.scales else { panic!("no scales of blocks") };
        let k = self.multiply.k;
        let mut low = sums[2 * row + 1];
        if let Some(registers) = self.low_registers {
            low = low + self.multiply.product(registers, x, [k.i32(0); 4])[2 * row];
        }
        let integer = self.multiply.whole((sums[2 * row] << 7) + low);
        let total = total + integer.to_f32() * d[row].get(k, self.b);
        match (m, sum) {
            (Some(m), Some(sum)) => total + sum * m[row].get(k, self.b),
            _ => total,
        }
    }
}

impl<'k> Unit<'k> {
    fn start(&self, k: &'k Build) -> Running<'k> {
        match self.scales {
            Scales::Blocks { .. } => Running::Floats([k.f32(0.0); 2]),
            Scales::SubBlocks { .. } => Running::Integers([k.i32(0); 4]),
        }
    }

    /// `T*D`.
    fn scaled(&self, multiply: &Multiply<'k>, running: Running<'k>, tail: &Tail<'k>) -> [V<'k>; 2] {
        let totals = match running {
            Running::Floats(totals) => totals,
            Running::Integers(sums) => self.total_of_sums(multiply, sums, tail),
        };
        let k = multiply.k;
        totals.map(|total| match self.format {
            WeightFormat::W16 => snap(k, total * (tail.scale * k.f32(128.0))),
            WeightFormat::Block(_) => total * tail.scale,
        })
    }

    /// `F(I)*d [- i2f(I2)*dmin]`.
    fn total_of_sums(&self, multiply: &Multiply<'k>, sums: Sums<'k>, tail: &Tail<'k>) -> [V<'k>; 2] {
        let Scales::SubBlocks { minima, d, dmin, .. } = &self.scales else {
            panic!("no scales of sub-blocks")
        };
        let k = multiply.k;
        let sums = sums.map(|sum| multiply.whole(sum));
        let totals = [0, 1]
            .map(|row: usize| (sums[2 * row].to_f32() * k.f32(128.0) + sums[2 * row + 1].to_f32()) * d[row]);
        let (Some(dmin), Some((digits, x))) = (dmin, &tail.digits) else { return totals };
        let registers = |row: usize| minima_registers(k, &multiply.place, *digits, &minima[row]);
        let [[g0, g1], [h0, h1]] = [0, 1].map(registers);
        let parts = multiply.product([g0, h0, g1, h1], x, [k.i32(0); 4]);
        [0, 1].map(|row: usize| {
            let integer = multiply.whole(parts[2 * row] + (parts[2 * row + 1] << 10));
            totals[row] - integer.to_f32() * dmin[row]
        })
    }
}
