//! Weight matrices on a GPU: which planes a format has, and where everything lies in its one buffer.
//!
//! Rows come in *groups* of 16, the last one filled up with zeros; a group is contiguous, so a loader packs
//! and copies group by group, and a workgroup reads one run. Inside a group come the [`Plane`]s of the format
//! one after the other, inside a plane the superblocks of 256 elements ascending:
//!
//! `word = group*group_len + plane_offset + s*unit_len + (place in the unit)`
//!
//! Rows that are no whole superblocks end with a short one. Planes of integers hold only what exists (nibbles
//! in chunks of 64 elements, bytes in blocks of 32), so whoever reads a superblock of 256 keeps its reads
//! below [`WeightLayout::plane_len`]: what it reads twice is multiplied by activations that are zero. Planes
//! of scales and of single bits have a whole unit, with zeros.

use super::LayoutError;
use crate::format::blocks::{BlockFormat, IQ4_LEVELS, MXFP4_LEVELS};
use crate::kir::abi::MAX_OBJECT_LEN;
use crate::numerics::a16::SUPERBLOCK;

/// Rows of a group.
pub const GROUP_ROWS: usize = 16;

/// How the elements of a matrix enter the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// Quantised blocks.
    Block(BlockFormat),
    /// A float matrix as two int8 planes (`numerics::w16`).
    W16,
}

/// A run of words in the unit of 16 rows and 256 elements. "Lane" is invocation `4g + t` of a cluster, p its
/// registers ([`super`]); b is a block of 32 elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plane {
    /// `[b][lane][p]`: the four integers of a register, signed bytes. For W16, wh.
    Bytes,
    /// The same for wl of W16.
    LowBytes,
    /// `[b/2][lane][2*(b%2) + p%2]`: byte j holds element j of registers p (low half, p 0 or 1) and p + 2
    /// (high half).
    Nibbles,
    /// `[b/4][lane][b%4]`: bits 2p and 2p + 1 of byte j belong to element j of register p.
    Pairs,
    /// `[lane][b/2]`: bit p + 4*(b%2) of byte j belongs to element j of register p.
    Bits,
    /// `[row][4]`, four words: Q4_K and Q5_K have the 12 bytes of scales and minima as the file packs them,
    /// then d and dmin as f16; Q2_K its 16 bytes of scale (low half) and minimum; Q3_K and Q6_K 16 signed
    /// scales.
    SubScales,
    /// A word each: for Q2_K `[row]`, d and dmin as f16; else `[g]`, d of rows g and g + 8.
    Halves,
    /// `[row][b/2]`: d_b as f16, the even one in the low half.
    BlockScales,
    /// The same of m_b.
    BlockMinima,
    /// `[row][b 0..7]` f32: d_b of W16.
    FloatScales,
    /// `[row][b 0..7]`, a byte each in two words: the signed scales of IQ4_XS, the exponents of MXFP4.
    BlockBytes,
}

impl WeightFormat {
    /// All.
    pub const ALL: [WeightFormat; 16] = {
        let mut all = [WeightFormat::W16; 16];
        let mut i = 0;
        while i < BlockFormat::ALL.len() {
            all[i] = WeightFormat::Block(BlockFormat::ALL[i]);
            i += 1;
        }
        all
    };

    /// The format's planes in their order.
    pub fn planes(self) -> &'static [Plane] {
        use BlockFormat::*;
        use Plane::*;
        let WeightFormat::Block(format) = self else { return &[Bytes, LowBytes, FloatScales] };
        match format {
            Q4_0 | IQ4_NL => &[Nibbles, BlockScales],
            Q4_1 => &[Nibbles, BlockScales, BlockMinima],
            Q5_0 => &[Nibbles, Bits, BlockScales],
            Q5_1 => &[Nibbles, Bits, BlockScales, BlockMinima],
            Q8_0 => &[Bytes, BlockScales],
            Q2_K => &[Pairs, SubScales, Halves],
            Q3_K => &[Pairs, Bits, SubScales, Halves],
            Q4_K => &[Nibbles, SubScales],
            Q5_K => &[Nibbles, Bits, SubScales],
            Q6_K => &[Nibbles, Pairs, SubScales, Halves],
            IQ4_XS => &[Nibbles, BlockBytes, Halves],
            MXFP4 => &[Nibbles, BlockBytes],
            TQ1_0 | TQ2_0 => &[Pairs, Halves],
        }
    }

    /// Whether the format has this plane.
    pub fn has(self, plane: Plane) -> bool {
        self.planes().contains(&plane)
    }

    /// What the planes hold is the integer plus this; 0 where a table says what codes mean.
    pub fn offset(self) -> u8 {
        match self {
            WeightFormat::Block(BlockFormat::TQ1_0 | BlockFormat::TQ2_0) => 1,
            WeightFormat::Block(BlockFormat::Q3_K) => 4,
            WeightFormat::Block(BlockFormat::Q4_0) => 8,
            WeightFormat::Block(BlockFormat::Q5_0) => 16,
            WeightFormat::Block(BlockFormat::Q6_K) => 32,
            _ => 0,
        }
    }

    /// The integers of the codes in the planes, where they are no sums.
    pub fn levels(self) -> Option<&'static [i8; 16]> {
        match self {
            WeightFormat::Block(BlockFormat::IQ4_NL | BlockFormat::IQ4_XS) => Some(&IQ4_LEVELS),
            WeightFormat::Block(BlockFormat::MXFP4) => Some(&MXFP4_LEVELS),
            _ => None,
        }
    }

    /// Elements that a row is a multiple of.
    fn align(self) -> usize {
        match self {
            WeightFormat::Block(format) => format.elems(),
            WeightFormat::W16 => 1,
        }
    }
}

impl std::fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WeightFormat::Block(format) => f.write_str(format.name()),
            WeightFormat::W16 => f.write_str("W16"),
        }
    }
}

/// Where everything of a matrix lies, in words of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WeightLayout {
    format: WeightFormat,
    rows: u32,
    width: u32,
}

impl WeightLayout {
    /// Layout of a matrix of `rows` rows of `width` elements, which are whole blocks.
    pub fn new(format: WeightFormat, rows: usize, width: usize) -> Result<Self, LayoutError> {
        if rows == 0 || width == 0 {
            return Err(LayoutError::Empty { rows, width });
        }
        if !width.is_multiple_of(format.align()) {
            return Err(LayoutError::Width { format, width, align: format.align() });
        }
        let too_large = LayoutError::TooLarge { rows, width };
        // Whatever the format, a group is less than two bytes and a half an element.
        let elems = width.checked_next_multiple_of(SUPERBLOCK).and_then(|width| width.checked_mul(16));
        if elems.is_none_or(|elems| u32::try_from(elems).is_err()) {
            return Err(too_large);
        }
        let (Ok(rows), Ok(width)) = (u32::try_from(rows), u32::try_from(width)) else {
            return Err(too_large);
        };
        let layout = Self { format, rows, width };
        let words = u64::from(layout.groups()) * u64::from(layout.group_len());
        if words > u64::from(MAX_OBJECT_LEN) { Err(too_large) } else { Ok(layout) }
    }

    /// Format.
    pub fn format(self) -> WeightFormat {
        self.format
    }

    /// Rows of the matrix.
    pub fn rows(self) -> u32 {
        self.rows
    }

    /// Elements of a row.
    pub fn width(self) -> u32 {
        self.width
    }

    /// Groups of 16 rows.
    pub fn groups(self) -> u32 {
        self.rows.div_ceil(GROUP_ROWS as u32)
    }

    /// Blocks of 32 elements of a row.
    pub fn blocks(self) -> u32 {
        self.width.div_ceil(32)
    }

    /// Superblocks of a row.
    pub fn superblocks(self) -> u32 {
        self.width.div_ceil(SUPERBLOCK as u32)
    }

    /// Words of a plane of a whole unit.
    pub fn unit_len(self, plane: Plane) -> u32 {
        match plane {
            Plane::Bytes | Plane::LowBytes => 1024,
            Plane::Nibbles => 512,
            Plane::Pairs => 256,
            Plane::Bits | Plane::FloatScales => 128,
            Plane::SubScales | Plane::BlockScales | Plane::BlockMinima => 64,
            Plane::Halves if self.format == WeightFormat::Block(BlockFormat::Q2_K) => 16,
            Plane::BlockBytes => 32,
            Plane::Halves => 8,
        }
    }

    /// Words of a plane of a group.
    pub fn plane_len(self, plane: Plane) -> u32 {
        match plane {
            Plane::Bytes | Plane::LowBytes => 128 * self.blocks(),
            Plane::Nibbles => 128 * self.blocks().div_ceil(2),
            Plane::Pairs => 128 * self.blocks().div_ceil(4),
            _ => self.unit_len(plane) * self.superblocks(),
        }
    }

    /// Where a plane begins in its group, which is a multiple of 4.
    pub fn plane_offset(self, plane: Plane) -> u32 {
        self.format
            .planes()
            .iter()
            .take_while(|&&other| other != plane)
            .map(|&other| self.plane_len(other))
            .sum()
    }

    /// Words of a group, a multiple of 4.
    pub fn group_len(self) -> u32 {
        self.format.planes().iter().map(|&plane| self.plane_len(plane)).sum()
    }

    /// Words of the matrix.
    pub fn buffer_len(self) -> u32 {
        self.groups() * self.group_len()
    }
}
