//! NVIDIA GPUs as [`Machine`](unisonic_gpu::machine::Machine)s: CUDA's driver API, opened at run time.
//!
//! The same program starts where there is no CUDA: [`enumerate`] then says so, and what to install. [`open`]
//! gives a [`CudaMachine`], `machine.rs`, which is made of: `context.rs`, the state all handles share and
//! where errors go through (`error.rs`); `memory.rs`, device memory; `pinned.rs`, host memory that the device
//! copies from and to; `stream.rs`; `upload.rs`; `module.rs`, kernels; `launch.rs`, a kernel with its
//! arguments; `recording.rs`, launches that run again and again, as a `graph.rs` where their sizes are fixed;
//! `timing.rs`, what each of them takes.
//!
//! **Order.** All that a machine does goes through one stream: each copy and launch sees what came before it.
//! A run waits for its end; uploads return as soon as the bytes are in pinned memory.
//!
//! **Handles** keep the context alive, so that everything may be dropped in any order and by any thread.
//! Before each call the context is made current in the calling thread.
//!
//! **Loss.** After an error that leaves the context in an undefined state (an illegal address, an ECC error,
//! ...) every call is answered with [`Lost`](unisonic_gpu::machine::MachineError::Lost) without asking the
//! driver, and nothing is freed but the context itself.
//!
//! **Dependent launches.** From sm_90 on, and with a driver for CUDA 12.3, a launch that follows a launch
//! begins before that has ended, and waits for it by an instruction ([`crate::ptx`]): by then its weights are
//! on their way. As each kernel waits before it touches what another writes, and before it ends, what ends
//! after a launch ends after all before that. Copies and events wait for the whole of what is before them,
//! and launches after them likewise.

mod context;
mod enumerate;
mod error;
mod graph;
mod jit;
mod launch;
mod library;
mod machine;
mod memory;
mod module;
mod pinned;
mod recording;
mod stream;
mod timing;
mod upload;

pub use enumerate::{Found, enumerate};
pub use error::NoCuda;
pub use library::Version;
pub use machine::{CudaMachine, OpenOptions, Without, open};
pub use memory::Buffer;
pub use module::CudaKernel;
pub use recording::Recording;
