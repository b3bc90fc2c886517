//! The work of a model as plain data, and the trait of what executes it.
//!
//! A [`Plan`] lists weights, activation buffers, RoPE tables, KV layers and [`Step`]s. The planner makes it
//! once a model; a [`Device`] loads it with the weights and then runs [`Batch`]es of rows, each row one token
//! of one sequence at one position. A plan holds no handle, pointer or device property: same model, same
//! plan, and it means the same on every device, because each step is defined by functions of
//! [`crate::numerics`].
//!
//! Start reading at [`Op`]: its variants are all that a device has to know.

mod batch;
mod check;
mod cost;
mod device;
mod profile;
mod step;
mod text;
mod weights;

pub use batch::{Batch, BatchError, PAGE_TOKENS};
pub use check::PlanFault;
pub use device::{
    Device, DeviceError, DeviceInfo, Limits, LoadProgress, Picks, Program, Progress, RangeFlag,
};
pub use profile::{LaunchProfile, RunProfile};
pub use step::{Activation, Denominator, HeadNorm, Op, Step};
pub use weights::{
    Encoding, FloatSource, LoadedWeight, MemoryWeights, ReadError, TensorPart, W16Matrix, Weight,
    WeightError, WeightSource, load_rows, load_weight,
};

pub(crate) use weights::zeroed_bytes;

/// Identity of the arithmetic (docs/numerics.md). Another arithmetic has another name.
pub const PROFILE: &str = "u1";

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// Index into the plan's list.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
id!(
    /// Index into [`Plan::weights`].
    WeightId
);
id!(
    /// Index into [`Plan::buffers`].
    BufferId
);
id!(
    /// Index into [`Plan::rope_tables`].
    RopeTableId
);
id!(
    /// Index into [`Plan::kv_layers`].
    KvLayerId
);

/// Everything a device needs to run a model, except the bytes of its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Architecture, for messages.
    pub architecture: String,
    /// Tokens in the vocabulary; also the length of a row of logits, unless the plan gives other rows
    /// ([`Plan::output_width`]).
    pub vocab_len: u32,
    /// The longest context the model was made for.
    pub context_len: u32,
    /// Tensors to load, in the order of first use.
    pub weights: Vec<Weight>,
    /// Activations; steps name them by index. Their contents are undefined until a step writes them.
    pub buffers: Vec<Buffer>,
    /// Position tables.
    pub rope_tables: Vec<RopeTable>,
    /// KV caches; several attention layers may read the same.
    pub kv_layers: Vec<KvLayer>,
    /// The buffer whose rows the host gives with each batch ([`Batch::values`]), where there is one: f32, all rows, and no
    /// step writes it.
    pub input: Option<BufferId>,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// The buffer that holds the logits of the output rows, or other values of theirs, when the last step is done.
    pub logits: BufferId,
}

impl Plan {
    /// The rows that an operation computes: those of its result, or all for one that writes a KV cache.
    pub fn rows_of(&self, op: &Op) -> Rows {
        op.result().map_or(Rows::All, |result| self.buffers[result.index()].rows)
    }

    /// The slots that an operation computes of each row.
    pub fn slots_of(&self, op: &Op) -> u32 {
        op.result().map_or(1, |result| self.buffers[result.index()].slots)
    }

    /// Values of a row of a buffer.
    pub fn row_width(&self, buffer: BufferId) -> usize {
        match self.buffers[buffer.index()].kind {
            BufferKind::F32 { width } | BufferKind::A16 { width } => width as usize,
            BufferKind::Q16 { heads, head_len } => heads as usize * head_len as usize,
        }
    }

    /// Values of an output row: the vocabulary of a whole model.
    pub fn output_width(&self) -> usize {
        self.row_width(self.logits)
    }

    /// How many rows an operation computes of a batch; a slot is a row.
    pub fn row_count(&self, op: &Op, batch: &Batch<'_>) -> usize {
        let rows = match self.rows_of(op) {
            Rows::All => batch.rows(),
            Rows::Outputs => batch.outputs.len(),
        };
        rows * self.slots_of(op) as usize
    }

    /// The row of the batch behind a row that an operation computes.
    pub fn source_row(&self, op: &Op, batch: &Batch<'_>, row: usize) -> usize {
        let row = row / self.slots_of(op) as usize;
        match self.rows_of(op) {
            Rows::All => row,
            Rows::Outputs => batch.outputs[row] as usize,
        }
    }
}

/// Which rows of a batch a buffer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// One for each row of the batch.
    All,
    /// One for each of [`Batch::outputs`].
    Outputs,
}

/// What a row of a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// `width` binary32 values.
    F32 {
        /// Values a row.
        width: u32,
    },
    /// A quantised activation (A16, docs/numerics.md "Activations"): two int8 planes of `width` values and
    /// one f32 scale for each superblock of 256.
    A16 {
        /// Values a row, before padding to a multiple of 32.
        width: u32,
    },
    /// Quantised query heads (Q16): two int8 planes and one f32 scale a head.
    Q16 {
        /// Number of heads.
        heads: u32,
        /// Values a head.
        head_len: u32,
    },
}

/// An activation buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Which rows it has.
    pub rows: Rows,
    /// How many rows there are for each of these, one after the other: 1, or one for each expert that is chosen.
    pub slots: u32,
    /// What a row holds.
    pub kind: BufferKind,
}

impl Buffer {
    /// One row for each row of the batch.
    pub fn new(rows: Rows, kind: BufferKind) -> Self {
        Self { rows, slots: 1, kind }
    }
}

/// A KV cache of one layer. Keys are stored as K16, values as V8 (docs/numerics.md "KV cache and attention").
///
/// Devices keep it as suits them. Outside of them the bytes of a page are, for each layer, and for each head
/// in it: the high plane of 64 keys (i8, `[64][head_len]`), the low plane, the scales (64 f32,
/// little-endian), and 64 values (i8, `[64][head_len]`) with theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Number of key/value heads.
    pub heads: u32,
    /// Values a head.
    pub head_len: u32,
}

impl KvLayer {
    /// Bytes of a head of a page.
    pub fn head_len_bytes(self) -> usize {
        PAGE_TOKENS as usize * (3 * self.head_len as usize + 2 * size_of::<f32>())
    }

    /// Bytes of this layer of a page.
    pub fn page_len_bytes(self) -> usize {
        self.heads as usize * self.head_len_bytes()
    }
}

/// How the two values of a RoPE pair lie in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Pair i is elements 2i and 2i+1 (llama files).
    Interleaved,
    /// Pair i is elements i and i + rot/2 (qwen, gemma, phi files).
    HalfSplit,
}

/// A position table: `theta = position * inverse_frequencies[i]`, cosine and sine times `scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Where the pairs lie.
    pub style: RopeStyle,
    /// One an element pair; 2 * len dimensions of a head are rotated, the others pass.
    pub inverse_frequencies: Vec<f64>,
    /// YaRN's `mscale`; 1 otherwise.
    pub scale: f64,
}
