//! Fills device memory with the images of a program: read, checked and packed in parts on all threads, uploaded from one.
//!
//! A part is dropped when it is uploaded, so loading needs little of the host's memory.

use std::ops::Range;

use unisonic_core::launch::{Area, Image};
use unisonic_core::numerics::rope;
use unisonic_core::plan::{
    DeviceError, LoadProgress, LoadedWeight, Plan, Progress, RopeTable, Weight, WeightError, WeightId,
    WeightSource, load_rows, load_weight,
};
use unisonic_core::planes::pack::GroupPacker;
use unisonic_core::planes::weight::{GROUP_ROWS, WeightLayout};

use crate::areas::Areas;
use crate::in_order::in_order;
use crate::machine::Machine;

/// Bytes of a part in device memory, about.
const PART_LEN_BYTES: u64 = 4 << 20;
/// More do not read and pack faster than one uploads.
const MAX_THREADS: usize = 16;

/// Fills the areas of a plan's images. Of several errors that of the first image, and in it of the first row, is returned.
pub(crate) fn load<M: Machine>(
    plan: &Plan,
    source: &dyn WeightSource,
    images: &[Image],
    areas: &Areas<M>,
    progress: &Progress<'_>,
) -> Result<(), DeviceError> {
    let parts = parts(plan, images);
    let total_bytes = parts.iter().map(|part| part.tensor_len_bytes).sum();
    let mut loaded_bytes = 0;
    progress(LoadProgress { loaded_bytes, total_bytes });
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let make = |index: usize| {
        let part: &Part = &parts[index];
        Ok(part.make(plan, source, &images[part.image])?)
    };
    in_order(parts.len(), threads, make, |index, made: Made| {
        let part = &parts[index];
        areas.upload(Area::Image(part.image as u32), part.offset_bytes, made.bytes())?;
        if part.tensor_len_bytes > 0 {
            loaded_bytes += part.tensor_len_bytes;
            progress(LoadProgress { loaded_bytes, total_bytes });
        }
        Ok(())
    })
}

/// A run of units of an image.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    image: usize,
    units: Range<u32>,
    /// Where it goes.
    offset_bytes: u64,
    /// What it loads of a tensor; 0 where an image before it loads the same.
    tensor_len_bytes: u64,
}

/// What a part holds.
enum Made {
    Bytes(Vec<u8>),
    Words(Vec<u32>),
}

impl Made {
    fn bytes(&self) -> &[u8] {
        // Devices are little-endian, and so are the hosts that have drivers for them.
        const { assert!(cfg!(target_endian = "little")) };
        match self {
            Made::Bytes(bytes) => bytes,
            Made::Words(words) => bytemuck::cast_slice(words),
        }
    }
}

/// What images are cut between: how many, and how long each is in device memory.
fn units(plan: &Plan, image: &Image) -> (u32, u64) {
    match *image {
        Image::Planes { layout, .. } => (layout.groups(), 4 * u64::from(layout.group_len())),
        Image::Bytes { weight } => {
            let weight = &plan.weights[weight.index()];
            (weight.rows, weight.row_len_bytes() as u64)
        }
        Image::Rope { table, positions } => {
            (positions, 8 * plan.rope_tables[table.index()].inverse_frequencies.len() as u64)
        }
        Image::Vector { .. } | Image::Words(_) => (1, image.len_bytes(plan)),
    }
}

fn weight_of(image: &Image) -> Option<WeightId> {
    match *image {
        Image::Planes { weight, .. } | Image::Bytes { weight } | Image::Vector { weight } => Some(weight),
        Image::Rope { .. } | Image::Words(_) => None,
    }
}

fn parts(plan: &Plan, images: &[Image]) -> Vec<Part> {
    let mut parts = vec![];
    let mut is_counted = vec![false; plan.weights.len()];
    for (index, image) in images.iter().enumerate() {
        let (count, unit_len_bytes) = units(plan, image);
        let counted =
            weight_of(image).filter(|weight| !std::mem::replace(&mut is_counted[weight.index()], true));
        let counted = counted.map(|weight| &plan.weights[weight.index()]);
        let step = u32::try_from(PART_LEN_BYTES / unit_len_bytes.max(1)).unwrap_or(u32::MAX).max(1);
        let mut start = 0;
        while start < count {
            let units = start..start.saturating_add(step).min(count);
            let rows = counted.map_or(0..0, |weight| rows(image, weight, &units));
            let row_len_bytes = counted.map_or(0, Weight::row_len_bytes) as u64;
            parts.push(Part {
                image: index,
                offset_bytes: u64::from(start) * unit_len_bytes,
                tensor_len_bytes: u64::from(rows.end - rows.start) * row_len_bytes,
                units: units.clone(),
            });
            start = units.end;
        }
    }
    parts
}

/// The rows of a weight that units of its image hold.
fn rows(image: &Image, weight: &Weight, units: &Range<u32>) -> Range<u32> {
    match image {
        Image::Planes { .. } => {
            let group = GROUP_ROWS as u32;
            group * units.start..weight.rows.min(group.saturating_mul(units.end))
        }
        _ => units.clone(),
    }
}

impl Part {
    fn make(&self, plan: &Plan, source: &dyn WeightSource, image: &Image) -> Result<Made, WeightError> {
        Ok(match *image {
            Image::Planes { weight, layout } => {
                let weight = &plan.weights[weight.index()];
                let loaded = load_rows(source, weight, rows(image, weight, &self.units))?;
                Made::Words(pack(layout, self.units.len(), &loaded))
            }
            Image::Bytes { weight } => {
                Made::Bytes(checked_bytes(source, &plan.weights[weight.index()], self.units.clone())?)
            }
            Image::Vector { weight } => match load_weight(source, &plan.weights[weight.index()])? {
                LoadedWeight::F32(values) => Made::Words(values.into_iter().map(f32::to_bits).collect()),
                other => panic!("an image of a vector, but the plan has {other:?}"),
            },
            Image::Rope { table, .. } => {
                Made::Words(rope_rows(&plan.rope_tables[table.index()], self.units.clone()))
            }
            Image::Words(ref words) => Made::Words(words.clone()),
        })
    }
}

/// The groups of rows that begin a group.
fn pack(layout: WeightLayout, groups: usize, rows: &LoadedWeight) -> Vec<u32> {
    let group_len = layout.group_len() as usize;
    let mut words = vec![0; groups * group_len];
    let mut packer = GroupPacker::new(layout);
    let to = words.chunks_exact_mut(group_len);
    match rows {
        LoadedWeight::Blocks { bytes, .. } => {
            let from = bytes.chunks(GROUP_ROWS * packer.row_len_bytes());
            assert_eq!(from.len(), groups, "groups of rows");
            from.zip(to).for_each(|(rows, group)| packer.pack(rows, group));
        }
        LoadedWeight::W16(matrix) => {
            let rows: Vec<_> = (0..matrix.rows()).map(|row| matrix.row(row)).collect();
            let from = rows.chunks(GROUP_ROWS);
            assert_eq!(from.len(), groups, "groups of rows");
            from.zip(to).for_each(|(rows, group)| packer.pack_w16(rows, group));
        }
        LoadedWeight::F32(_) => panic!("an image of planes, but the plan has a vector"),
    }
    words
}

/// Rows as the file holds them, after the same checks as all others.
fn checked_bytes(
    source: &dyn WeightSource,
    weight: &Weight,
    rows: Range<u32>,
) -> Result<Vec<u8>, WeightError> {
    let row_len_bytes = weight.row_len_bytes();
    let (start, len) = (rows.start, rows.len());
    match load_rows(source, weight, rows)? {
        LoadedWeight::Blocks { bytes, .. } => Ok(bytes),
        // Checking has turned the floats into something else.
        LoadedWeight::W16(_) | LoadedWeight::F32(_) => {
            let mut bytes = vec![0; len * row_len_bytes];
            let offset_bytes = weight.offset_bytes() + u64::from(start) * row_len_bytes as u64;
            source.read_at(&weight.tensor, offset_bytes, &mut bytes)?;
            Ok(bytes)
        }
    }
}

fn rope_rows(table: &RopeTable, positions: Range<u32>) -> Vec<u32> {
    let pairs = table.inverse_frequencies.len();
    let mut values = vec![0.0_f32; 2 * pairs * positions.len()];
    for (position, row) in positions.zip(values.chunks_exact_mut((2 * pairs).max(1))) {
        let (cosines, sines) = row.split_at_mut(pairs);
        rope::table_row(&table.inverse_frequencies, table.scale, position, cosines, sines);
    }
    values.into_iter().map(f32::to_bits).collect()
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
