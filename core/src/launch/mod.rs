//! The launches of a plan on a GPU, as plain data: what the planner's lowering makes and a GPU backend runs.
//!
//! [`Lower`] turns a plan into [`Memory`], what lies in device memory as long as a program lives, and for each [`Shape`] of
//! batch into [`Launches`]: kernels, and the order in which they run over which places of that memory. Nothing of a driver
//! is here: a backend allocates areas, compiles kernels, records launches once and replays them with other [`inputs`].
//!
//! Start reading at [`Launches`].

mod hardware;
mod image;
pub mod inputs;

use std::sync::Arc;

pub use hardware::Hardware;
pub use image::Image;

use crate::kir::Kernel;
use crate::numerics::merge::GROUP_CHUNKS;
use crate::plan::{Limits, Plan, Rows};
use inputs::InputLayout;

/// Turns plans into launches; the planner's, handed to a backend by whoever opens it.
pub trait Lower: Send + Sync {
    /// For batches up to `limits` on some hardware.
    fn lower(
        &self,
        plan: Arc<Plan>,
        limits: Limits,
        hardware: Hardware,
    ) -> Result<Box<dyn Lowered>, LowerError>;
}

/// A plan for some hardware.
pub trait Lowered: Send + Sync {
    /// What it needs in device memory, for all shapes.
    fn memory(&self) -> &Memory;

    /// The launches for batches of a shape, which is within [`Memory::largest`].
    fn launches(&self, shape: Shape, wanted: Wanted) -> Result<Launches, LowerError>;

    /// How launches keep a page of a KV layer: for each byte in the order of [`KvLayer`](crate::plan::KvLayer), of one head, which
    /// byte of that head's part of the page it is; the parts are one after the other, and of the same length. None if pages cannot be had from outside.
    fn page_bytes(&self, layer: usize) -> Option<Vec<u32>> {
        let _ = layer;
        None
    }
}

/// What a run gives the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wanted {
    /// The logits of output rows.
    Logits,
    /// Of each output row the most likely token; and the inputs become those of a run in which these tokens come next, so
    /// that the launches can run again at once.
    Tokens,
}

/// Most runs one after the other that launches for [`Wanted::Tokens`] have places for.
pub const MAX_RUNS: u32 = 16;

/// There are no launches for a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this model has no GPU kernels: {0}")]
pub struct LowerError(pub String);

/// What launches are made for; a smaller batch is filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Rows of the batch.
    pub rows: u32,
    /// Output rows; with none, steps that only serve the logits are left out.
    pub outputs: u32,
    /// Groups of 16 pages (1024 positions) of the longest sequence.
    pub groups: u32,
}

/// Pages of a group.
pub const GROUP_PAGES: u32 = GROUP_CHUNKS as u32;

impl Shape {
    /// Page numbers of a sequence in the page table.
    pub fn pages_a_sequence(self) -> u32 {
        GROUP_PAGES * self.groups
    }

    /// How many rows a step with these computes.
    pub fn count(self, rows: Rows) -> u32 {
        match rows {
            Rows::All => self.rows,
            Rows::Outputs => self.outputs,
        }
    }

    /// Whether launches for `other` may run where there is memory for `self`.
    pub fn holds(self, other: Self) -> bool {
        self.rows >= other.rows && self.outputs >= other.outputs && self.groups >= other.groups
    }
}

/// What lies in device memory as long as a program lives.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Weights and tables, filled once.
    pub images: Vec<Image>,
    /// For each KV layer the bytes of a page. Page numbers go from 0 to `pages`.
    pub page_len_bytes: Vec<u64>,
    /// Pages: those of the limits, and after them as many as rows that only fill a batch up write to.
    pub pages: u32,
    /// Activations and everything else that one launch hands to another.
    pub arena_len_bytes: u64,
    /// Inputs of the largest shape.
    pub inputs_len_bytes: u64,
    /// The largest shape.
    pub largest: Shape,
}

impl Memory {
    /// All of it.
    pub fn len_bytes(&self, plan: &Plan) -> u64 {
        let images: u64 = self.images.iter().map(|image| image.len_bytes(plan)).sum();
        let caches = self.page_len_bytes.iter().sum::<u64>() * u64::from(self.pages);
        images + caches + self.arena_len_bytes + self.inputs_len_bytes
    }
}

/// A piece of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// Index into [`Memory::images`].
    Image(u32),
    /// The cache of a KV layer: its pages one after the other.
    Cache(u32),
    /// Scratch.
    Arena,
    /// What the host writes before each run ([`inputs`]).
    Inputs,
}

/// Part of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which.
    pub area: Area,
    /// Where it begins: a multiple of [`crate::kir::abi::ALIGN_BYTES`].
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

/// Everything that runs for a batch of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Launches {
    /// Each once, legal for the hardware.
    pub kernels: Vec<Kernel>,
    /// One after the other: each sees all that those before it wrote.
    pub launches: Vec<Launch>,
    /// Where inputs lie.
    pub inputs: InputLayout,
    /// The logits: f32, `[output row][vocabulary]`; none without output rows, and none where tokens are wanted.
    pub logits: Option<Place>,
    /// The tokens: none without output rows, and none where logits are wanted.
    pub picked: Option<Picked>,
    /// Broken range contracts, u32, `[checked step][Shape::rows]`: not 0 where a row broke the one of a step. A step that
    /// computes output rows has them first.
    pub found: Place,
    /// The steps of `found`, ascending.
    pub checked: Vec<Checked>,
}

/// What runs for [`Wanted::Tokens`] find, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picked {
    /// u32, `[run][output row]`: the id of the largest logit, of equals the lowest.
    pub tokens: Place,
    /// u32, `[run][output row]`: not 0 where row `i` of the batch, which has to be that of output row `i`, broke a range
    /// contract.
    pub broken: Place,
}

/// A step that checks a range contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Index into [`Plan::steps`].
    pub step: u32,
    /// Which rows it computes.
    pub rows: Rows,
}

/// A kernel and what it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index into [`Plan::steps`] of the step that it serves, the first of several, for messages.
    pub step: u32,
    /// Index into [`Launches::kernels`].
    pub kernel: u32,
    /// For each addressed object ([`crate::kir::abi::addressed`]), in order.
    pub places: Vec<Place>,
    /// Words of the parameters, in order.
    pub params: Vec<u32>,
    /// How many workgroups.
    pub workgroups: Workgroups,
}

/// The size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workgroups {
    /// The same in each run.
    Fixed(u32),
    /// So many for each tile ([`inputs::Tile`]) of these rows of the batch.
    PerTile(Rows, u32),
}
