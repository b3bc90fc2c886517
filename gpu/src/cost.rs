//! What a launch has to move and multiply, counted from its places: what its time is compared with.

use unisonic_core::kir::Kernel;
use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::kernel::{Object, Space};
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::launch::{Area, Image, Launch, Launches, Memory, Place, Workgroups};
use unisonic_core::plan::{Batch, LaunchProfile, Op, Plan, Rows, RunProfile};

use crate::machine::Times;

/// A batch on some launches.
pub(crate) struct Costs<'a> {
    pub plan: &'a Plan,
    pub memory: &'a Memory,
    pub batch: &'a Batch<'a>,
    pub tiles: TileCounts,
}

impl Costs<'_> {
    /// Launches with what they cost and took.
    pub(crate) fn profile(&self, launches: &Launches, times: &[Times]) -> RunProfile {
        let of = |(number, launch): (usize, &Launch)| {
            let kernel = &launches.kernels[launch.kernel as usize];
            LaunchProfile {
                kernel: kernel.name.clone(),
                step: launch.step,
                workgroups: self.workgroups(launch),
                bytes: self.bytes(launch, kernel),
                macs: self.macs(launch),
                ns: times.iter().filter_map(|times| times.launches_ns.get(number).copied()).collect(),
            }
        };
        RunProfile {
            launches: launches.launches.iter().enumerate().map(of).collect(),
            whole_ns: times.iter().map(|times| times.whole_ns).collect(),
            empty_ns: times.iter().map(|times| times.empty_ns).collect(),
        }
    }

    /// How many workgroups a launch has.
    fn workgroups(&self, launch: &Launch) -> u32 {
        match launch.workgroups {
            Workgroups::Fixed(count) => count,
            Workgroups::PerTile(rows, count) => count.saturating_mul(self.tiles.of(rows)),
        }
    }

    /// Bytes: each operand once, twice what is read and written; of tables and caches what the batch's rows look at.
    fn bytes(&self, launch: &Launch, kernel: &Kernel) -> u64 {
        let objects = addressed(kernel).map(|id| &kernel.objects[id.index()]);
        let of = |(object, place): (&Object, &Place)| {
            let times = if object.space == Space::ReadWrite { 2 } else { 1 };
            match place.area {
                Area::Image(index) => self.image_bytes(launch, &self.memory.images[index as usize]),
                Area::Cache(layer) => self.cache_bytes(launch, layer),
                Area::Inputs => place.len_bytes,
                Area::Arena if STATES.contains(&&*object.name) => 0,
                Area::Arena => times * place.len_bytes,
            }
        };
        objects.zip(&launch.places).map(of).sum()
    }

    /// Multiplications of a linear layer.
    fn macs(&self, launch: &Launch) -> u64 {
        let rows = self.rows(launch);
        let of = |place: &Place| match place.area {
            Area::Image(index) => match self.memory.images[index as usize] {
                Image::Planes { weight, .. } => {
                    let weight = &self.plan.weights[weight.index()];
                    u64::from(weight.rows) * u64::from(weight.cols) * rows
                }
                _ => 0,
            },
            _ => 0,
        };
        launch.places.iter().map(of).sum()
    }

    /// Rows of the batch that a launch computes.
    fn rows(&self, launch: &Launch) -> u64 {
        match self.plan.rows_of(&self.plan.steps[launch.step as usize].op) {
            Rows::All => self.batch.rows() as u64,
            Rows::Outputs => self.batch.outputs.len() as u64,
        }
    }

    fn image_bytes(&self, launch: &Launch, image: &Image) -> u64 {
        match *image {
            Image::Bytes { weight } => {
                self.rows(launch) * self.plan.weights[weight.index()].row_len_bytes() as u64
            }
            Image::Rope { .. } => {
                // One row of the table for each row of the batch.
                self.rows(launch) * image.len_bytes(self.plan) / u64::from(positions(image)).max(1)
            }
            _ => image.len_bytes(self.plan),
        }
    }

    /// Keys and values: those of the rows where they are written, those that the last row of each sequence sees where they
    /// are read.
    fn cache_bytes(&self, launch: &Launch, layer: u32) -> u64 {
        let token_len_bytes = self.plan.kv_layers[layer as usize].token_len_bytes();
        let Op::Attention { window, .. } = self.plan.steps[launch.step as usize].op else {
            return self.rows(launch) * token_len_bytes;
        };
        let mut seen = vec![0; self.batch.page_tables.len()];
        for (&sequence, &position) in self.batch.sequences.iter().zip(self.batch.positions) {
            let tokens = position.saturating_add(1).min(window.unwrap_or(u32::MAX));
            if let Some(seen) = seen.get_mut(sequence as usize) {
                *seen = tokens.max(*seen);
            }
        }
        seen.into_iter().map(|tokens| u64::from(tokens) * token_len_bytes).sum()
    }
}

/// What the parts of an attention hand over: as long as the largest shape needs.
const STATES: [&str; 6] = ["maxima", "group_maxima", "sums", "group_sums", "outputs", "group_outputs"];

fn positions(image: &Image) -> u32 {
    match *image {
        Image::Rope { positions, .. } => positions,
        _ => 1,
    }
}
