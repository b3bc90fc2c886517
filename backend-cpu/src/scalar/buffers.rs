//! Activation buffers: one typed array for each buffer of the plan, sized for the largest batch.

use std::ops::Range;

use unisonic_core::plan::{Buffer, BufferId, BufferKind, DeviceError, Limits, Rows};

use crate::memory::allocate;

/// Two int8 planes and their scales, for A16 rows and Q16 heads alike.
#[derive(Debug, Default)]
pub(super) struct Planes {
    /// Values of a block row in each plane.
    pub width: usize,
    /// Scales of a row.
    pub scales_per_row: usize,
    pub high: Vec<i8>,
    pub low: Vec<i8>,
    pub scales: Vec<f32>,
}

/// The contents of a buffer.
#[derive(Debug)]
pub(super) enum Data {
    F32 {
        width: usize,
        values: Vec<f32>,
    },
    Planes(Planes),
    /// Lent to the step that writes it.
    Lent,
}

/// All buffers of a program.
#[derive(Debug)]
pub(super) struct Buffers {
    data: Vec<Data>,
}

impl Buffers {
    pub(super) fn allocate(buffers: &[Buffer], limits: Limits) -> Result<Self, DeviceError> {
        let data = buffers.iter().map(|buffer| {
            let rows = match buffer.rows {
                Rows::All => limits.max_rows,
                Rows::Outputs => limits.max_outputs,
            } as usize;
            let rows = rows.saturating_mul(buffer.slots as usize);
            Ok(match buffer.kind {
                BufferKind::F32 { width } => {
                    let width = width as usize;
                    Data::F32 { width, values: allocate("an activation buffer", rows, width)? }
                }
                BufferKind::A16 { width } => Data::Planes(Planes::allocate(
                    rows,
                    width.next_multiple_of(32) as usize,
                    width.div_ceil(256) as usize,
                )?),
                BufferKind::Q16 { heads, head_len } => {
                    Data::Planes(Planes::allocate(rows, heads as usize * head_len as usize, heads as usize)?)
                }
            })
        });
        Ok(Self { data: data.collect::<Result<_, DeviceError>>()? })
    }

    /// The f32 rows of a buffer.
    pub(super) fn f32(&self, id: BufferId) -> F32Rows<'_> {
        match &self.data[id.index()] {
            Data::F32 { width, values } => F32Rows { width: *width, values },
            other => panic!("the plan reads buffer {} as f32, but it is {other:?}", id.0),
        }
    }

    /// The planes of a buffer.
    pub(super) fn planes(&self, id: BufferId) -> &Planes {
        match &self.data[id.index()] {
            Data::Planes(planes) => planes,
            other => panic!("the plan reads buffer {} as planes, but it is {other:?}", id.0),
        }
    }

    /// Takes a buffer out, for the step that writes it; the step must give it back.
    pub(super) fn lend(&mut self, id: BufferId) -> Data {
        std::mem::replace(&mut self.data[id.index()], Data::Lent)
    }

    pub(super) fn give_back(&mut self, id: BufferId, data: Data) {
        self.data[id.index()] = data;
    }
}

/// A view of f32 rows.
#[derive(Clone, Copy)]
pub(super) struct F32Rows<'a> {
    pub width: usize,
    values: &'a [f32],
}

impl<'a> F32Rows<'a> {
    pub(super) fn row(&self, row: usize) -> &'a [f32] {
        &self.values[row * self.width..][..self.width]
    }
}

impl Data {
    /// Row of an f32 buffer that a step writes.
    pub(super) fn f32_row_mut(&mut self, row: usize) -> &mut [f32] {
        match self {
            Data::F32 { width, values } => &mut values[row * *width..][..*width],
            other => panic!("the plan writes {other:?} as f32"),
        }
    }

    /// High plane, low plane and scales of a row of planes that a step writes.
    pub(super) fn planes_row_mut(&mut self, row: usize) -> (&mut [i8], &mut [i8], &mut [f32]) {
        match self {
            Data::Planes(planes) => planes.row_mut(row),
            other => panic!("the plan writes {other:?} as planes"),
        }
    }
}

impl Planes {
    /// High plane, low plane and scales of a row.
    pub(super) fn row(&self, row: usize) -> (&[i8], &[i8], &[f32]) {
        let (values, scales) = self.ranges(row);
        (&self.high[values.clone()], &self.low[values], &self.scales[scales])
    }

    fn row_mut(&mut self, row: usize) -> (&mut [i8], &mut [i8], &mut [f32]) {
        let (values, scales) = self.ranges(row);
        (&mut self.high[values.clone()], &mut self.low[values], &mut self.scales[scales])
    }

    fn ranges(&self, row: usize) -> (Range<usize>, Range<usize>) {
        let scales = self.scales_per_row;
        (row * self.width..(row + 1) * self.width, row * scales..(row + 1) * scales)
    }

    fn allocate(rows: usize, width: usize, scales_per_row: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            width,
            scales_per_row,
            high: allocate("an activation plane", rows, width)?,
            low: allocate("an activation plane", rows, width)?,
            scales: allocate("activation scales", rows, scales_per_row)?,
        })
    }
}
