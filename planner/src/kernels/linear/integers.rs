//! From the planes of integers to the registers of a matrix instruction: one function for all formats.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::planes::weight::{Plane, WeightFormat};

use super::operands::{Place, Words};

/// The integers of 16 rows and a superblock, as they were loaded.
pub struct Integers<'k> {
    format: WeightFormat,
    bytes: Vec<V<'k>>,
    low_bytes: Vec<V<'k>>,
    nibbles: Vec<V<'k>>,
    pairs: Vec<V<'k>>,
    bits: Vec<V<'k>>,
}

impl<'k> Integers<'k> {
    /// Loads all planes of integers, 16 bytes at a time.
    pub fn load(format: WeightFormat, place: &Place<'k>, from: &impl Words<'k>) -> Self {
        let runs = |plane: Plane, runs: u32| -> Vec<V<'k>> {
            let runs = if format.has(plane) { runs } else { 0 };
            (0..runs).map(|run| from.run(plane, run, place.lane * 4)).collect()
        };
        Self {
            format,
            bytes: runs(Plane::Bytes, 8),
            low_bytes: runs(Plane::LowBytes, 8),
            nibbles: runs(Plane::Nibbles, 4),
            pairs: runs(Plane::Pairs, 2),
            bits: runs(Plane::Bits, 1),
        }
    }

    /// Registers 0..3 of block b.
    pub fn registers(&self, k: &'k Build, b: u32) -> [V<'k>; 4] {
        let codes: [V<'k>; 4] = match self.bytes.get(b as usize) {
            Some(bytes) => return parts(*bytes).map(signed),
            None => std::array::from_fn(|p| self.code(b, p as u32)),
        };
        match (self.format.levels(), self.format.offset()) {
            (Some(levels), _) => self.looked_up(k, levels, b),
            (None, 0) => codes.map(signed),
            // A byte at a time without carries: (q + 128 - offset) ^ 128.
            (None, offset) => codes.map(|code| {
                let up = u32::from(128 - offset) * 0x0101_0101;
                signed((code + up) ^ 0x8080_8080)
            }),
        }
    }

    /// The same of wl, for W16.
    pub fn low_registers(&self, b: u32) -> Option<[V<'k>; 4]> {
        self.low_bytes.get(b as usize).map(|bytes| parts(*bytes).map(signed))
    }

    /// Four codes, the bits of each plane above those of the one before.
    fn code(&self, b: u32, p: u32) -> V<'k> {
        let mut code = None;
        let mut taken = 0;
        let mut add = |word: Option<V<'k>>, count: u32, at: u32| {
            let Some(word) = word else { return };
            let mask = (((1 << count) - 1) * 0x0101_0101) << taken;
            let field = if at < taken { word << (taken - at) } else { shifted(word, at - taken) } & mask;
            code = Some(code.map_or(field, |code: V<'k>| code | field));
            taken += count;
        };
        let of = |runs: &[V<'k>], run: u32, word: u32| runs.get(run as usize).map(|run| run.part(word));
        add(of(&self.nibbles, b / 2, 2 * (b % 2) + p % 2), 4, p / 2 * 4);
        add(of(&self.pairs, b / 4, b % 4), 2, 2 * p);
        add(of(&self.bits, 0, b / 2), 1, p + 4 * (b % 2));
        code.unwrap_or_else(|| panic!("{} has no plane of codes", self.format))
    }

    /// Registers whose nibbles are numbers of levels: digits of selectors, as they lie in the plane.
    fn looked_up(&self, k: &'k Build, levels: &[i8; 16], b: u32) -> [V<'k>; 4] {
        let table =
            levels.as_chunks::<4>().0.iter().map(|four| k.u32(u32::from_le_bytes(four.map(|l| l as u8))));
        let table: Vec<V<'k>> = table.collect();
        let mut registers = [k.u32(0); 4];
        for row in 0..2 {
            let word = self.nibbles[b as usize / 2].part(2 * (b % 2) + row);
            // Of each candidate of the lower and upper eight levels, the one that the code's top bit says.
            let choice = ((word & 0x8888_8888) >> 1) | 0x3210_3210;
            let four = |shift: u32| {
                let (word, choice) = (shifted(word, shift), shifted(choice, shift));
                let (low, high) = (table[0].permute_by(table[1], word), table[2].permute_by(table[3], word));
                low.permute_by(high, choice)
            };
            // Byte j of the word has the codes of element j of registers p and p + 2 side by side.
            let (first, second) = (four(0), four(16));
            registers[row as usize] = first.permute(second, 0x6420);
            registers[row as usize + 2] = first.permute(second, 0x7531);
        }
        registers.map(signed)
    }
}

fn shifted(word: V<'_>, bits: u32) -> V<'_> {
    if bits == 0 { word } else { word >> bits }
}

fn signed(word: V<'_>) -> V<'_> {
    word.cast(Scalar::I8x4)
}

/// The words of a vector of four.
pub fn parts(vector: V<'_>) -> [V<'_>; 4] {
    std::array::from_fn(|i| vector.part(i as u32))
}
