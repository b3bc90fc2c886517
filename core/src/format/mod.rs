//! GGUF containers: typed metadata, tensor descriptions, tensor bytes.
//!
//! Everything in a file is hostile until checked: each count and length is compared with the bytes that are left
//! before anything is allocated, sizes are checked arithmetic, and an error names the key or tensor, what was
//! expected and what was found.
//!
//! Start reading at [`GgufFile`] (reader) and [`blocks`] (quantised blocks as integers).

pub mod blocks;
mod ggml_type;
mod gguf;
mod metadata;
mod tensor;

pub use ggml_type::GgmlType;
pub use gguf::{
    FormatError, GgufFile, GgufHeader, GgufStream, GgufWriter, HeaderError, ShapeError, ShardError,
    TensorShape, WriteError,
};
pub use metadata::{Metadata, MetadataError, Strings, Value, required};
pub use tensor::TensorInfo;
