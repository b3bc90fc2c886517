//! Tensors: numbers that go into graphs and come out of them.

use std::ffi::c_void;
use std::sync::Arc;

use unisonic_core::numerics::sampling::most_likely;

use crate::entry::{answer, entry};
use crate::error::{Error, Result, unisonic_error};
use crate::handle::{self, Object};
use crate::library::{Library, unisonic_library};
use crate::options;
use crate::status::unisonic_status;

/// Numbers with a shape, row after row. It does not change once it is made, so any number of threads may use it.
pub struct unisonic_tensor {
    _opaque: (),
}

/// A tensor of 32-bit floats.
pub const UNISONIC_DTYPE_F32: u32 = 1;
/// A tensor of unsigned 32-bit integers, such as token ids.
pub const UNISONIC_DTYPE_U32: u32 = 2;

/// Most dimensions of a tensor.
const MAX_DIMS: usize = 4;

/// What is behind a tensor.
pub(crate) struct Tensor {
    /// The last is the length of a row.
    dims: Vec<u64>,
    values: Values,
}

enum Values {
    F32(Vec<f32>),
    U32(Vec<u32>),
}

impl Object for Tensor {
    type Handle = unisonic_tensor;
    const NAME: &'static str = "tensor";
}

impl Tensor {
    /// Rows of `width` floats.
    pub(crate) fn of_rows(values: Vec<f32>, width: usize) -> Self {
        let rows = values.len().checked_div(width).unwrap_or(0);
        Self { dims: vec![rows as u64, width as u64], values: Values::F32(values) }
    }

    /// Its floats; an error if it has others.
    pub(crate) fn f32(&self, name: &str) -> Result<&[f32]> {
        match &self.values {
            Values::F32(values) => Ok(values),
            Values::U32(_) => {
                Err(Error::argument(format!("{name} must be a tensor of f32, but is one of u32")))
            }
        }
    }

    /// The length of a row first, as model files have it.
    pub(crate) fn file_dims(&self) -> Vec<u64> {
        self.dims.iter().rev().copied().collect()
    }

    fn bytes(&self) -> &[u8] {
        match &self.values {
            // SAFETY: numbers are bytes, all of them, and bytes lie anywhere.
            Values::F32(values) => unsafe { values.align_to::<u8>().1 },
            // SAFETY: as above.
            Values::U32(values) => unsafe { values.align_to::<u8>().1 },
        }
    }

    /// A row of floats.
    fn row(&self, row: usize) -> Result<&[f32]> {
        let values = self.f32("the tensor")?;
        let width = self.dims.last().map_or(0, |&width| width as usize);
        let rows = values.len().checked_div(width).unwrap_or(0);
        match row < rows {
            true => Ok(&values[row * width..][..width]),
            false => Err(Error::argument(format!("row {row}, but the tensor has {rows}"))),
        }
    }
}

/// Copies numbers, row after row, into a tensor. `dims` are 1 to 4, the length of a row last; `data` has as many numbers of `dtype`,
/// a UNISONIC_DTYPE_..., as their product says, `data_len_bytes` bytes. Free the tensor with unisonic_tensor_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_new(
    library: *mut unisonic_library,
    dtype: u32,
    dims: *const u64,
    dims_len: usize,
    data: *const c_void,
    data_len_bytes: usize,
    tensor: *mut *mut unisonic_tensor,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let tensor = options::out(tensor, "tensor")?;
            let library = entry.object::<Library>(library)?;
            let dims = options::array(dims, dims_len, "dims")?;
            let bytes = options::array(data.cast::<u8>(), data_len_bytes, "data")?;
            handle::write(tensor, &library, Arc::new(new(dtype, dims, bytes)?))
        })
    }
}

fn new(dtype: u32, dims: &[u64], bytes: &[u8]) -> Result<Tensor> {
    if !(1..=MAX_DIMS).contains(&dims.len()) {
        return Err(Error::argument(format!("dims_len is {}, but must be 1 to {MAX_DIMS}", dims.len())));
    }
    let len_bytes = dims.iter().try_fold(4_u64, |len, &dim| len.checked_mul(dim));
    if len_bytes != Some(bytes.len() as u64) {
        let found = bytes.len();
        return Err(Error::argument(format!(
            "data_len_bytes is {found}, which is not 4 for each of {dims:?}"
        )));
    }
    let words = bytes.as_chunks::<4>().0.iter();
    let values = match dtype {
        UNISONIC_DTYPE_F32 => Values::F32(words.map(|&word| f32::from_ne_bytes(word)).collect()),
        UNISONIC_DTYPE_U32 => Values::U32(words.map(|&word| u32::from_ne_bytes(word)).collect()),
        other => return Err(Error::argument(format!("dtype is {other}, which is none"))),
    };
    Ok(Tensor { dims: dims.to_vec(), values })
}

/// Its UNISONIC_DTYPE_...; 0 if it is no tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_dtype(tensor: *mut unisonic_tensor) -> u32 {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe {
        Ok(match &entry.object::<Tensor>(tensor)?.values {
            Values::F32(_) => UNISONIC_DTYPE_F32,
            Values::U32(_) => UNISONIC_DTYPE_U32,
        })
    })
}

/// Number of its dimensions; 0 if it is no tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_len_dims(tensor: *mut unisonic_tensor) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Tensor>(tensor)?.dims.len()) })
}

/// Dimension `index`, from 0; the last is the length of a row. 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_dim(tensor: *mut unisonic_tensor, index: usize) -> u64 {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Tensor>(tensor)?.dims.get(index).copied().unwrap_or(0)) })
}

/// Bytes of its numbers; 0 if it is no tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_len_bytes(tensor: *mut unisonic_tensor) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Tensor>(tensor)?.bytes().len()) })
}

/// Copies `len_bytes` bytes of its numbers, from byte `offset_bytes` on, to `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_read(
    tensor: *mut unisonic_tensor,
    offset_bytes: usize,
    to: *mut c_void,
    len_bytes: usize,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let tensor = entry.object::<Tensor>(tensor)?;
            let bytes = tensor.bytes();
            let part = bytes.get(offset_bytes..).and_then(|rest| rest.get(..len_bytes)).ok_or_else(|| {
                Error::argument(format!(
                    "{len_bytes} bytes from byte {offset_bytes} on, but the tensor has {}",
                    bytes.len()
                ))
            })?;
            options::array_mut(to.cast::<u8>(), len_bytes, "to")?.copy_from_slice(part);
            Ok(())
        })
    }
}

/// Rows of a tensor as one of their own: `len` of them, from row `first` on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_rows(
    tensor: *mut unisonic_tensor,
    first: usize,
    len: usize,
    rows: *mut *mut unisonic_tensor,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let rows = options::out(rows, "rows")?;
            let (tensor, library) = entry.object_of::<Tensor>(tensor)?;
            handle::write(rows, &library, Arc::new(part(&tensor, first, len)?))
        })
    }
}

fn part(tensor: &Tensor, first: usize, len: usize) -> Result<Tensor> {
    let of_all = tensor.bytes().len() / 4;
    let width = tensor.dims.last().map_or(0, |&width| width as usize);
    let rows = of_all.checked_div(width).unwrap_or(0);
    let end = first.checked_add(len).filter(|&end| end <= rows);
    let end = end.ok_or_else(|| {
        Error::argument(format!("{len} rows from row {first} on, but the tensor has {rows}"))
    })?;
    let range = first * width..end * width;
    let values = match &tensor.values {
        Values::F32(values) => Values::F32(values[range].to_vec()),
        Values::U32(values) => Values::U32(values[range].to_vec()),
    };
    Ok(Tensor { dims: vec![len as u64, width as u64], values })
}

/// The index of the largest value of row `row`, of equals the lowest: the most likely token of a row of logits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_argmax(
    tensor: *mut unisonic_tensor,
    row: usize,
    index: *mut u32,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let tensor = entry.object::<Tensor>(tensor)?;
            let found = most_likely(tensor.row(row)?);
            let found = found.ok_or_else(|| Error::argument("a row without a number has no largest"))?;
            options::write_value(index, found, "index")
        })
    }
}

/// Frees a tensor; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tensor_free(tensor: *mut unisonic_tensor) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Tensor>(tensor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_has_what_its_shape_says() {
        let bytes = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_ne_bytes).concat();
        let tensor = new(UNISONIC_DTYPE_F32, &[3, 2], &bytes).expect("a tensor");
        assert_eq!(tensor.bytes(), bytes);
        assert_eq!(tensor.file_dims(), [2, 3]);
        assert_eq!(tensor.row(2).expect("the last row"), [5.0, 6.0]);
        assert!(tensor.row(3).is_err());
        let last = part(&tensor, 1, 2).expect("rows");
        assert_eq!((last.dims, last.values.first()), (vec![2, 2], Some(3.0)));
        assert!(part(&tensor, usize::MAX, 2).is_err() && part(&tensor, 3, 1).is_err());
        for (dtype, dims) in [(UNISONIC_DTYPE_F32, &[3][..]), (9, &[6]), (2, &[]), (2, &[u64::MAX, 2, 3])] {
            assert!(new(dtype, dims, &bytes).is_err(), "{dtype} {dims:?}");
        }
    }

    impl Values {
        fn first(&self) -> Option<f32> {
            match self {
                Values::F32(values) => values.first().copied(),
                Values::U32(_) => None,
            }
        }
    }
}
