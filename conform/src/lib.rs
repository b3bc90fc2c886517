//! Does this driver compute what it promises? Named cases with known results, and who runs them on devices.
//!
//! ```text
//! suite ─► groups ─► cases ─► Kernels (a machine: interpreter, Vulkan, CUDA) ─► rows ─► report
//! ```
//!
//! A [`suite`] lists groups; a group ([`groups`]) makes its cases, each with what has to come out of it; what is tested is
//! behind [`Kernels`]; a case becomes a [`Row`]. [`supervisor`] starts processes that run [`worker`], so that a driver that
//! crashes ends one case and not the run. [`report`] has the rows in files.
//!
//! Start reading at [`Outcome`], then [`groups::run`]. docs/decisions/0017-conformance.md says why it is cut so.

pub mod groups;
mod kernels;
mod open;
mod outcome;
pub mod permitted;
pub mod planted;
pub mod reduce;
pub mod replay;
pub mod report;
mod rewrite;
pub mod suite;
pub mod supervisor;
pub mod worker;

pub use kernels::{Code, Facts, Kernels, Language, Machinery, Shaders};
pub use open::{Opened, Variant, open, variants};
pub use outcome::{Difference, Outcome, Row};
