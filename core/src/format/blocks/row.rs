//! A weight row taken apart: filled once, then multiplied with many activations.

use super::floats::f16_at;
use super::{BlockFormat, codebook, kquants, plain, ternary};

/// A row of quantised weights as integers and scales.
///
/// Element i lies in block `i / format.elems()`. Its weight is, by [`super::ScaleLayout`]:
///
/// - `Block32`, `Block256`: `q*d`, with a minimum `q*d + m`;
/// - `Sub16`, `Sub32`: `q*sc*d`, with a minimum `q*sc*d - mn*dmin`, sc and mn those of the element's sub-block.
#[derive(Clone, Debug)]
pub struct DecodedRow {
    /// Format of the row.
    pub format: BlockFormat,
    /// q, one an element.
    pub q: Vec<i8>,
    /// d, one a block.
    pub scales: Vec<f32>,
    /// m (Q4_1, Q5_1) or dmin (Q2_K, Q4_K, Q5_K), one a block; empty in other formats.
    pub minima: Vec<f32>,
    /// sc, one a sub-block, offsets of the format included; empty where there are no sub-blocks.
    pub sub_scales: Vec<i8>,
    /// mn, one a sub-block; empty where there is no minimum or no sub-block.
    pub sub_minima: Vec<i8>,
}

impl DecodedRow {
    /// An empty row, to be filled by [`decode_row`].
    pub fn new() -> Self {
        Self {
            format: BlockFormat::Q8_0,
            q: Vec::new(),
            scales: Vec::new(),
            minima: Vec::new(),
            sub_scales: Vec::new(),
            sub_minima: Vec::new(),
        }
    }

    fn reset(&mut self, format: BlockFormat, elems: usize) {
        self.format = format;
        // Every element is overwritten, so only the length matters.
        self.q.resize(elems, 0);
        self.scales.clear();
        self.minima.clear();
        self.sub_scales.clear();
        self.sub_minima.clear();
    }
}

impl Default for DecodedRow {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes a row of whole blocks apart; replaces the contents of `row`. The scales of a row that [`super::check_row`]
/// refuses have no meaning.
///
/// # Panics
/// If `bytes` is not whole blocks: the reader of the file has checked that rows are.
pub fn decode_row(format: BlockFormat, bytes: &[u8], row: &mut DecodedRow) {
    let block_len_bytes = format.len_bytes();
    assert!(
        bytes.len().is_multiple_of(block_len_bytes),
        "a {format} row is whole blocks of {block_len_bytes} bytes, not {} bytes",
        bytes.len()
    );
    row.reset(format, bytes.len() / block_len_bytes * format.elems());
    match format {
        BlockFormat::Q4_0 => scaled(row, bytes, plain::q4_0, 0),
        BlockFormat::Q4_1 => scaled_with_minimum(row, bytes, plain::q4_1, 0, 2),
        BlockFormat::Q5_0 => scaled(row, bytes, plain::q5_0, 0),
        BlockFormat::Q5_1 => scaled_with_minimum(row, bytes, plain::q5_1, 0, 2),
        BlockFormat::Q8_0 => scaled(row, bytes, plain::q8_0, 0),
        BlockFormat::IQ4_NL => scaled(row, bytes, codebook::iq4_nl, 0),
        BlockFormat::TQ1_0 => scaled(row, bytes, ternary::tq1_0, 52),
        BlockFormat::TQ2_0 => scaled(row, bytes, ternary::tq2_0, 64),
        BlockFormat::MXFP4 => mxfp4(row, bytes),
        BlockFormat::Q3_K => sub_scaled(row, bytes, kquants::q3_k, kquants::q3_k_scales, 108),
        BlockFormat::Q6_K => sub_scaled(row, bytes, kquants::q6_k, kquants::q6_k_scales, 208),
        BlockFormat::IQ4_XS => sub_scaled(row, bytes, codebook::iq4_xs, codebook::iq4_xs_scales, 0),
        BlockFormat::Q2_K => {
            sub_scaled_with_minimum(row, bytes, kquants::q2_k, kquants::q2_k_scales, 80, 82);
        }
        BlockFormat::Q4_K => {
            sub_scaled_with_minimum(row, bytes, kquants::q4_k, kquants::q4_k_scales, 0, 2);
        }
        BlockFormat::Q5_K => {
            sub_scaled_with_minimum(row, bytes, kquants::q5_k, kquants::q4_k_scales, 0, 2);
        }
    }
}

/// Integers of every block and the f16 scale at byte `d_at`.
fn scaled<const BYTES: usize, const ELEMS: usize>(
    row: &mut DecodedRow,
    bytes: &[u8],
    integers: impl Fn(&[u8; BYTES], &mut [i8; ELEMS]),
    d_at: usize,
) {
    for (block, q) in bytes.as_chunks().0.iter().zip(row.q.as_chunks_mut().0) {
        integers(block, q);
        row.scales.push(f16_at(block, d_at));
    }
}

/// As [`scaled`], and the f16 minimum at byte `m_at`.
fn scaled_with_minimum<const BYTES: usize, const ELEMS: usize>(
    row: &mut DecodedRow,
    bytes: &[u8],
    integers: impl Fn(&[u8; BYTES], &mut [i8; ELEMS]),
    d_at: usize,
    m_at: usize,
) {
    scaled(row, bytes, integers, d_at);
    row.minima.extend(bytes.as_chunks::<BYTES>().0.iter().map(|block| f16_at(block, m_at)));
}

/// As [`scaled`], and the integer scales of the sub-blocks.
fn sub_scaled<const BYTES: usize, const SUBS: usize>(
    row: &mut DecodedRow,
    bytes: &[u8],
    integers: impl Fn(&[u8; BYTES], &mut [i8; 256]),
    sub_scales: impl Fn(&[u8; BYTES]) -> [i8; SUBS],
    d_at: usize,
) {
    scaled(row, bytes, integers, d_at);
    for block in bytes.as_chunks().0 {
        row.sub_scales.extend(sub_scales(block));
    }
}

/// As [`scaled_with_minimum`], and the integer scales and minima of the sub-blocks.
fn sub_scaled_with_minimum<const BYTES: usize, const SUBS: usize>(
    row: &mut DecodedRow,
    bytes: &[u8],
    integers: impl Fn(&[u8; BYTES], &mut [i8; 256]),
    sub_scales: impl Fn(&[u8]) -> ([i8; SUBS], [i8; SUBS]),
    d_at: usize,
    dmin_at: usize,
) {
    scaled_with_minimum(row, bytes, integers, d_at, dmin_at);
    for block in bytes.as_chunks::<BYTES>().0 {
        let (scales, minima) = sub_scales(block);
        row.sub_scales.extend(scales);
        row.sub_minima.extend(minima);
    }
}

fn mxfp4(row: &mut DecodedRow, bytes: &[u8]) {
    for (block, q) in bytes.as_chunks().0.iter().zip(row.q.as_chunks_mut().0) {
        codebook::mxfp4(block, q);
        row.scales.push(codebook::mxfp4_scale(block[0]));
    }
}
