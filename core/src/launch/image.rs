//! What is put into device memory once.

use crate::plan::{Plan, RopeTableId, WeightId};
use crate::planes::weight::WeightLayout;

/// A weight or table as kernels read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Image {
    /// The planes of a matrix, packed by [`crate::planes::pack::GroupPacker`].
    Planes {
        /// The matrix.
        weight: WeightId,
        /// Where everything lies.
        layout: WeightLayout,
    },
    /// A tensor as the file holds it.
    Bytes {
        /// The tensor.
        weight: WeightId,
    },
    /// The f32 values of a vector, or of a router.
    Vector {
        /// The vector.
        weight: WeightId,
    },
    /// A row for each position from 0 on: `pairs` cosines, then as many sines (`numerics::rope::table_row`).
    Rope {
        /// Which table.
        table: RopeTableId,
        /// How many rows.
        positions: u32,
    },
    /// Words.
    Words(Vec<u32>),
}

impl Image {
    /// Its length.
    pub fn len_bytes(&self, plan: &Plan) -> u64 {
        match *self {
            Image::Planes { layout, .. } => 4 * u64::from(layout.buffer_len()),
            Image::Bytes { weight } => plan.weights[weight.index()].len_bytes(),
            Image::Vector { weight } => {
                let weight = &plan.weights[weight.index()];
                4 * u64::from(weight.rows) * u64::from(weight.cols)
            }
            Image::Rope { table, positions } => {
                let pairs = plan.rope_tables[table.index()].inverse_frequencies.len();
                8 * pairs as u64 * u64::from(positions)
            }
            Image::Words(ref words) => 4 * words.len() as u64,
        }
    }

    /// What to call it in a message.
    pub fn name(&self, plan: &Plan) -> String {
        match *self {
            Image::Planes { weight, .. } | Image::Bytes { weight } | Image::Vector { weight } => {
                format!("tensor `{}`", plan.weights[weight.index()].tensor)
            }
            Image::Rope { table, .. } => format!("RoPE table {}", table.0),
            Image::Words(_) => "a table of the launches".to_owned(),
        }
    }
}
