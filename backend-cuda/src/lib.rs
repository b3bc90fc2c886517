//! The CUDA backend: so far the emitter that turns kernels into PTX. Start reading at [`ptx`].

pub mod ptx;
