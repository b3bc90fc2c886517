//! NVIDIA GPUs as [`Machine`](unisonic_gpu::machine::Machine)s: CUDA's driver API, opened at run time.
//!
//! The same program starts where there is no CUDA: [`enumerate`] then says so, and what to install. [`open`] gives a
//! [`CudaMachine`], `machine.rs`, which is made of: `context.rs`, the state all handles share and where errors go through
//! (`error.rs`); `memory.rs`, device memory; `pinned.rs`, host memory that
//! the device copies from and to; `stream.rs`; `upload.rs`; `module.rs`, kernels; `launch.rs`,
//! a kernel with its arguments; `recording.rs`, launches that run again and again, as a `graph.rs` where their sizes are fixed;
//! `timing.rs`, what each of them takes.
//!
//! **Order.** All that a machine does goes through one stream: each copy and launch sees what came before it. A run waits
//! for its end; uploads return as soon as the bytes are in pinned memory.
//!
//! **Handles** keep the context alive, so that everything may be dropped in any order and by any thread. Before each call
//! the context is made current in the calling thread.
//!
//! **Loss.** After an error that leaves the context in an undefined state (an illegal address, an ECC error, ...) every call
//! is answered with [`Lost`](unisonic_gpu::machine::MachineError::Lost) without asking the driver, and nothing is freed but the
//! context itself.
//!
//! Programmatic dependent launch (sm_90) would let a kernel load weights while the one before it ends: an attribute of the
//! launches in `launch.rs` and two instructions in the kernels.

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
pub use machine::{CudaMachine, OpenOptions, open};
pub use memory::Buffer;
pub use module::CudaKernel;
pub use recording::Recording;
