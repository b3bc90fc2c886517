//! The rows of the RoPE tables at the positions of a batch, computed once a batch for all layers.

use unisonic_core::numerics::rope;
use unisonic_core::plan::{DeviceError, Limits, RopeTable, RopeTableId};

use crate::memory::allocate;

/// Cosines and sines, for each table a row for each row of the batch.
pub struct RopeRows(Vec<Rows>);

struct Rows {
    pairs: usize,
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

impl RopeRows {
    /// Memory for the largest batch.
    pub fn allocate(tables: &[RopeTable], limits: Limits) -> Result<Self, DeviceError> {
        let rows = tables.iter().map(|table| {
            let pairs = table.inverse_frequencies.len();
            let values = || allocate("a table of RoPE rows", limits.max_rows as usize, pairs);
            Ok(Rows { pairs, cosines: values()?, sines: values()? })
        });
        rows.collect::<Result<_, DeviceError>>().map(Self)
    }

    /// Computes the rows of a batch from the tables that the memory was made for.
    pub fn fill(&mut self, tables: &[RopeTable], positions: &[u32]) {
        for (table, rows) in tables.iter().zip(&mut self.0) {
            for (row, &position) in positions.iter().enumerate() {
                let range = row * rows.pairs..(row + 1) * rows.pairs;
                let (cosines, sines) = (&mut rows.cosines[range.clone()], &mut rows.sines[range]);
                rope::table_row(&table.inverse_frequencies, table.scale, position, cosines, sines);
            }
        }
    }

    /// Cosines and sines of a table at a row of the batch.
    pub fn row(&self, table: RopeTableId, row: usize) -> (&[f32], &[f32]) {
        let rows = &self.0[table.index()];
        let range = row * rows.pairs..(row + 1) * rows.pairs;
        (&rows.cosines[range.clone()], &rows.sines[range])
    }
}
