//! Arguments: structs with a size, texts, bytes, arrays.

use std::ffi::{OsString, c_char};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::slice;

use crate::error::{Error, Result};

/// A text with its length, in structs that do not grow. What the library gives out is UTF-8 and has a NUL
/// behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct unisonic_text {
    /// The bytes; NULL for no text.
    pub data: *const c_char,
    /// How many, without the NUL.
    pub len_bytes: usize,
}

impl unisonic_text {
    pub(crate) const NONE: Self = Self { data: std::ptr::null(), len_bytes: 0 };

    /// Of a text that lives as long as the handle that the caller got it from.
    pub(crate) fn of(text: &std::ffi::CStr) -> Self {
        Self { data: text.as_ptr(), len_bytes: text.to_bytes().len() }
    }
}

/// A struct that begins with its size, `usize`, and grows at its end.
///
/// # Safety
/// `repr(C)`, without padding, its first field the size; all bits zero are a value of it.
pub(crate) unsafe trait SizeTagged: Copy {
    /// C's name.
    const NAME: &'static str;
    /// Its size in the first version of the ABI that had it. Smaller ones are no such struct.
    const FIRST_LEN_BYTES: usize;
}

/// More than any version of a struct will have.
const MAX_LEN_BYTES: usize = 4096;

/// The size that a caller's struct says it has.
///
/// # Safety
/// `tagged` points to a struct that begins with its size.
unsafe fn len_bytes<T: SizeTagged>(tagged: *const T) -> Result<usize> {
    let (name, first) = (T::NAME, T::FIRST_LEN_BYTES);
    if !tagged.is_aligned() {
        return Err(Error::argument(format!("{name} is not aligned")));
    }
    // SAFETY: the caller says so.
    let len = unsafe { tagged.cast::<usize>().read() };
    if !(first..=MAX_LEN_BYTES).contains(&len) {
        return Err(Error::argument(format!(
            "{name}.struct_size is {len}, but must be sizeof({name}), which was never below {first}"
        )));
    }
    Ok(len)
}

/// What a caller asks for: what its struct lacks is 0, and what it has beyond ours must be.
///
/// # Safety
/// `options` is NULL or points to a struct that begins with its size, which is right.
pub(crate) unsafe fn read<T: SizeTagged>(options: *const T) -> Result<T> {
    let mut own = MaybeUninit::<T>::zeroed();
    if !options.is_null() {
        // SAFETY: the caller says so; both have the bytes that are copied, and those behind ours are the
        // caller's.
        unsafe {
            let len = len_bytes(options)?;
            let theirs = slice::from_raw_parts(options.cast::<u8>(), len);
            let common = len.min(size_of::<T>());
            own.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(theirs.as_ptr(), common);
            if let Some(at) = theirs[common..].iter().position(|&byte| byte != 0) {
                let at = common + at;
                return Err(Error::new(
                    crate::status::unisonic_status::Version,
                    format!(
                        "{} has {len} bytes, of which byte {at} is set; this library knows {common}: set only what it \
                         knows, or use a newer one",
                        T::NAME
                    ),
                ));
            }
        }
    }
    // SAFETY: zeros, and in them what a caller of the same layout has set.
    Ok(unsafe { own.assume_init() })
}

/// Fills in a caller's struct as far as it goes; its size stays.
///
/// # Safety
/// `to` is NULL or points to a struct that begins with its size, which is right, and may be written.
pub(crate) unsafe fn write<T: SizeTagged>(to: *mut T, value: &T) -> Result {
    if to.is_null() {
        return Err(Error::argument(format!("the {} to fill in is NULL", T::NAME)));
    }
    // SAFETY: the caller says so; the size is skipped.
    unsafe {
        let len = len_bytes(to.cast_const())?;
        let (theirs, own) = (to.cast::<u8>(), (&raw const *value).cast::<u8>());
        let common = len.min(size_of::<T>());
        let start = size_of::<usize>();
        theirs.add(start).copy_from_nonoverlapping(own.add(start), common - start);
        theirs.add(common).write_bytes(0, len - common);
    }
    Ok(())
}

/// A place for a result, which is emptied first.
///
/// # Safety
/// `to` is NULL or may be written.
pub(crate) unsafe fn out<T>(to: *mut *mut T, name: &str) -> Result<*mut *mut T> {
    if to.is_null() {
        return Err(Error::argument(format!("{name}, where the result goes, is NULL")));
    }
    // SAFETY: the caller says so.
    unsafe { to.write(std::ptr::null_mut()) };
    Ok(to)
}

/// A place for a value.
///
/// # Safety
/// `to` is NULL or may be written.
pub(crate) unsafe fn write_value<T>(to: *mut T, value: T, name: &str) -> Result {
    if to.is_null() {
        return Err(Error::argument(format!("{name}, where the result goes, is NULL")));
    }
    // SAFETY: the caller says so.
    unsafe { to.write(value) };
    Ok(())
}

/// An array of the caller's.
///
/// # Safety
/// `data` has `len` values, or `len` is 0.
pub(crate) unsafe fn array<'a, T>(data: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Error::argument(format!("{name} is NULL, but its length is {len}")));
    }
    if !data.is_aligned() {
        return Err(Error::argument(format!("{name} is not aligned to {} bytes", align_of::<T>())));
    }
    if len.checked_mul(size_of::<T>()).is_none_or(|len_bytes| len_bytes > isize::MAX as usize) {
        return Err(Error::argument(format!("the length of {name} is {len}, which no array has")));
    }
    // SAFETY: the caller says so.
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

/// An array of the caller's that is filled in.
///
/// # Safety
/// `data` has room for `len` values, or `len` is 0, and nobody else uses it during the call.
pub(crate) unsafe fn array_mut<'a, T>(data: *mut T, len: usize, name: &str) -> Result<&'a mut [T]> {
    // SAFETY: the caller says so.
    let checked = unsafe { array(data.cast_const(), len, name) }?;
    if checked.is_empty() {
        return Ok(&mut []);
    }
    // SAFETY: the caller says so; the other view is not used any more.
    Ok(unsafe { slice::from_raw_parts_mut(data, len) })
}

/// A text of the caller's.
///
/// # Safety
/// `data` has `len` bytes, or `len` is 0.
pub(crate) unsafe fn text<'a>(data: *const c_char, len: usize, name: &str) -> Result<&'a str> {
    // SAFETY: the caller says so.
    let bytes = unsafe { array(data.cast::<u8>(), len, name) }?;
    std::str::from_utf8(bytes)
        .map_err(|error| Error::argument(format!("{name} is no UTF-8 from byte {} on", error.valid_up_to())))
}

/// A path of the caller's: on Unix its bytes as they are, elsewhere UTF-8.
///
/// # Safety
/// `data` has `len` bytes, or `len` is 0.
pub(crate) unsafe fn path(data: *const c_char, len: usize, name: &str) -> Result<PathBuf> {
    // SAFETY: the caller says so.
    let bytes = unsafe { array(data.cast::<u8>(), len, name) }?;
    if bytes.is_empty() {
        return Err(Error::argument(format!("{name} is empty")));
    }
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        return Err(Error::argument(format!("{name} has a NUL at byte {at}, which no path has")));
    }
    #[cfg(unix)]
    let path: OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec());
    #[cfg(not(unix))]
    // SAFETY: as above.
    let path: OsString = unsafe { text(data, len, name) }?.into();
    Ok(path.into())
}

/// A switch, for which 0 is off and 1 on.
pub(crate) fn switch(value: u32, name: &str) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::argument(format!("{name} is {other}, but must be 0 or 1"))),
    }
}

/// A field that means nothing yet.
pub(crate) fn reserved(value: u32) -> Result {
    match value {
        0 => Ok(()),
        other => Err(Error::argument(format!("the reserved field is {other}, but must be 0"))),
    }
}
