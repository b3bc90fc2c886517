//! Weights of a plan: what they are, and how every device reads them.
//!
//! [`load_rows`] is the one place where bytes of a file become numbers: it checks the length and the range contract
//! (docs/numerics.md "Range contract"), so that a device never meets a value that the arithmetic is not defined for.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::format::blocks::{BadBlock, BlockFormat, check_row, expand_floats};
use crate::numerics::range::{OutOfRange, check_router, check_vector};
use crate::numerics::w16::{W16Row, quantize_w16, w16_plane_len, w16_scales_len};

/// How the elements of a weight enter the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Quantised blocks, used as the exact integers they hold.
    Block(BlockFormat),
    /// A float matrix, turned into W16 when it is loaded (docs/numerics.md "Linear layer").
    W16(FloatSource),
    /// f32 values of a norm or bias.
    F32(FloatSource),
    /// f32 values of a matrix that scores experts (docs/numerics.md "Mixture of experts"), row by row.
    Router(FloatSource),
}

/// Stored type of a float tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatSource {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
}

impl FloatSource {
    /// Bytes of an element.
    pub fn len_bytes(self) -> usize {
        match self {
            FloatSource::F32 => 4,
            FloatSource::F16 | FloatSource::BF16 => 2,
        }
    }
}

/// A tensor that the plan uses, or rows of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Name in the file.
    pub tensor: String,
    /// How it enters the arithmetic.
    pub encoding: Encoding,
    /// Number of rows; 1 for a vector.
    pub rows: u32,
    /// Length of a row.
    pub cols: u32,
    /// Where it is in the tensor, if it is not all of it.
    pub part: Option<TensorPart>,
}

/// Rows of a tensor, or values of a vector, that are a weight of their own: q, k and v of a fused projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorPart {
    /// Elements before it; whole rows of a matrix.
    pub first: u64,
    /// Elements of the tensor.
    pub len: u64,
}

impl Weight {
    /// Bytes of a row in the file; a row of blocks is whole blocks.
    pub fn row_len_bytes(&self) -> usize {
        self.elements_len_bytes(u64::from(self.cols)) as usize
    }

    /// Bytes of all its rows in the file.
    pub fn len_bytes(&self) -> u64 {
        u64::from(self.rows) * self.row_len_bytes() as u64
    }

    /// Where its rows begin in the tensor.
    pub fn offset_bytes(&self) -> u64 {
        self.part.map_or(0, |part| self.elements_len_bytes(part.first))
    }

    /// Bytes of the whole tensor.
    fn tensor_len_bytes(&self) -> u64 {
        self.part.map_or(self.len_bytes(), |part| self.elements_len_bytes(part.len))
    }

    /// Bytes of so many elements, whole blocks of them.
    fn elements_len_bytes(&self, elements: u64) -> u64 {
        match self.encoding {
            Encoding::Block(format) => elements / format.elems() as u64 * format.len_bytes() as u64,
            Encoding::W16(source) | Encoding::F32(source) | Encoding::Router(source) => {
                elements * source.len_bytes() as u64
            }
        }
    }
}

/// Where the bytes of tensors come from: a GGUF file, or [`MemoryWeights`]. Reads may be concurrent.
pub trait WeightSource: Sync {
    /// Bytes of a tensor as the file holds it, all rows.
    fn len_bytes(&self, tensor: &str) -> Result<u64, ReadError>;

    /// Fills `to` with the bytes of a tensor from `offset_bytes` on. An error if the tensor has fewer.
    fn read_at(&self, tensor: &str, offset_bytes: u64, to: &mut [u8]) -> Result<(), ReadError>;

    /// The bytes of a tensor, all rows. An error, not an abort, where memory does not suffice.
    fn read(&self, tensor: &str) -> Result<Vec<u8>, ReadError> {
        read_range(self, tensor, 0, self.len_bytes(tensor)?)
    }
}

/// So many zeros, if memory suffices.
pub(crate) fn zeroed_bytes(len_bytes: u64) -> Option<Vec<u8>> {
    let len = usize::try_from(len_bytes).ok()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, 0);
    Some(bytes)
}

/// `len_bytes` bytes of a tensor from `offset_bytes` on.
fn read_range(
    source: &(impl WeightSource + ?Sized),
    tensor: &str,
    offset_bytes: u64,
    len_bytes: u64,
) -> Result<Vec<u8>, ReadError> {
    let no_memory = || ReadError {
        tensor: tensor.to_owned(),
        reason: format!("not enough memory for {len_bytes} bytes of it"),
    };
    let mut bytes = zeroed_bytes(len_bytes).ok_or_else(no_memory)?;
    source.read_at(tensor, offset_bytes, &mut bytes)?;
    Ok(bytes)
}

/// Tensors in memory, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryWeights(pub BTreeMap<String, Vec<u8>>);

impl MemoryWeights {
    fn bytes(&self, tensor: &str) -> Result<&[u8], ReadError> {
        let absent =
            || ReadError { tensor: tensor.to_owned(), reason: "there is none of this name".to_owned() };
        self.0.get(tensor).map(Vec::as_slice).ok_or_else(absent)
    }
}

impl WeightSource for MemoryWeights {
    fn len_bytes(&self, tensor: &str) -> Result<u64, ReadError> {
        Ok(self.bytes(tensor)?.len() as u64)
    }

    fn read_at(&self, tensor: &str, offset_bytes: u64, to: &mut [u8]) -> Result<(), ReadError> {
        let bytes = self.bytes(tensor)?;
        let start = usize::try_from(offset_bytes).ok();
        let part = start.and_then(|start| bytes.get(start..)?.get(..to.len()));
        let part = part.ok_or_else(|| ReadError {
            tensor: tensor.to_owned(),
            reason: format!(
                "{} bytes were asked for from byte {offset_bytes} on, but the tensor has {}",
                to.len(),
                bytes.len()
            ),
        })?;
        to.copy_from_slice(part);
        Ok(())
    }
}

/// A tensor could not be read; says which, from where and why.
#[derive(Debug, thiserror::Error)]
#[error("tensor `{tensor}`: {reason}")]
pub struct ReadError {
    /// Name of the tensor.
    pub tensor: String,
    /// What happened, such as a file that became shorter.
    pub reason: String,
}

/// A weight that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// Its bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file holds more or fewer bytes than the plan expects.
    #[error(
        "tensor `{tensor}`: {found} bytes, but {expected} were expected for {rows} rows of {cols}; the file is damaged, \
         so fetch it again"
    )]
    Length {
        /// Name of the tensor.
        tensor: String,
        /// Bytes in the file.
        found: u64,
        /// Bytes of the shape.
        expected: u64,
        /// Rows of the shape.
        rows: u64,
        /// Length of a row.
        cols: u32,
    },
    /// A block breaks the range contract.
    #[error("tensor `{tensor}`, row {row}, {block}")]
    Block {
        /// Name of the tensor.
        tensor: String,
        /// Row.
        row: usize,
        /// Block and what is wrong with it.
        block: BadBlock,
    },
    /// An element of a vector breaks the range contract.
    #[error("tensor `{tensor}`, {element}")]
    Element {
        /// Name of the tensor.
        tensor: String,
        /// Element and what is wrong with it.
        element: OutOfRange,
    },
}

/// A weight in memory, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadedWeight {
    /// Rows of quantised blocks, as the file holds them.
    Blocks {
        /// Format of all rows.
        format: BlockFormat,
        /// All rows, one after the other.
        bytes: Vec<u8>,
    },
    /// Rows of a float matrix as W16.
    W16(W16Matrix),
    /// Values of a vector, or of a router row by row.
    F32(Vec<f32>),
}

/// A float matrix as W16: planes padded to a multiple of 32 a row, one scale for each 32 elements.
#[derive(Clone, Debug, PartialEq)]
pub struct W16Matrix {
    cols: usize,
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
}

impl W16Matrix {
    /// How many rows.
    pub fn rows(&self) -> usize {
        self.high.len() / w16_plane_len(self.cols)
    }

    /// One row.
    pub fn row(&self, row: usize) -> W16Row<'_> {
        let (planes, scales) = (w16_plane_len(self.cols), w16_scales_len(self.cols));
        let plane = row * planes..(row + 1) * planes;
        W16Row {
            high: &self.high[plane.clone()],
            low: &self.low[plane],
            scales: &self.scales[row * scales..(row + 1) * scales],
        }
    }

    fn zeroed(rows: usize, cols: usize) -> Self {
        let (planes, scales) = (w16_plane_len(cols), w16_scales_len(cols));
        Self {
            cols,
            high: vec![0; rows * planes],
            low: vec![0; rows * planes],
            scales: vec![0.0; rows * scales],
        }
    }

    fn set_row(&mut self, row: usize, values: &[f32]) -> Result<(), BadBlock> {
        let (planes, scales) = (w16_plane_len(self.cols), w16_scales_len(self.cols));
        let plane = row * planes..(row + 1) * planes;
        quantize_w16(
            values,
            &mut self.high[plane.clone()],
            &mut self.low[plane],
            &mut self.scales[row * scales..(row + 1) * scales],
        )
    }
}

/// Reads a weight of a plan and checks it.
pub fn load_weight(source: &dyn WeightSource, weight: &Weight) -> Result<LoadedWeight, WeightError> {
    load_rows(source, weight, 0..weight.rows)
}

/// Reads some rows of a weight of a plan and checks them, and the length of the whole: what [`load_weight`] gives for a
/// weight of these rows alone. Devices that rearrange weights do it in parts, so that no second copy of a tensor is needed.
///
/// # Panics
/// If the weight has no such rows: a bug of the caller.
pub fn load_rows(
    source: &dyn WeightSource,
    weight: &Weight,
    rows: Range<u32>,
) -> Result<LoadedWeight, WeightError> {
    assert!(rows.start <= rows.end && rows.end <= weight.rows, "rows {rows:?} of {}", weight.rows);
    let found = source.len_bytes(&weight.tensor)?;
    let row_len_bytes = weight.row_len_bytes();
    let expected = weight.tensor_len_bytes();
    let (first, elements) = weight
        .part
        .map_or((0, u64::from(weight.rows) * u64::from(weight.cols)), |part| (part.first, part.len));
    if found != expected {
        let Weight { ref tensor, cols, .. } = *weight;
        let rows = elements / u64::from(cols.max(1));
        return Err(WeightError::Length { tensor: tensor.clone(), found, expected, rows, cols });
    }
    let offset_bytes = weight.offset_bytes() + u64::from(rows.start) * row_len_bytes as u64;
    let len_bytes = u64::from(rows.end - rows.start) * row_len_bytes as u64;
    let bytes = read_range(source, &weight.tensor, offset_bytes, len_bytes)?;
    let first_row = (first / u64::from(weight.cols.max(1))) as usize + rows.start as usize;
    let numbered = || (first_row..).zip(bytes.chunks_exact(row_len_bytes));
    let bad_block = |row, block| WeightError::Block { tensor: weight.tensor.clone(), row, block };
    match weight.encoding {
        Encoding::Block(format) => {
            for (row, bytes) in numbered() {
                check_row(format, bytes).map_err(|block| bad_block(row, block))?;
            }
            Ok(LoadedWeight::Blocks { format, bytes })
        }
        Encoding::W16(source) => {
            let mut matrix = W16Matrix::zeroed((rows.end - rows.start) as usize, weight.cols as usize);
            let mut floats = Vec::new();
            for (i, (row, bytes)) in numbered().enumerate() {
                expand_floats(source, bytes, &mut floats);
                matrix.set_row(i, &floats).map_err(|block| bad_block(row, block))?;
            }
            Ok(LoadedWeight::W16(matrix))
        }
        Encoding::F32(source) | Encoding::Router(source) => {
            let mut values = Vec::with_capacity((rows.end - rows.start) as usize * weight.cols as usize);
            expand_floats(source, &bytes, &mut values);
            let checked = match weight.encoding {
                Encoding::Router(_) => check_router(&values),
                _ => check_vector(&values),
            };
            // As the file counts them.
            let before = first as usize + rows.start as usize * weight.cols as usize;
            let in_file = |element: OutOfRange| OutOfRange { index: before + element.index, ..element };
            checked.map_err(|element| WeightError::Element {
                tensor: weight.tensor.clone(),
                element: in_file(element),
            })?;
            Ok(LoadedWeight::F32(values))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights() -> MemoryWeights {
        let bytes = (0..6_u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        MemoryWeights(BTreeMap::from([("w".to_owned(), bytes)]))
    }

    fn matrix(encoding: Encoding, rows: u32, cols: u32) -> Weight {
        Weight { tensor: "w".into(), encoding, rows, cols, part: None }
    }

    #[test]
    fn a_part_of_the_rows_is_that_part_of_the_weight() {
        let weight = matrix(Encoding::W16(FloatSource::F32), 3, 2);
        let Ok(LoadedWeight::W16(whole)) = load_weight(&weights(), &weight) else { panic!("no matrix") };
        for rows in [0..3, 1..3, 2..3, 0..1] {
            let Ok(LoadedWeight::W16(part)) = load_rows(&weights(), &weight, rows.clone()) else {
                panic!("no matrix")
            };
            for (i, row) in rows.enumerate() {
                let (a, b) = (part.row(i), whole.row(row as usize));
                assert_eq!((a.high, a.low), (b.high, b.low));
                assert_eq!(a.scales.iter().map(|s| s.to_bits()).collect::<Vec<_>>(), [b.scales[0].to_bits()]);
            }
        }
    }

    #[test]
    fn a_part_of_a_tensor_is_those_of_its_rows() {
        let part = |first, len| Some(TensorPart { first, len });
        let of = |rows, cols, part| Weight { part, ..matrix(Encoding::F32(FloatSource::F32), rows, cols) };
        let loaded = |weight: &Weight| load_weight(&weights(), weight).map_err(|error| error.to_string());
        assert_eq!(loaded(&of(1, 2, part(3, 6))), Ok(LoadedWeight::F32(vec![3.0, 4.0])));
        assert_eq!(of(2, 2, part(2, 6)).offset_bytes(), 8);
        let whole = Weight { encoding: Encoding::W16(FloatSource::F32), ..of(3, 2, None) };
        let last = Weight { rows: 1, part: part(4, 6), ..whole.clone() };
        let (Ok(LoadedWeight::W16(whole)), Ok(LoadedWeight::W16(last))) = (loaded(&whole), loaded(&last))
        else {
            panic!("no matrices")
        };
        assert_eq!(last.row(0).scales[0].to_bits(), whole.row(2).scales[0].to_bits());
        let error = loaded(&of(1, 2, part(0, 8))).unwrap_err();
        assert!(error.contains("24 bytes, but 32 were expected for 4 rows of 2"), "{error}");
    }

    #[test]
    fn routers_have_a_limit_of_their_own() {
        let mut weights = weights();
        weights.0.get_mut("w").unwrap()[20..24].copy_from_slice(&2e12_f32.to_le_bytes());
        let vector = matrix(Encoding::F32(FloatSource::F32), 3, 2);
        assert!(load_weight(&weights, &vector).is_ok());
        let router = matrix(Encoding::Router(FloatSource::F32), 3, 2);
        let error = load_rows(&weights, &router, 1..3).unwrap_err().to_string();
        assert_eq!(
            error,
            "tensor `w`, element 5 is 2000000000000, but router weights are finite and at most 2^40 in magnitude"
        );
    }

    #[test]
    fn errors_name_the_row_of_the_whole_weight() {
        let mut weights = weights();
        weights.0.get_mut("w").unwrap()[16..20].copy_from_slice(&f32::NAN.to_le_bytes());
        let weight = matrix(Encoding::W16(FloatSource::F32), 3, 2);
        let error = load_rows(&weights, &weight, 2..3).unwrap_err();
        assert!(matches!(error, WeightError::Block { row: 2, .. }), "{error}");
        assert!(load_rows(&weights, &weight, 0..2).is_ok());
    }

    #[test]
    fn a_part_of_a_weight_of_another_length_is_refused() {
        let weight = matrix(Encoding::F32(FloatSource::F32), 1, 5);
        let error = load_rows(&weights(), &weight, 0..1).unwrap_err().to_string();
        assert!(error.contains("24 bytes, but 20 were expected"), "{error}");
    }

    #[test]
    fn bytes_that_are_not_there_are_an_error() {
        let mut to = [0; 8];
        assert!(weights().read_at("w", 16, &mut to).is_ok());
        for offset_bytes in [17, 24, 25, u64::MAX] {
            let error = weights().read_at("w", offset_bytes, &mut to).unwrap_err().to_string();
            assert!(error.starts_with("tensor `w`: 8 bytes were asked for from byte"), "{error}");
        }
        assert!(weights().read("v").unwrap_err().to_string().contains("none of this name"));
    }
}
