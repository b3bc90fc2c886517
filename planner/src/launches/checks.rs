//! Flags of range contracts: which steps write some, and where.
//!
//! A step with flags has so many words a row. Its words are cut into *segments* of at most [`SEGMENT_LEN`],
//! so that one cluster looks through a segment of a row; [`crate::kernels::found_flags`] does, and the host
//! reads a word for each segment and row.

use unisonic_core::kir::abi::MAX_OBJECT_LEN;
use unisonic_core::launch::{Checked, Place};
use unisonic_core::plan::Rows;

/// Words of a row that one cluster looks through.
const SEGMENT_LEN: u32 = 512;
/// Words of a segment in the table.
pub const SEGMENT_WORDS: usize = 4;

/// The flags of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFlags {
    /// Index of the step.
    pub step: u32,
    /// The rows it computes.
    pub rows: Rows,
    /// Words of a row.
    pub words_a_row: u32,
    /// First word of its flags in the part of the arena.
    pub first: u32,
}

/// The flags of all steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Ascending by step.
    pub steps: Vec<StepFlags>,
    /// Words of all flags, which an object of a kernel has.
    pub len: u32,
}

impl Checks {
    /// Adds a step with `words_a_row` words for each of `count` rows. An error has the words of all flags,
    /// where they are more than an object of a kernel has.
    pub fn add(&mut self, step: u32, rows: Rows, count: u32, words_a_row: u32) -> Result<(), u64> {
        let of_step = (u64::from(words_a_row) * u64::from(count)).next_multiple_of(64);
        let len = u64::from(self.len) + of_step;
        self.steps.push(StepFlags { step, rows, words_a_row, first: self.len });
        self.len = u32::try_from(len).ok().filter(|&len| len <= MAX_OBJECT_LEN).ok_or(len)?;
        Ok(())
    }

    /// The place of the flags of a step.
    pub fn place(&self, step: u32, rows: u32, flags: Place) -> Option<Place> {
        let of_step = self.steps.iter().find(|flags| flags.step == step)?;
        let offset_bytes = flags.offset_bytes + 4 * u64::from(of_step.first);
        let len_bytes = 4 * u64::from(of_step.words_a_row) * u64::from(rows);
        Some(Place { offset_bytes, len_bytes, ..flags })
    }

    /// Its segments: the step, the first word of row 0, words from row to row, words, whether only output
    /// rows have it.
    fn segments(&self) -> impl Iterator<Item = (&StepFlags, [u32; SEGMENT_WORDS])> {
        self.steps.iter().flat_map(|flags| {
            let starts = (0..flags.words_a_row).step_by(SEGMENT_LEN as usize);
            starts.map(move |start| {
                let len = SEGMENT_LEN.min(flags.words_a_row - start);
                (flags, [flags.first + start, flags.words_a_row, len, u32::from(flags.rows == Rows::Outputs)])
            })
        })
    }

    /// The table that the kernel reads: the words of each segment.
    pub fn table(&self) -> Vec<u32> {
        self.segments().flat_map(|(_, words)| words).collect()
    }

    /// What the host makes of each segment.
    pub fn checked(&self) -> Vec<Checked> {
        self.segments().map(|(flags, _)| Checked { step: flags.step, rows: flags.rows }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_cut() {
        let mut checks = Checks::default();
        checks.add(2, Rows::All, 3, 5).expect("room");
        checks.add(4, Rows::Outputs, 2, 1100).expect("room");
        assert_eq!(checks.table(), [0, 5, 5, 0, 64, 1100, 512, 1, 576, 1100, 512, 1, 1088, 1100, 76, 1]);
        let steps: Vec<u32> = checks.checked().iter().map(|checked| checked.step).collect();
        assert_eq!((steps, checks.len), (vec![2, 4, 4, 4], 64 + 2240));
        assert_eq!(checks.add(5, Rows::All, 1 << 30, 2), Err((1 << 31) + 64 + 2240));
    }
}
