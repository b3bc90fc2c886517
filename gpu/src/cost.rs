//! What a launch has to move and multiply, counted from its places: what its time is compared with.

use unisonic_core::kir::Kernel;
use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::kernel::{Object, Space};
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::launch::{Area, Image, Launch, Launches, Memory, Place, Workgroups};
use unisonic_core::plan::{Batch, LaunchProfile, Op, Plan, Rows, RunProfile, Weight};

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
        if let Some(chosen) = self.rows_of_experts(launch) {
            let cols = |weight: &Weight| u64::from(weight.cols);
            return self.matrices(launch).map(|weight| rows * chosen * cols(weight)).sum();
        }
        self.matrices(launch).map(|weight| u64::from(weight.rows) * u64::from(weight.cols) * rows).sum()
    }

    /// Rows of the matrices of the experts that a row of the batch chose.
    fn rows_of_experts(&self, launch: &Launch) -> Option<u64> {
        let Op::ExpertLinear { out, .. } = self.plan.steps[launch.step as usize].op else { return None };
        let slots = self.plan.buffers[out.index()].slots;
        Some(u64::from(slots) * self.plan.row_width(out) as u64)
    }

    /// The matrices that a launch multiplies with.
    fn matrices(&self, launch: &Launch) -> impl Iterator<Item = &Weight> {
        let of = |place: &Place| match place.area {
            Area::Image(index) => match self.memory.images[index as usize] {
                Image::Planes { weight, .. } => Some(&self.plan.weights[weight.index()]),
                _ => None,
            },
            _ => None,
        };
        launch.places.iter().filter_map(of)
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
            Image::Planes { weight, .. } => {
                // Of experts those that were chosen, which may be the same for several rows.
                let rows = self.rows_of_experts(launch).map(|chosen| self.rows(launch) * chosen);
                let weight = &self.plan.weights[weight.index()];
                let of_rows = rows.map(|rows| rows * weight.row_len_bytes() as u64);
                of_rows.map_or(image.len_bytes(self.plan), |len| len.min(image.len_bytes(self.plan)))
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

#[cfg(test)]
mod tests {
    use unisonic_core::kir::Scalar;
    use unisonic_core::kir::build::kernel;
    use unisonic_core::launch::Shape;
    use unisonic_core::plan::{Buffer, BufferId, BufferKind, KvLayer, KvLayerId, Step};

    use super::*;

    /// Attention over a window of 100 tokens, of a layer with 56 bytes a token.
    fn plan() -> Plan {
        let (q, out) = (BufferId(0), BufferId(1));
        let op = Op::Attention { q, layer: KvLayerId(0), kappa: 1.0, window: Some(100), soft_cap: None, out };
        let buffer = || Buffer::new(Rows::All, BufferKind::F32 { width: 16 });
        Plan {
            architecture: "test".into(),
            vocab_len: 1,
            context_len: 1000,
            weights: vec![],
            buffers: vec![buffer(), buffer()],
            rope_tables: vec![],
            kv_layers: vec![KvLayer { heads: 1, head_len: 16 }],
            input: None,
            steps: vec![Step { label: "attention".into(), op }],
            logits: out,
        }
    }

    #[test]
    fn what_the_rows_look_at_is_moved_once() {
        let (plan, kernel) = (
            plan(),
            kernel("attention", 32, |k| {
                k.read("q", Scalar::F32);
                k.read("cache", Scalar::U32);
                k.read_write("out", Scalar::F32);
                k.write("maxima", Scalar::F32);
                k.read("words", Scalar::U32);
            }),
        );
        let memory = Memory {
            images: vec![Image::Words(vec![0; 25])],
            page_len_bytes: vec![64 * 56],
            pages: 40,
            arena_len_bytes: 4096,
            inputs_len_bytes: 256,
            largest: Shape { rows: 3, outputs: 3, groups: 1 },
        };
        let place = |area, len_bytes| Place { area, offset_bytes: 0, len_bytes };
        let launch = Launch {
            step: 0,
            kernel: 0,
            places: vec![
                place(Area::Arena, 192),
                place(Area::Cache(0), 40 * 64 * 56),
                place(Area::Arena, 192),
                place(Area::Arena, 512),
                place(Area::Image(0), 100),
            ],
            params: vec![],
            workgroups: Workgroups::PerTile(Rows::All, 5),
        };
        let pages = [0; 10];
        let batch = Batch {
            tokens: &[1; 3],
            // Two rows of a sequence of which the window hides most, and the beginning of another.
            positions: &[500, 501, 2],
            sequences: &[0, 0, 1],
            page_tables: &[&pages, &pages],
            outputs: &[],
            values: &[],
        };
        let tiles = TileCounts { all: 2, outputs: 0 };
        let costs = Costs { plan: &plan, memory: &memory, batch: &batch, tiles };
        assert_eq!(costs.workgroups(&launch), 10);
        assert_eq!(costs.bytes(&launch, &kernel), 192 + (100 + 3) * 56 + 2 * 192 + 100);
        assert_eq!(costs.macs(&launch), 0);
    }
}
