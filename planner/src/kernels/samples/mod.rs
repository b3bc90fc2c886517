//! Samples of the templates: kernels with a launch and what `core::numerics` says that they have to write.
//!
//! Interpreter, emitters and devices are tested with the same samples. [`samples`] goes through the families, one file each;
//! a family lists its choices (format, shape, rows, tuning, device) and [`Extent`] says which combinations are made.

mod attention;
mod buffers;
pub(super) mod cache;
mod cover;
pub mod data;
mod embed;
mod experts;
mod found;
mod heads;
mod joined;
mod kept;
mod linear;
pub(super) mod planes;
mod quantized;
mod rows;

pub use cover::Extent;

use unisonic_core::kir::Kernel;
use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::legal::Caps;

use super::GridKernel;
use buffers::Buffers;

/// A kernel, a launch of it, and what it has to write.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Template and choices, for messages.
    pub name: String,
    /// The kernel.
    pub kernel: Kernel,
    /// Buffers before the launch: what the kernel does not read is poisoned.
    pub launch: Launch,
    /// Buffers after it, among them `flags` of what is out of range. What the kernel has to leave alone is here too: what it
    /// only reads, and poison, also 64 bytes of it behind each buffer that it writes.
    pub expected: Vec<Vec<u8>>,
    /// The device that the interpreter plays.
    pub caps: Caps,
}

impl Sample {
    /// A launch over `count` rows, rows times groups, or tiles ([`super::Grid`]).
    fn new(name: String, template: GridKernel, count: u32, buffers: Buffers, caps: Caps) -> Self {
        let Buffers { before, after } = buffers;
        let groups = template.grid.workgroups(count).unwrap_or_else(|| panic!("{name}: samples are small"));
        let launch = Launch { groups, params: vec![], buffers: before, fuel: u64::MAX };
        Self { name, kernel: template.kernel, launch, expected: after, caps }
    }

    fn with_params(mut self, params: Vec<u32>) -> Self {
        self.launch.params = params;
        self
    }

    /// Names of the buffers.
    pub fn buffer_names(&self) -> impl Iterator<Item = &str> {
        addressed(&self.kernel).map(|id| &self.kernel.objects[id.index()].name[..])
    }

    /// Compares buffers with what is expected; an error names the first word that differs.
    pub fn check(&self, found: &[Vec<u8>]) -> Result<(), String> {
        if found.len() != self.expected.len() {
            return Err(format!("{}: {} buffers, expected {}", self.name, found.len(), self.expected.len()));
        }
        for (buffer, (found, expected)) in self.buffer_names().zip(found.iter().zip(&self.expected)) {
            let word = |bytes: &[u8], at: usize| bytes.chunks(4).nth(at).map(<[u8]>::to_vec);
            let words = found.len().max(expected.len()).div_ceil(4);
            if found == expected {
                continue;
            }
            let at = (0..words).find(|&at| word(found, at) != word(expected, at)).unwrap_or(0);
            let text = |bytes: &[u8]| match word(bytes, at).as_deref() {
                Some(&[a, b, c, d]) => format!("{:#010x}", u32::from_le_bytes([a, b, c, d])),
                other => format!("{other:02x?}"),
            };
            return Err(format!(
                "{}: `{buffer}`, word {at}: {}, expected {}",
                self.name,
                text(found),
                text(expected)
            ));
        }
        Ok(())
    }
}

/// What devices have that differ: one with everything, GPUs without matrices or copies, software devices with narrow
/// subgroups, and one with nothing.
pub const DEVICES: [Caps; 5] = [
    Caps::ALL,
    Caps { mma16: false, mma32: false, copy_async: false, ..Caps::ALL },
    Caps { mma16: false, subgroup: 64, half: false, copy_async: false, ..Caps::ALL },
    Caps { subgroup: 8, mma16: false, mma32: false, half: false, copy_async: false, ..Caps::ALL },
    Caps { subgroup: 4, ..Caps::NONE },
];

/// Makes the samples of a family.
pub type Family = fn(Extent) -> Box<dyn Iterator<Item = Sample>>;

/// All families by name.
pub const FAMILIES: &[(&str, Family)] = &[
    ("linear_split_k", linear::split_k_samples),
    ("linear_tiled", linear::tiled_samples),
    ("linear_half_staged", linear::half_staged_samples),
    ("quantize_a16", quantized::quantize_a16_samples),
    ("gate", quantized::gate_samples),
    ("gelu", quantized::gelu_samples),
    ("rms_norm", quantized::rms_norm_samples),
    ("layer_norm", quantized::layer_norm_samples),
    ("embed_blocks", embed::embed_blocks_samples),
    ("embed_floats", embed::embed_floats_samples),
    ("route", experts::route_samples),
    ("expert_linear", experts::expert_linear_samples),
    ("sum_experts", experts::sum_experts_samples),
    ("add_shared", experts::add_shared_samples),
    ("add", rows::add_samples),
    ("soft_cap", rows::soft_cap_samples),
    ("scale", rows::scale_samples),
    ("select_rows", rows::select_rows_samples),
    ("found_flags", found::found_flags_samples),
    ("argmax_parts", rows::argmax_parts_samples),
    ("argmax_join", rows::argmax_join_samples),
    ("head_norm", heads::head_norm_samples),
    ("rope", heads::rope_samples),
    ("prepare_query", heads::prepare_query_samples),
    ("write_kv", heads::write_kv_samples),
    ("attention_decode", attention::attention_decode_samples),
    ("attention_merge", attention::attention_merge_samples),
    ("attention_prefill", attention::attention_prefill_samples),
    ("joined", joined::joined_samples),
];

/// The samples of all families, made one after the other.
pub fn samples(extent: Extent) -> impl Iterator<Item = Sample> {
    FAMILIES.iter().flat_map(move |(_, family)| family(extent))
}
