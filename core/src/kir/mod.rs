//! The kernel IR: what runs on a GPU, as structured data with exact meaning.
//!
//! A [`Kernel`] is a list of statements over values that are each defined once; there are no pointers, no
//! jumps and no hidden order of evaluation. [`op`] is the one table of operations. Kernels are written with
//! [`build`], printed and read ([`parse()`]), checked ([`verify()`]), run on the host, a workgroup in
//! lockstep ([`interp`]), rewritten for a device that lacks something ([`legal`]), and put side by side in
//! one launch ([`join`](mod@join)). Backends emit PTX and SPIR-V from what is legal; [`abi`] says how they
//! hand over buffers and parameters.
//!
//! Start reading at [`op`], then [`kernel`]. `docs/kir.md` shows the table.

pub mod abi;
pub mod build;
pub mod cases;
pub mod interp;
pub mod join;
pub mod kernel;
pub mod legal;
pub mod op;
pub mod parse;
pub mod print;
pub mod random;
pub mod types;
mod uniform;
pub mod verify;
pub mod waits;

pub use kernel::Kernel;
pub use op::Op;
pub use parse::{ParseError, parse};
pub use types::{Scalar, Type};
pub use verify::{Fault, Rule, verify};
