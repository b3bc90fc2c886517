//! The foundation of Unisonic: what a GGUF file holds, what every operation means, and what a device is asked to do.
//!
//! - [`mod@format`]: GGUF containers and quantised blocks, as exact integers.
//! - [`numerics`]: the arithmetic of profile u1, a scalar and readable specification. Every backend reproduces it
//!   bit for bit.
//! - [`kir`]: the kernel IR that GPU backends emit from.
//! - [`planes`]: how a GPU holds quantised matrices and activations.
//! - [`plan`]: the work of a model as plain data (buffers, weights, steps) and the [`plan::Device`] trait that runs it.
//!
//! This crate reads nothing but the file it is handed, reads no environment, starts no threads and uses no clock.
//! Start reading at [`numerics`], then [`plan`].

pub mod format;
pub mod kir;
pub mod launch;
pub mod numerics;
pub mod plan;
pub mod planes;
