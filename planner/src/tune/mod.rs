//! Tuning: which of the forms of a hot kernel a device runs, by what was measured on it.
//!
//! The shapes of templates (`kernels::linear`, `kernels::attention`) are chosen by rules that fit the GPUs on
//! which they were found. Here is what may be chosen instead: a [`Site`] is what a choice is for, a template
//! with its format, its sizes and its rows; [`rows`] are the choices of a template on some hardware, each a
//! [`Row`]; a [`Table`] says which row a site has. Nothing is measured here: `unisonic_engine::tune` does, on
//! a device, and keeps what it found.
//!
//! **No table can change a bit of a result.** All rows of a site compute the same exact sums and the same
//! order of the floats that are left (docs/numerics.md), and only a row that [`rows`] has for a template, of
//! which the kernel verifies and fits the device, is ever used: [`kernel`] leaves everything else to the
//! rules. A table from somewhere else is no more than a hint.
//!
//! Start reading at [`rows`].

mod row;
mod site;
mod tuning;

pub use row::{Row, kernel, rows};
pub use site::{Site, site};
pub(crate) use tuning::tuned_kernel;
pub use tuning::{Table, Tuning};

#[cfg(test)]
mod tests;
