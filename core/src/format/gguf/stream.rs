//! Writes a GGUF file piece by piece: for models that do not fit memory.

use std::io::Write;

use super::super::Metadata;
use super::header_writer::{self, TensorShape};
use super::writer::WriteError;

/// A file that is being written: the tensor table is known from the start, the data comes in order.
///
/// The bytes are those of [`super::GgufWriter`] with the same metadata and tensors.
///
/// ```
/// use unisonic_core::format::{GgmlType, GgufHeader, GgufStream, Metadata, TensorShape};
///
/// let shape = TensorShape { name: "output_norm.weight".into(), ty: GgmlType::F32, dims: vec![2] };
/// let mut stream = GgufStream::begin(Vec::new(), &Metadata::default(), vec![shape])?;
/// stream.append(&0.5f32.to_le_bytes())?;
/// stream.append(&1.0f32.to_le_bytes())?;
/// let bytes = stream.finish()?;
/// assert_eq!(GgufHeader::read(bytes.as_slice(), bytes.len() as u64)?.tensors.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct GgufStream<W> {
    out: W,
    alignment_bytes: u64,
    /// Tensors that are not complete, the next one first.
    rest: std::vec::IntoIter<TensorShape>,
    /// The tensor at hand.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    name: String,
    len_bytes: u64,
    written_bytes: u64,
}

impl<W: Write> GgufStream<W> {
    /// Checks metadata and tensors and writes what stands before the data, as version 3.
    pub fn begin(mut out: W, metadata: &Metadata, tensors: Vec<TensorShape>) -> Result<Self, WriteError> {
        const VERSION: u32 = 3;
        let entries: Vec<_> = metadata.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let alignment_bytes = header_writer::check(VERSION, &entries, tensors.iter())?;
        let header = header_writer::header(VERSION, &entries, tensors.iter(), alignment_bytes)?;
        out.write_all(&header)
            .and_then(|()| header_writer::put_padding(&mut out, header.len() as u64, alignment_bytes))
            .map_err(WriteError::unnamed)?;
        let mut stream = GgufStream { out, alignment_bytes, rest: tensors.into_iter(), current: None };
        stream.next_tensor()?;
        Ok(stream)
    }

    /// Appends bytes of the tensor at hand; when it is complete, the next one is. One call may not span two tensors:
    /// more bytes than the tensor has left are an error, and none of them is written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(current) = &mut self.current else {
            return Err(WriteError::Surplus(bytes.len() as u64));
        };
        let written_bytes = current.written_bytes.saturating_add(bytes.len() as u64);
        if written_bytes > current.len_bytes {
            return Err(wrong_length(&current.name, written_bytes, current.len_bytes));
        }
        self.out.write_all(bytes).map_err(WriteError::unnamed)?;
        current.written_bytes = written_bytes;
        if written_bytes == current.len_bytes {
            header_writer::put_padding(&mut self.out, written_bytes, self.alignment_bytes)
                .map_err(WriteError::unnamed)?;
            self.next_tensor()?;
        }
        Ok(())
    }

    /// Ends the file; an error where data is missing.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some(current) = self.current {
            return Err(wrong_length(&current.name, current.written_bytes, current.len_bytes));
        }
        self.out.flush().map_err(WriteError::unnamed)?;
        Ok(self.out)
    }

    fn next_tensor(&mut self) -> Result<(), WriteError> {
        let current = self
            .rest
            .next()
            .map(|shape| Ok(Current { len_bytes: shape.len_bytes()?, name: shape.name, written_bytes: 0 }));
        self.current = current.transpose()?;
        Ok(())
    }
}

fn wrong_length(tensor: &str, found_bytes: u64, expected_bytes: u64) -> WriteError {
    WriteError::Length { tensor: tensor.to_owned(), found_bytes, expected_bytes }
}

#[cfg(test)]
mod tests {
    use super::super::super::{GgmlType, GgufWriter, Value};
    use super::*;

    fn shape(name: &str, dims: &[u64]) -> TensorShape {
        TensorShape { name: name.into(), ty: GgmlType::F32, dims: dims.to_vec() }
    }

    fn metadata() -> Metadata {
        let mut metadata = Metadata::default();
        assert!(metadata.insert("general.architecture", Value::String("llama".into())));
        assert!(metadata.insert("general.alignment", Value::U32(64)));
        metadata
    }

    #[test]
    fn the_bytes_are_those_of_the_writer() {
        let data: Vec<u8> = (0..60).collect();
        let whole = GgufWriter::from_metadata(&metadata())
            .tensor("a", GgmlType::F32, &[3], &data[..12])
            .tensor("b", GgmlType::F32, &[4, 3], &data[12..])
            .to_bytes();
        let shapes = vec![shape("a", &[3]), shape("b", &[4, 3])];
        let mut stream = GgufStream::begin(Vec::new(), &metadata(), shapes).expect("a header");
        for piece in [&data[..5], &data[5..12], &data[12..60]] {
            stream.append(piece).expect("room");
        }
        assert_eq!(stream.finish().expect("complete"), whole.expect("a file"));
    }

    #[test]
    fn too_much_or_too_little_is_an_error_that_names_the_tensor() {
        let mut stream =
            GgufStream::begin(Vec::new(), &metadata(), vec![shape("a", &[3])]).expect("a header");
        let message = stream.append(&[0; 13]).expect_err("12 bytes").to_string();
        assert!(message.contains("`a` has 13 bytes"), "{message}");
        stream.append(&[0; 11]).expect("room");
        let mut complete = GgufStream::begin(Vec::new(), &metadata(), vec![]).expect("a header");
        assert!(matches!(complete.append(&[0; 3]), Err(WriteError::Surplus(3))));
        let message = stream.finish().expect_err("a byte is missing").to_string();
        assert!(message.contains("`a` has 11 bytes") && message.contains("12"), "{message}");
    }

    #[test]
    fn offsets_beyond_64_bits_are_an_error_that_names_the_tensor() {
        let shapes = ["a", "b", "c"].map(|name| shape(name, &[1 << 60]));
        assert!(GgufStream::begin(Vec::new(), &metadata(), shapes.to_vec()).is_ok(), "3 * 2^62 bytes");
        let shapes = ["a", "b", "c", "d"].map(|name| shape(name, &[1 << 60]));
        let error = GgufStream::begin(Vec::new(), &metadata(), shapes.to_vec()).expect_err("2^64 bytes");
        assert!(error.to_string().contains("up to tensor `d`"), "{error}");
    }

    #[test]
    fn no_message_has_an_empty_path() {
        let error = WriteError::unnamed(std::io::ErrorKind::StorageFull.into());
        assert!(error.to_string().starts_with("cannot write the data: "), "{error}");
        assert!(error.at(std::path::Path::new("a.gguf")).to_string().starts_with("cannot write a.gguf: "));
    }
}
