//! The regions of an A16 buffer: which there are, which format reads which, and how large they are.

use super::digits::Digits;
use super::weight::{Plane, WeightFormat};
use crate::kir::Scalar;

/// A region of an A16 buffer, an object of its own in kernels ([`super::activation`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// h and l, i8x4.
    Planes,
    /// D, f32.
    Scales,
    /// Digits of the sums over sub-blocks, i8x4: for weights with integer minima.
    Digits(Digits),
    /// The sums over blocks of 32, f32: for weights with f16 minima.
    Sums,
}

impl Region {
    /// In the order in which kernels declare them.
    pub const ALL: [Region; 5] = [
        Region::Planes,
        Region::Scales,
        Region::Digits(Digits::Eight),
        Region::Digits(Digits::Sixteen),
        Region::Sums,
    ];

    /// Number in [`Region::ALL`].
    pub fn index(self) -> usize {
        match self {
            Region::Planes => 0,
            Region::Scales => 1,
            Region::Digits(Digits::Eight) => 2,
            Region::Digits(Digits::Sixteen) => 3,
            Region::Sums => 4,
        }
    }

    /// Name of the object of a kernel that writes it; one that reads it puts `x_` before it.
    pub fn name(self) -> &'static str {
        match self {
            Region::Planes => "planes",
            Region::Scales => "scales",
            Region::Digits(Digits::Eight) => "digits8",
            Region::Digits(Digits::Sixteen) => "digits16",
            Region::Sums => "sums",
        }
    }

    /// The region of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|region| region.name() == name)
    }

    /// Type of an element, which is a word.
    pub fn scalar(self) -> Scalar {
        match self {
            Region::Planes | Region::Digits(_) => Scalar::I8x4,
            Region::Scales | Region::Sums => Scalar::F32,
        }
    }

    /// Whether weights of a format are multiplied with it.
    pub fn is_read_by(self, format: WeightFormat) -> bool {
        match self {
            Region::Planes | Region::Scales => true,
            Region::Digits(digits) => Digits::of(format) == Some(digits),
            Region::Sums => format.has(Plane::BlockMinima),
        }
    }

    /// Words of a unit: a superblock of a tile in which `tile_rows` rows have a place.
    pub fn unit_len(self, tile_rows: u32) -> u32 {
        match self {
            Region::Planes => 128 * tile_rows,
            Region::Scales => tile_rows,
            Region::Digits(_) => 16 * tile_rows,
            Region::Sums => 8 * tile_rows,
        }
    }
}

/// The regions that rows have: planes and scales, and beside them what the weights that read the rows need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Regions([bool; Region::ALL.len()]);

impl Regions {
    /// Those that no format does without: planes and scales.
    pub const LEAST: Regions = Regions([true, true, false, false, false]);

    /// Those that weights of these formats read.
    pub fn read_by(formats: &[WeightFormat]) -> Self {
        formats.iter().fold(Self::LEAST, |regions, &format| regions.and_read_by(format))
    }

    /// These, and those that weights of a format read.
    pub fn and_read_by(self, format: WeightFormat) -> Self {
        Self(Region::ALL.map(|region| self.has(region) || region.is_read_by(format)))
    }

    /// Whether a region is among them.
    pub fn has(self, region: Region) -> bool {
        self.0[region.index()]
    }

    /// In the order of [`Region::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Region> {
        Region::ALL.into_iter().filter(move |&region| self.has(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blocks::BlockFormat;

    #[test]
    fn numbers_and_names_are_those_of_the_list() {
        for (index, region) in Region::ALL.into_iter().enumerate() {
            assert_eq!((region.index(), Region::of_name(region.name())), (index, Some(region)));
        }
        assert_eq!(Region::of_name("digits"), None);
    }

    #[test]
    fn rows_have_what_every_reader_needs() {
        let names = |formats: &[BlockFormat]| -> Vec<&str> {
            let formats: Vec<_> = formats.iter().copied().map(WeightFormat::Block).collect();
            Regions::read_by(&formats).iter().skip(2).map(Region::name).collect()
        };
        use BlockFormat::{Q2_K, Q4_1, Q4_K, Q5_K, Q6_K};
        assert_eq!(Regions::read_by(&[WeightFormat::W16]), Regions::LEAST);
        assert_eq!(names(&[Q6_K]), [""; 0]);
        assert_eq!(names(&[Q4_K, Q5_K, Q6_K]), ["digits8"]);
        assert_eq!(names(&[Q2_K]), ["digits16"]);
        assert_eq!(names(&[Q5_K, Q2_K]), ["digits8", "digits16"]);
        assert_eq!(names(&[Q2_K, Q4_1, Q4_K]), ["digits8", "digits16", "sums"]);
    }
}
