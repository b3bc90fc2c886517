//! The C ABI: `libunisonic.so` and `include/unisonic.h`.
//!
//! What a function does is said where it is declared, and cbindgen copies that into the header. The rules
//! that all share are code in four places, and docs/decisions/0018-c-abi.md says why they are as they are:
//!
//! - `entry`: each function is a closure run by `entry::entry`. No panic leaves it, its error becomes a
//!   status and an error object, the host's floating-point mode is put away meanwhile, and what is logged
//!   goes to the library handle's callback.
//! - `handle`: handles are places in a table of the library handle, so that one that was freed, or is of
//!   another kind, is told from one that is good.
//! - `options`: structs that callers fill in begin with their size, and grow at their end.
//! - `callback`: how the host is called.
//!
//! Start reading at `entry`, then `device`, the smallest group.

#![allow(non_camel_case_types, reason = "C's names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the same for all functions: the promises at the head of the header"
)]

pub mod asked;
pub mod batch;
pub mod buffer;
pub mod callback;
pub mod cancel;
pub mod chat;
pub mod completion;
mod convert;
pub mod detokenizer;
pub mod device;
pub mod embedding;
mod entry;
pub mod error;
pub mod generate;
pub mod graph;
pub mod graph_node;
pub mod graph_weights;
mod handle;
pub mod library;
pub mod loading;
mod locks;
pub mod log;
pub mod model;
mod model_files;
pub mod options;
pub mod program;
pub mod receipt;
mod requests;
pub mod sampler;
pub mod session;
pub mod status;
pub mod tensor;
pub mod tokenizer;
mod turns;
