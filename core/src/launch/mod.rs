//! The launches of a plan on a GPU, as plain data.

mod hardware;

pub use hardware::Hardware;
