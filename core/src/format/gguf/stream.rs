//! Writes a GGUF file piece by piece: for models that do not fit memory.

use std::io::Write;

use super::super::Metadata;
use super::head::{self, TensorShape};
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
    alignment: u64,
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
        let alignment = head::check(VERSION, &entries, tensors.iter())?;
        let head = head::head(VERSION, &entries, tensors.iter(), alignment)?;
        out.write_all(&head)
            .and_then(|()| head::put_padding(&mut out, head.len() as u64, alignment))
            .map_err(WriteError::unnamed)?;
        let mut stream = GgufStream { out, alignment, rest: tensors.into_iter(), current: None };
        stream.next_tensor()?;
        Ok(stream)
    }

    /// Appends bytes of the tensor at hand; when it is complete, the next one is. An error where they are more than it
    /// has left.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(current) = &mut self.current else {
            return Err(WriteError::Surplus(bytes.len() as u64));
        };
        let written_bytes = current.written_bytes + bytes.len() as u64;
        if written_bytes > current.len_bytes {
            return Err(wrong_length(&current.name, written_bytes, current.len_bytes));
        }
        self.out.write_all(bytes).map_err(WriteError::unnamed)?;
        current.written_bytes = written_bytes;
        if written_bytes == current.len_bytes {
            head::put_padding(&mut self.out, written_bytes, self.alignment).map_err(WriteError::unnamed)?;
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
        let mut stream = GgufStream::begin(Vec::new(), &metadata(), shapes).expect("a head");
        for piece in [&data[..5], &data[5..12], &data[12..60]] {
            stream.append(piece).expect("room");
        }
        assert_eq!(stream.finish().expect("complete"), whole.expect("a file"));
    }

    #[test]
    fn too_much_or_too_little_is_an_error_that_names_the_tensor() {
        let mut stream = GgufStream::begin(Vec::new(), &metadata(), vec![shape("a", &[3])]).expect("a head");
        let message = stream.append(&[0; 13]).expect_err("12 bytes").to_string();
        assert!(message.contains("`a` has 13 bytes"), "{message}");
        stream.append(&[0; 11]).expect("room");
        let mut complete = GgufStream::begin(Vec::new(), &metadata(), vec![]).expect("a head");
        assert!(matches!(complete.append(&[0; 3]), Err(WriteError::Surplus(3))));
        let message = stream.finish().expect_err("a byte is missing").to_string();
        assert!(message.contains("`a` has 11 bytes") && message.contains("12"), "{message}");
    }
}
