//! What a plan needs in device memory that never changes.

use unisonic_core::launch::{Image, LowerError};
use unisonic_core::plan::{Op, Plan, RopeTableId, WeightId};
use unisonic_core::planes::LayoutError;

use super::limits::check_len;
use crate::kernels::of_plan::weight_layout;

/// The images of a plan, each once, in the order of first use.
#[derive(Clone, Debug, Default)]
pub struct Images {
    /// The images.
    pub list: Vec<Image>,
}

impl Images {
    /// Of a plan whose positions lie below `positions`.
    pub fn of_plan(plan: &Plan, positions: u32) -> Result<Self, LowerError> {
        let mut images = Self::default();
        for step in &plan.steps {
            let before = images.list.len();
            let added = images.add_step(plan, positions, &step.op);
            added.map_err(|fault| LowerError(format!("`{}`: {fault}", step.label)))?;
            for image in &images.list[before..] {
                let (what, remedy) = match image {
                    Image::Rope { .. } => {
                        (format!("{} positions", image.name(plan)), "run with fewer KV pages")
                    }
                    _ => (format!("the elements of {}", image.name(plan)), "split the tensor"),
                };
                check_len(&step.label, &what, image.len_bytes(plan).div_ceil(4), remedy)?;
            }
        }
        Ok(images)
    }

    fn add_step(&mut self, plan: &Plan, positions: u32, op: &Op) -> Result<(), LayoutError> {
        let vector = |weight: WeightId| Image::Vector { weight };
        let table = |table: RopeTableId| Image::Rope { table, positions };
        match *op {
            Op::Embed { table, .. } | Op::EmbedPositions { table, .. } => {
                self.add(Image::Bytes { weight: table });
            }
            Op::ExpertLinear { weight, .. } => {
                self.add(Image::Planes { weight, layout: weight_layout(plan, weight)? });
            }
            Op::Route { router: weight, .. } | Op::AddShared { gate: weight, .. } => self.add(vector(weight)),
            Op::LayerNorm { weight, bias, .. } => {
                [weight, bias].map(vector).into_iter().for_each(|v| self.add(v))
            }
            Op::RmsNorm { weight, .. } => self.add(vector(weight)),
            Op::Linear { weight, bias, .. } => {
                self.add(Image::Planes { weight, layout: weight_layout(plan, weight)? });
                bias.into_iter().for_each(|bias| self.add(vector(bias)));
            }
            Op::HeadNorm { weight, .. } => weight.into_iter().for_each(|weight| self.add(vector(weight))),
            Op::Scale { scale, .. } => self.add(vector(scale)),
            Op::Rope { rope, .. } => self.add(table(rope)),
            Op::PrepareQuery { norm, rope, .. } | Op::WriteKv { norm, rope, .. } => {
                norm.into_iter().for_each(|norm| self.add(vector(norm.weight)));
                rope.into_iter().for_each(|rope| self.add(table(rope)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds an image that is not there yet.
    pub fn add(&mut self, image: Image) {
        if !self.list.contains(&image) {
            self.list.push(image);
        }
    }

    /// The number of the first image for which `is_it` holds.
    pub fn find(&self, is_it: impl Fn(&Image) -> bool) -> Option<u32> {
        self.list.iter().position(is_it).map(|index| index as u32)
    }

    /// A matrix as planes.
    pub fn planes(&self, of: WeightId) -> Option<u32> {
        self.find(|image| matches!(image, Image::Planes { weight, .. } if *weight == of))
    }

    /// A tensor as the file has it.
    pub fn bytes(&self, of: WeightId) -> Option<u32> {
        self.find(|image| matches!(image, Image::Bytes { weight } if *weight == of))
    }

    /// A vector.
    pub fn vector(&self, of: WeightId) -> Option<u32> {
        self.find(|image| matches!(image, Image::Vector { weight } if *weight == of))
    }

    /// A position table.
    pub fn rope(&self, of: RopeTableId) -> Option<u32> {
        self.find(|image| matches!(image, Image::Rope { table, .. } if *table == of))
    }
}
