//! See docs/architecture.md.

pub mod chat;
pub mod tokenizer;
