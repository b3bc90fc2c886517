//! The Vulkan backend: kernels become SPIR-V ([`spirv`]), which a device runs ([`driver`]).

pub mod driver;
pub mod spirv;
