//! Where activations lie: a place for each region of each buffer of the plan, for what attention hands from
//! one launch to the next, and for broken range contracts. Places are as large as the largest shape needs and
//! the same for all shapes.
//!
//! Buffers of a plan are already shared by values whose lives do not overlap (`lower/buffers.rs`).

use std::collections::HashMap;

use unisonic_core::kir::abi::{ALIGN_BYTES, MAX_OBJECT_LEN};
use unisonic_core::launch::{Area, LowerError, Place, Shape};
use unisonic_core::plan::{BufferId, BufferKind, Plan};
use unisonic_core::planes::LayoutError;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::region;

use crate::kernels::of_plan::{regions_read, writes};

/// What a part of the arena holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A region of a buffer.
    Region(BufferId, Region),
    /// Attention: the maxima of groups, i32.
    Maxima,
    /// Attention: the sums of groups, f32.
    Sums,
    /// Attention: the outputs of groups, f32.
    Outputs,
    /// Flags of all checked steps.
    Flags,
    /// What of the flags is handed to the host.
    Found,
    /// The largest logit of each part of an output row, as ordered integers.
    BestOrders,
    /// Their ids.
    BestIds,
    /// Tokens that were picked.
    Picked,
    /// Flags of rows whose tokens were picked.
    Broken,
}

/// A region of a buffer, an object of its own in kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// Rows of f32.
    Values,
    /// Of A16.
    A16(region::Region),
    /// Q16: the high plane.
    High,
    /// Q16: the low plane.
    Low,
    /// Q16: the scales.
    Scales,
}

/// The regions of a buffer with `rows` rows and their lengths, none of more words than a kernel can number.
pub fn regions(kind: BufferKind, rows: u32) -> Result<Vec<(Region, u64)>, LayoutError> {
    let width = match kind {
        BufferKind::F32 { width } => u64::from(width),
        BufferKind::A16 { .. } => 0,
        BufferKind::Q16 { heads, head_len } => u64::from(heads) * u64::from(head_len),
    };
    if u64::from(rows).checked_mul(width).is_none_or(|words| words > u64::from(MAX_OBJECT_LEN)) {
        return Err(LayoutError::TooLarge { rows: rows as usize, width: width as usize });
    }
    Ok(match kind {
        BufferKind::F32 { width } => vec![(Region::Values, 4 * u64::from(rows) * u64::from(width))],
        BufferKind::A16 { width } => {
            let layout = ActivationLayout::new(rows as usize, width as usize)?;
            let of = |region| (Region::A16(region), 4 * u64::from(layout.len(region)));
            region::Region::ALL.map(of).to_vec()
        }
        BufferKind::Q16 { heads, head_len } => {
            let of_heads = u64::from(rows) * u64::from(heads);
            let plane = of_heads * u64::from(head_len);
            vec![(Region::High, plane), (Region::Low, plane), (Region::Scales, 4 * of_heads)]
        }
    })
}

/// Lengths of the states of groups that [`crate::kernels::attention_decode`] writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// Rows times query heads times groups.
    pub count: u64,
    /// Values of all outputs.
    pub values: u64,
}

impl States {
    /// As many as the larger of two needs.
    pub fn max(self, other: Self) -> Self {
        Self { count: self.count.max(other.count), values: self.values.max(other.values) }
    }
}

/// Offsets of the parts.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    places: HashMap<Part, Place>,
    /// The length of all.
    pub len_bytes: u64,
}

impl Arena {
    /// With the buffers of a plan, for the largest shape; of A16 buffers, the regions that weights read.
    pub fn of_plan(plan: &Plan, largest: Shape) -> Result<Self, LowerError> {
        let mut arena = Self::default();
        for (id, buffer) in (0..).map(BufferId).zip(&plan.buffers) {
            let rows = largest.count(buffer.rows).saturating_mul(buffer.slots);
            // What the host gives lies among the inputs.
            if rows == 0 || plan.input == Some(id) {
                continue;
            }
            let read = regions_read(plan, id, plan.steps.iter());
            let regions = regions(buffer.kind, rows).map_err(|fault| {
                let writer = plan.steps.iter().find(|step| writes(&step.op, id));
                LowerError(format!("`{}`: {fault}", writer.map_or("", |step| &step.label)))
            })?;
            for (region, len_bytes) in regions {
                if !matches!(region, Region::A16(region) if !read.has(region)) {
                    arena.add(Part::Region(id, region), len_bytes);
                }
            }
        }
        Ok(arena)
    }

    /// Adds the states of attention.
    pub fn add_states(&mut self, states: States) {
        self.add(Part::Maxima, 4 * states.count);
        self.add(Part::Sums, 4 * states.count);
        self.add(Part::Outputs, 4 * states.values);
    }

    /// Adds a part.
    pub fn add(&mut self, part: Part, len_bytes: u64) {
        let place = Place { area: Area::Arena, offset_bytes: self.len_bytes, len_bytes };
        self.places.insert(part, place);
        self.len_bytes += len_bytes.next_multiple_of(ALIGN_BYTES);
    }

    /// Where a part lies.
    pub fn place(&self, part: Part) -> Option<Place> {
        self.places.get(&part).copied()
    }
}
