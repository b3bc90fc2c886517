//! The CUDA backend: what turns kernels into PTX, and a GPU behind NVIDIA's driver that runs them. Start reading at [`ptx`]
//! and at [`driver`].

pub mod driver;
pub mod ptx;
