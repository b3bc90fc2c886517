//! The Vulkan backend: kernels become SPIR-V ([`spirv`]).

pub mod spirv;
