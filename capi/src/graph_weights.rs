//! Where the weights of graphs come from: a model file, tensors of the caller, or both.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};

use unisonic_core::format::{GgufFile, Value};
use unisonic_engine::graph::GraphTensors;

use crate::buffer::{Buffer, unisonic_buffer};
use crate::entry::{answer, entry};
use crate::error::{Error, Result, unisonic_error};
use crate::handle::{self, Object};
use crate::library::{Library, unisonic_library};
use crate::locks::lock_whole;
use crate::options;
use crate::status::unisonic_status;
use crate::tensor::{Tensor, unisonic_tensor};

/// Tensors by name, and the metadata of the model file that they are of. Nothing of a file but its head is read before a program is
/// loaded.
pub struct unisonic_weights {
    _opaque: (),
}

/// What is behind weights.
pub(crate) struct Weights {
    file: Option<GgufFile>,
    own: Mutex<Vec<(String, Arc<Tensor>)>>,
}

impl Object for Weights {
    type Handle = unisonic_weights;
    const NAME: &'static str = "weights";
}

impl Weights {
    /// The tensors that there are now.
    pub(crate) fn with<T>(&self, use_them: impl FnOnce(&GraphTensors<'_>) -> Result<T>) -> Result<T> {
        let mut tensors = match &self.file {
            Some(file) => GraphTensors::of_file(file.tensors(), file),
            None => GraphTensors::new(),
        };
        let own = lock_whole(&self.own).clone();
        for (name, tensor) in own {
            tensors.add(&name, &tensor.file_dims(), tensor.f32(&name)?)?;
        }
        use_them(&tensors)
    }

    /// The dimensions of a tensor, the length of a row last.
    fn dims(&self, name: &str) -> Option<Vec<u64>> {
        let own = lock_whole(&self.own);
        let own = own.iter().find(|(other, _)| other == name).map(|(_, tensor)| tensor.file_dims());
        let of_file = || {
            let infos = self.file.as_ref()?.tensors();
            infos.iter().find(|info| info.name == name).map(|info| info.dims.clone())
        };
        own.or_else(of_file).map(|dims| dims.into_iter().rev().collect())
    }

    fn value(&self, key: &str) -> Result<&Value> {
        let absent = || Error::new(unisonic_status::Unsupported, format!("there is no metadata key `{key}`"));
        self.file.as_ref().and_then(|file| file.metadata().get(key)).ok_or_else(absent)
    }
}

/// Opens the model file at `path`, as unisonic_model_load does, for its tensors and metadata; `path_len` 0: no file, only tensors
/// that are added. Free the weights with unisonic_weights_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_weights_open(
    library: *mut unisonic_library,
    path: *const c_char,
    path_len: usize,
    weights: *mut *mut unisonic_weights,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let weights = options::out(weights, "weights")?;
            let library = entry.object::<Library>(library)?;
            let file = match path_len {
                0 => None,
                _ => Some(GgufFile::open(&options::path(path, path_len, "path")?)?),
            };
            handle::write(weights, &library, Arc::new(Weights { file, own: Mutex::default() }))
        })
    }
}

/// Adds a tensor of f32 under a name; it goes before one of the file. A name is added once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_weights_add(
    weights: *mut unisonic_weights,
    name: *const c_char,
    name_len: usize,
    tensor: *mut unisonic_tensor,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let weights = entry.object::<Weights>(weights)?;
            let name = options::text(name, name_len, "name")?;
            let tensor = entry.object::<Tensor>(tensor)?;
            tensor.f32("tensor")?;
            let mut own = lock_whole(&weights.own);
            if own.iter().any(|(other, _)| other == name) {
                return Err(Error::argument(format!("there is a tensor `{name}` already")));
            }
            own.push((name.to_owned(), tensor));
            Ok(())
        })
    }
}

/// The dimensions of a tensor, the length of a row last: up to `capacity` of them into `dims`, and how many there are into
/// `dims_len`, 0 if there is no such tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_weights_shape(
    weights: *mut unisonic_weights,
    name: *const c_char,
    name_len: usize,
    dims: *mut u64,
    capacity: usize,
    dims_len: *mut usize,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let weights = entry.object::<Weights>(weights)?;
            let found = weights.dims(options::text(name, name_len, "name")?).unwrap_or_default();
            let to = options::array_mut(dims, capacity, "dims")?;
            to.iter_mut().zip(&found).for_each(|(to, &dim)| *to = dim);
            options::write_value(dims_len, found.len(), "dims_len")
        })
    }
}

/// A number or, as 0 and 1, a truth of the metadata; UNISONIC_STATUS_UNSUPPORTED if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_weights_get_number(
    weights: *mut unisonic_weights,
    key: *const c_char,
    key_len: usize,
    number: *mut f64,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let weights = entry.object::<Weights>(weights)?;
            let key = options::text(key, key_len, "key")?;
            let found = self::number(weights.value(key)?).ok_or_else(|| {
                Error::new(unisonic_status::Unsupported, format!("the metadata key `{key}` is no number"))
            })?;
            options::write_value(number, found, "number")
        })
    }
}

fn number(value: &Value) -> Option<f64> {
    Some(match *value {
        Value::U8(number) => f64::from(number),
        Value::I8(number) => f64::from(number),
        Value::U16(number) => f64::from(number),
        Value::I16(number) => f64::from(number),
        Value::U32(number) => f64::from(number),
        Value::I32(number) => f64::from(number),
        Value::U64(number) => number as f64,
        Value::I64(number) => number as f64,
        Value::F32(number) => f64::from(number),
        Value::F64(number) => number,
        Value::Bool(truth) => f64::from(u8::from(truth)),
        _ => return None,
    })
}

/// A text of the metadata, into a buffer; UNISONIC_STATUS_UNSUPPORTED if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_weights_get_text(
    weights: *mut unisonic_weights,
    key: *const c_char,
    key_len: usize,
    text: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let text = options::out(text, "text")?;
            let (weights, library) = entry.object_of::<Weights>(weights)?;
            let key = options::text(key, key_len, "key")?;
            match weights.value(key)? {
                Value::String(found) => Buffer::of_bytes(found.as_bytes().to_vec()).write(text, &library),
                _ => Err(Error::new(
                    unisonic_status::Unsupported,
                    format!("the metadata key `{key}` is no text"),
                )),
            }
        })
    }
}

/// 1 if there is a tensor of this name; otherwise 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_weights_has(
    weights: *mut unisonic_weights,
    name: *const c_char,
    name_len: usize,
) -> i32 {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe {
        let weights = entry.object::<Weights>(weights)?;
        Ok(i32::from(weights.dims(options::text(name, name_len, "name")?).is_some()))
    })
}

/// Frees weights; NULL is fine. Programs that were loaded from them stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_weights_free(weights: *mut unisonic_weights) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Weights>(weights) }
}
