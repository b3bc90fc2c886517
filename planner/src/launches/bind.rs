//! Which piece of memory an object of a kernel is: kernels name their objects by the role they have in a
//! step.

use unisonic_core::launch::inputs::{Input, InputLayout};
use unisonic_core::launch::{Area, Place};
use unisonic_core::plan::{BufferId, Op, Rows, WeightId};
use unisonic_core::planes::region;

use super::LoweredPlan;
use super::arena::{Part, Region, regions};
use crate::kernels::Grid;

/// A step of a plan for a shape.
pub struct Bind<'a> {
    /// The plan and its memory.
    pub lowered: &'a LoweredPlan,
    /// Where inputs lie, and the shape.
    pub inputs: InputLayout,
    /// Index of the step.
    pub step: u32,
    /// The step.
    pub op: &'a Op,
}

impl Bind<'_> {
    /// The place of the object with a name; none if the step has nothing of that name.
    pub fn place(&self, name: &str) -> Option<Place> {
        let of = self.rows();
        match name {
            "tokens" => Some(self.input(Input::Tokens(of))),
            "positions" => Some(self.input(Input::Positions(of))),
            "sequences" => Some(self.input(Input::Sequences(of))),
            "tiles" => Some(self.input(Input::Tiles(of))),
            "indices" => Some(self.input(Input::Outputs)),
            "pages" => Some(self.input(Input::Pages)),
            "flags" => {
                let flags = self.lowered.arena.place(Part::Flags)?;
                self.lowered.checks.place(self.step, self.inputs.shape.count(of), flags)
            }
            _ => self.operand(name),
        }
    }

    /// The value of a parameter.
    pub fn param(&self, name: &str) -> Option<u32> {
        match name {
            "pages_a_sequence" => Some(self.inputs.shape.pages_a_sequence()),
            "groups" => Some(self.inputs.shape.groups),
            "first_of_up" => match *self.op {
                Op::Gate { gate, part, .. } => part.checked_mul(self.lowered.plan.row_width(gate) as u32),
                _ => None,
            },
            _ => None,
        }
    }

    /// The rows that the step computes.
    pub fn rows(&self) -> Rows {
        self.lowered.plan.rows_of(self.op)
    }

    /// A grid over the rows of the batch, for kernels that take each slot of a row for a row.
    pub fn grid(&self, grid: Grid) -> Option<Grid> {
        match (grid, self.op) {
            // That takes all slots of a row together.
            (Grid::Rows(_), Op::SelectOutputs { .. }) => Some(grid),
            (Grid::Rows(each), op) => each.checked_mul(self.lowered.plan.slots_of(op)).map(Grid::Rows),
            _ => Some(grid),
        }
    }

    fn operand(&self, name: &str) -> Option<Place> {
        let vector = |weight: WeightId| Self::image(self.lowered, self.lowered.images.vector(weight)?);
        let values = |buffer: BufferId| self.region(buffer, Region::Values);
        match (self.op, name) {
            (Op::Embed { table, .. } | Op::EmbedPositions { table, .. }, "table") => {
                Self::image(self.lowered, self.lowered.images.bytes(*table)?)
            }
            (Op::Linear { weight, .. } | Op::ExpertLinear { weight, .. }, "weights") => {
                Self::image(self.lowered, self.lowered.images.planes(*weight)?)
            }
            (Op::ExpertLinear { routes, .. } | Op::SumExperts { routes, .. }, "routes") => values(*routes),
            (Op::Route { router, .. }, "router") => vector(*router),
            (Op::AddShared { gate, .. }, "gate") => vector(*gate),
            (Op::AddShared { a, .. }, "a") => values(*a),
            (Op::AddShared { b, .. }, "b") => values(*b),
            (Op::Linear { bias, .. }, "bias") => vector((*bias)?),
            (Op::Linear { add, .. } | Op::RmsNorm { add, .. }, "add") => values((*add)?),
            (Op::RmsNorm { weight, .. } | Op::LayerNorm { weight, .. }, "weight") => vector(*weight),
            (Op::LayerNorm { bias, .. }, "bias") => vector(*bias),
            (Op::HeadNorm { weight, .. }, "weight") => vector((*weight)?),
            (Op::Scale { scale, .. }, "scale") => vector(*scale),
            (Op::PrepareQuery { norm, .. } | Op::WriteKv { norm, .. }, "weight") => vector((*norm)?.weight),
            (Op::PrepareQuery { rope, .. } | Op::WriteKv { rope, .. }, "rope") => {
                Self::image(self.lowered, self.lowered.images.rope((*rope)?)?)
            }
            (Op::Rope { rope, .. }, "rope") => Self::image(self.lowered, self.lowered.images.rope(*rope)?),
            (Op::WriteKv { layer, .. } | Op::Attention { layer, .. }, "cache") => self.cache(layer.0),
            (Op::WriteKv { k, .. }, "k") => values(*k),
            (Op::WriteKv { v, .. }, "v") => values(*v),
            (Op::PrepareQuery { q, .. }, "q") => values(*q),
            (Op::PrepareQuery { out, .. }, _) => self.region(*out, query_region(name)?),
            (Op::Attention { q, .. }, "high" | "low" | "scales") => self.region(*q, query_region(name)?),
            (Op::Attention { .. }, _) if name != "out" => self.lowered.arena.place(states_part(name)?),
            // Where the step is the end of an attention, too.
            (Op::Quantize { .. }, "group_maxima" | "group_sums" | "group_outputs") => {
                self.lowered.arena.place(states_part(name)?)
            }
            (Op::Gate { gate, .. }, "gate") => values(*gate),
            (Op::Gate { up, .. }, "up") => values(*up),
            (Op::Add { a, .. }, "a") => values(*a),
            (Op::Add { b, .. }, "b") => values(*b),
            (
                Op::RmsNorm { x, .. }
                | Op::LayerNorm { x, .. }
                | Op::Gelu { x, .. }
                | Op::Route { x, .. }
                | Op::SumExperts { x, .. }
                | Op::AddShared { x, .. }
                | Op::Quantize { x, .. }
                | Op::HeadNorm { x, .. }
                | Op::Rope { x, .. }
                | Op::Scale { x, .. }
                | Op::SelectOutputs { x, .. }
                | Op::SoftCap { x, .. },
                "x",
            ) => values(*x),
            (op, "out") => self.region(op.result()?, Region::Values),
            (Op::Linear { x, .. } | Op::ExpertLinear { x, .. }, _) => {
                self.region(*x, a16_region(name.strip_prefix("x_")?)?)
            }
            (Op::Quantize { out, .. }, _) => self.region(*out, a16_region(name)?),
            (op, _) => self.region(op.quantized()?, a16_region(name)?),
        }
    }

    fn input(&self, input: Input) -> Place {
        Place {
            area: Area::Inputs,
            offset_bytes: self.inputs.offset_bytes(input),
            len_bytes: 4 * u64::from(self.inputs.len(input)),
        }
    }

    /// The whole of an image.
    pub fn image(lowered: &LoweredPlan, index: u32) -> Option<Place> {
        let image = lowered.images.list.get(index as usize)?;
        Some(Place { area: Area::Image(index), offset_bytes: 0, len_bytes: image.len_bytes(&lowered.plan) })
    }

    fn cache(&self, layer: u32) -> Option<Place> {
        let page = self.lowered.memory.page_len_bytes.get(layer as usize)?;
        let len_bytes = page * u64::from(self.lowered.memory.pages);
        Some(Place { area: Area::Cache(layer), offset_bytes: 0, len_bytes })
    }

    /// A region of a buffer, as long as the shape's rows need.
    fn region(&self, buffer: BufferId, region: Region) -> Option<Place> {
        if self.lowered.plan.input == Some(buffer) {
            return (region == Region::Values).then(|| self.input(Input::Values));
        }
        let place = self.lowered.arena.place(Part::Region(buffer, region))?;
        let of_plan = &self.lowered.plan.buffers[buffer.index()];
        let rows = self.inputs.shape.count(of_plan.rows).saturating_mul(of_plan.slots);
        let of_shape = regions(of_plan.kind, rows).ok()?;
        let (_, len_bytes) = of_shape.into_iter().find(|(other, _)| *other == region)?;
        Some(Place { len_bytes, ..place })
    }
}

fn query_region(name: &str) -> Option<Region> {
    match name {
        "high" => Some(Region::High),
        "low" => Some(Region::Low),
        "scales" => Some(Region::Scales),
        _ => None,
    }
}

fn a16_region(name: &str) -> Option<Region> {
    region::Region::of_name(name).map(Region::A16)
}

fn states_part(name: &str) -> Option<Part> {
    match name {
        "maxima" | "group_maxima" => Some(Part::Maxima),
        "sums" | "group_sums" => Some(Part::Sums),
        "outputs" | "group_outputs" => Some(Part::Outputs),
        _ => None,
    }
}
