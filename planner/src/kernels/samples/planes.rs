//! Rows as the reference quantises them, and the regions that kernels have of them.

use unisonic_core::numerics::a16::{A16Row, SUPERBLOCK, plane_len, quantize_a16, scales_len};
use unisonic_core::numerics::w16::{W16Row, quantize_w16, w16_plane_len, w16_scales_len};
use unisonic_core::planes::activation::{ActivationLayout, pack};
use unisonic_core::planes::region::{Region, Regions};

use super::super::A16Form;
use super::data::{POISON_WORD, word_bytes};

/// The planes h and l of a row, and its scales.
struct Row {
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
}

impl Row {
    fn new(plane_len: usize, scales_len: usize) -> Self {
        Self { high: vec![0; plane_len], low: vec![0; plane_len], scales: vec![0.0; scales_len] }
    }
}

/// Rows of W16.
pub struct W16Rows(Vec<Row>);

impl W16Rows {
    /// Quantises rows of `width` weights, each below 2^24 in magnitude.
    pub fn new(weights: &[f32], width: usize) -> Self {
        let rows = weights.chunks(width).map(|weights| {
            let mut row = Row::new(w16_plane_len(width), w16_scales_len(width));
            quantize_w16(weights, &mut row.high, &mut row.low, &mut row.scales)
                .unwrap_or_else(|bad| panic!("weights of samples are in range: {bad}"));
            row
        });
        Self(rows.collect())
    }

    /// A row.
    pub fn row(&self, row: usize) -> W16Row<'_> {
        let Row { high, low, scales } = &self.0[row];
        W16Row { high, low, scales }
    }

    /// All of them.
    pub fn rows(&self) -> Vec<W16Row<'_>> {
        (0..self.0.len()).map(|row| self.row(row)).collect()
    }
}

/// Rows of A16.
pub struct A16Rows {
    rows: Vec<Row>,
    /// Whether each superblock is in range, row after row.
    pub in_range: Vec<bool>,
}

impl A16Rows {
    /// Quantises rows of `width` values.
    pub fn new(x: &[f32], width: usize) -> Self {
        let mut in_range = vec![];
        let rows = x.chunks(width).map(|x| {
            let mut row = Row::new(plane_len(width), scales_len(width));
            let planes = row.high.chunks_mut(SUPERBLOCK).zip(row.low.chunks_mut(SUPERBLOCK));
            for ((x, (high, low)), scale) in x.chunks(SUPERBLOCK).zip(planes).zip(&mut row.scales) {
                in_range.push(quantize_a16(x, high, low, std::slice::from_mut(scale)));
            }
            row
        });
        Self { rows: rows.collect(), in_range }
    }

    /// The rows.
    pub fn rows(&self) -> Vec<A16Row<'_>> {
        self.rows.iter().map(|Row { high, low, scales }| A16Row { high, low, scales }).collect()
    }

    /// The regions of a form in their order, as words. Places of rows that do not exist have poison.
    pub fn regions(&self, form: A16Form) -> Vec<Vec<u8>> {
        let (layout, rows) = (layout(form, self.rows.len()), self.rows());
        let poisoned = form.regions.iter().map(|region| {
            let packed = pack(layout, region, &rows);
            let mut words = vec![POISON_WORD; packed.len()];
            places(layout, region).into_iter().for_each(|at| words[at as usize] = packed[at as usize]);
            word_bytes(&words)
        });
        poisoned.collect()
    }
}

/// What a kernel writes of `rows` rows of `width` values.
pub fn a16_form(rows: usize, width: usize, regions: Regions) -> A16Form {
    let tile_rows = rows.next_power_of_two().min(4) as u32;
    A16Form { width: width as u32, tile_rows, regions }
}

/// The layout of a buffer of some rows.
fn layout(form: A16Form, rows: usize) -> ActivationLayout {
    let layout = ActivationLayout::new(rows, form.width as usize)
        .unwrap_or_else(|error| panic!("samples are small: {error}"));
    assert_eq!(layout.tile_rows(), form.tile_rows, "rows of a tile, of {rows} rows");
    layout
}

/// The words of a region that belong to a row.
fn places(layout: ActivationLayout, region: Region) -> Vec<u32> {
    let each = |parts: u32, index: &dyn Fn(u32, u32, u32) -> u32| -> Vec<u32> {
        let of_row =
            |row| (0..layout.superblocks()).flat_map(move |s| (0..parts).map(move |part| (row, s, part)));
        (0..layout.rows()).flat_map(of_row).map(|(row, s, part)| index(row, s, part)).collect()
    };
    match region {
        Region::Planes => each(128, &|row, s, part| layout.word_index(row, part % 2, 64 * s + part / 2)),
        Region::Scales => each(1, &|row, s, _| layout.scale_index(row, s)),
        Region::Digits(_) => each(16, &|row, s, part| layout.digit_index(row, s, part % 2, part / 2)),
        Region::Sums => each(8, &|row, s, block| layout.sum_index(row, s, block)),
    }
}
