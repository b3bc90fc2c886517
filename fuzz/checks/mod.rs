//! What the fuzz targets check: each takes any bytes and panics only if something does not hold.

#![allow(dead_code, reason = "each target uses one of the checks")]

pub mod chat_template;
pub mod gguf;
pub mod tokenizer;
pub mod vocabularies;
