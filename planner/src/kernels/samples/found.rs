//! Samples of [`found_flags`].

use super::super::found_flags;
use super::buffers::Buffers;
use super::data::{random, word_bytes};
use super::{DEVICES, Extent, Sample};

/// Segments as their four words, one shorter than a cluster, one longer, one of a single word, and the flags of four rows.
const TABLE: [[u32; 4]; 4] = [[0, 5, 5, 0], [64, 700, 512, 0], [576, 700, 188, 1], [2880, 1, 1, 1]];
const FLAGS: u32 = 2884;
/// Output rows.
const OUTPUTS: u32 = 2;

/// Samples in which some rows have one flag, anywhere in a segment.
pub fn found_flags_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const ROWS: [u32; 3] = [1, 3, 4];
    let choices = extent.combinations([TABLE.len(), ROWS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[segments, rows, device]| {
        let (table, rows) = (&TABLE[..=segments], ROWS[rows]);
        let mut next = random(7);
        let mut flags = vec![0; FLAGS as usize];
        let mut found = vec![];
        for &[first, stride, len, of_outputs] in table {
            for row in 0..rows {
                let flag = (next() >> 33) as u32 % 2;
                // The first, the last, or another.
                let at = [0, len - 1, (next() >> 33) as u32 % len][(next() >> 33) as usize % 3];
                flags[(first + row * stride + at) as usize] = flag;
                // What lies where a row would be that the step does not have is not looked at.
                let has_row = of_outputs == 0 || row < OUTPUTS;
                found.push(if has_row { flag } else { 0 });
            }
        }
        let buffers = Buffers::default()
            .read(word_bytes(&flags))
            .read(word_bytes(table.as_flattened()))
            .write(word_bytes(&found));
        let params = vec![table.len() as u32, rows, OUTPUTS];
        let template = found_flags(params[0], rows);
        let name = format!("found_flags {rows} rows of {} segments", table.len());
        Sample::new(name, template, 1, buffers, DEVICES[device]).with_params(params)
    }))
}
