//! Which shape of launches serves a batch: few shapes, so that each is recorded once and used often.

use unisonic_core::launch::{GROUP_PAGES, MAX_RUNS, Shape};
use unisonic_core::plan::{Batch, PAGE_TOKENS};

/// Positions of a group.
const GROUP_POSITIONS: u32 = GROUP_PAGES * PAGE_TOKENS;
/// Up to here the numbers of rows are the powers of two; above there is one more between each two.
const FINE_ROWS: u32 = 64;

/// Most runs of a batch with so many rows: its rows that fill up stay in the first page.
pub(crate) fn max_runs(rows: usize) -> u32 {
    let fits = rows as u32 <= FINE_ROWS;
    const { assert!(FINE_ROWS / 2 + MAX_RUNS <= PAGE_TOKENS) };
    if fits { MAX_RUNS } else { 1 }
}

/// The shape of a batch that has rows and that `largest` holds.
///
/// Rows: 1, 2, 4, ..., 64, 96, 128, 192, 256, 384, ...; fewer than half of them only fill up, and they have positions from 0
/// on. Outputs: 0 or a power of two, at most as many as rows. Groups: a power of two, as many as the longest sequence needs
/// and the rows that fill up, in the last of so many runs. None is more than `largest` has.
pub(crate) fn of_batch(batch: &Batch<'_>, runs: u32, largest: Shape) -> Shape {
    let given = batch.rows() as u32;
    let rows = buckets(given).min(largest.rows);
    let outputs = match batch.outputs.len() as u32 {
        0 => 0,
        outputs => outputs.next_power_of_two().min(rows).min(largest.outputs),
    };
    let last_filled = (rows - given).saturating_sub(1);
    let last = batch.positions.iter().copied().max().unwrap_or(0).max(last_filled) + runs.max(1) - 1;
    let groups = (last / GROUP_POSITIONS + 1).next_power_of_two().min(largest.groups);
    Shape { rows, outputs, groups }
}

fn buckets(rows: u32) -> u32 {
    let power = rows.next_power_of_two();
    let between = power / 4 * 3;
    if power > FINE_ROWS && rows <= between { between } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: Shape = Shape { rows: 600, outputs: 100, groups: 5 };

    fn shape(rows: usize, outputs: usize, last_position: u32) -> Shape {
        let ids: Vec<u32> = (0..rows as u32).collect();
        let mut positions = ids.clone();
        positions[0] = last_position;
        let batch = Batch {
            tokens: &ids,
            positions: &positions,
            sequences: &ids,
            page_tables: &[],
            outputs: &ids[..outputs],
            values: &[],
        };
        of_batch(&batch, 1, LARGEST)
    }

    #[test]
    fn rows_come_in_buckets() {
        let found = [1, 2, 3, 5, 33, 64, 65, 96, 97, 129, 193, 256, 257, 384, 385, 513, 600];
        let found = found.map(|rows| shape(rows, 0, 0).rows);
        assert_eq!(found, [1, 2, 4, 8, 64, 64, 96, 96, 128, 192, 256, 256, 384, 384, 512, 600, 600]);
        assert_eq!([513, 769, 1025, 1537].map(buckets), [768, 1024, 1536, 2048]);
    }

    #[test]
    fn fewer_than_half_of_the_rows_fill_up() {
        for rows in 1..5000 {
            let bucket = buckets(rows);
            assert!(bucket >= rows && bucket - rows < rows, "{rows} rows in {bucket}");
        }
    }

    #[test]
    fn outputs_are_powers_of_two_within_the_rows() {
        let found = [(4, 0), (4, 1), (4, 2), (4, 3), (4, 4), (70, 70), (200, 100)];
        let found = found.map(|(rows, outputs)| shape(rows, outputs, 0).outputs);
        assert_eq!(found, [0, 1, 2, 4, 4, 96, 100]);
    }

    #[test]
    fn groups_reach_the_last_position() {
        let found = [0, 1023, 1024, 2048, 4096, 5119].map(|last| shape(1, 1, last).groups);
        assert_eq!(found, [1, 1, 2, 4, 5, 5]);
    }

    /// Many short sequences, whose filling rows are one long one.
    #[test]
    fn groups_reach_the_last_row_that_fills_up() {
        let positions = vec![0; 4097];
        let batch = Batch {
            tokens: &positions,
            positions: &positions,
            sequences: &positions,
            page_tables: &[],
            outputs: &[],
            values: &[],
        };
        let largest = Shape { rows: 8192, outputs: 1, groups: 64 };
        assert_eq!(of_batch(&batch, 1, largest), Shape { rows: 6144, outputs: 0, groups: 2 });
    }
}
