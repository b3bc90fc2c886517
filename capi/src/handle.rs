//! Handles: places in a table that belongs to a library handle.
//!
//! A handle is the address of a [`Place`]. A place keeps its address as long as any handle of its library
//! handle is alive, and one that was freed is not used again at once, so that a handle is told from a freed
//! one, from one of another kind, and mostly from what is no handle at all. The object is counted: whoever
//! uses it in another thread while it is freed keeps it until the call ends, and an object keeps what it is
//! made of, so handles may be freed in any order.
//!
//! The library handle is a place of its own table. The table lives until the last of its places is empty.

use std::any::Any;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::library::Library;
use crate::locks::lock_whole;
use crate::status::unisonic_status;

/// What a handle can stand for.
pub(crate) trait Object: Any + Send + Sync {
    /// C's name of it; an address of a place and no value of this type.
    type Handle;
    /// What it is called in messages.
    const NAME: &'static str;
}

/// Where an object is.
struct Place {
    magic: AtomicU64,
    held: Mutex<Option<Held>>,
}

struct Held {
    name: &'static str,
    object: Arc<dyn Any + Send + Sync>,
    library: Arc<Library>,
}

const MAGIC: u64 = 0x756e_6973_6f6e_0002;
/// Places that are made at a time.
const CHUNK: usize = 64;
/// Places that stay empty before one of them is used again.
const QUARANTINE: usize = 1024;

/// The places of a library handle.
#[derive(Default)]
pub(crate) struct Handles {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// From `Box::into_raw`.
    chunks: Vec<NonNull<[Place]>>,
    fresh: Vec<NonNull<Place>>,
    /// Those that were freed, the first of them first.
    freed: VecDeque<NonNull<Place>>,
}

// SAFETY: the pointers are to places of this table, which are Sync, and which only dropping the table ends.
unsafe impl Send for Places {}

impl Handles {
    /// Handles that were given out and not freed.
    pub(crate) fn in_use(&self) -> usize {
        let places = lock_whole(&self.places);
        CHUNK * places.chunks.len() - places.fresh.len() - places.freed.len()
    }

    fn take_place(&self) -> NonNull<Place> {
        let mut places = lock_whole(&self.places);
        if places.freed.len() > QUARANTINE
            && let Some(place) = places.freed.pop_front()
        {
            return place;
        }
        if let Some(place) = places.fresh.pop() {
            return place;
        }
        let place = || Place { magic: AtomicU64::new(MAGIC), held: Mutex::new(None) };
        let chunk: Box<[Place]> = (0..CHUNK).map(|_| place()).collect();
        let chunk = NonNull::from(Box::leak(chunk));
        places.chunks.push(chunk);
        let first = chunk.cast::<Place>();
        // SAFETY: all are inside of the chunk.
        places.fresh.extend((1..CHUNK).map(|index| unsafe { first.add(index) }));
        first
    }

    fn give_back(&self, place: NonNull<Place>) {
        lock_whole(&self.places).freed.push_back(place);
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            // SAFETY: it came from `Box::leak`; all its places are empty, as one that is not keeps the table.
            let chunk = unsafe { Box::from_raw(chunk.as_ptr()) };
            chunk.iter().for_each(|place| place.magic.store(0, Ordering::Release));
        }
    }
}

/// A new handle.
pub(crate) fn insert<T: Object>(library: &Arc<Library>, object: Arc<T>) -> *mut T::Handle {
    let place = library.handles().take_place();
    let held = Held { name: T::NAME, object, library: Arc::clone(library) };
    // SAFETY: the table, which `library` keeps, has the place.
    *lock_whole(&unsafe { place.as_ref() }.held) = Some(held);
    place.as_ptr().cast()
}

/// Writes a new handle to where the caller wants it.
///
/// # Safety
/// `to` may be written.
pub(crate) unsafe fn write<T: Object>(
    to: *mut *mut T::Handle,
    library: &Arc<Library>,
    object: Arc<T>,
) -> Result {
    // SAFETY: the caller says so.
    unsafe { to.write(insert(library, object)) };
    Ok(())
}

/// The place that a handle is the address of.
///
/// # Safety
/// As of [`get`].
unsafe fn place<'a, T: Object>(handle: *const T::Handle) -> Result<&'a Place> {
    let name = T::NAME;
    if handle.is_null() {
        return Err(Error::argument(format!("the {name} is NULL")));
    }
    let place = handle.cast::<Place>();
    let foreign = || {
        let message = format!("the {name} is no handle of this library, or its library handle is gone");
        Error::new(unisonic_status::InvalidHandle, message)
    };
    if !place.is_aligned() {
        return Err(foreign());
    }
    // SAFETY: memory that can be read, as the caller says; without the mark nothing more of it is looked at.
    let place = unsafe { &*place };
    if place.magic.load(Ordering::Acquire) != MAGIC {
        return Err(foreign());
    }
    Ok(place)
}

fn freed(name: &str) -> Error {
    Error::new(unisonic_status::InvalidHandle, format!("the {name} was freed before this call"))
}

fn of_another_kind(name: &str, found: &str) -> Error {
    Error::new(unisonic_status::InvalidHandle, format!("the handle must be a {name}, but is a {found}"))
}

/// The object of a handle and its library handle.
///
/// # Safety
/// The handle is NULL or one that this library gave out, freed or not, or points to memory that can be read.
pub(crate) unsafe fn get<T: Object>(handle: *const T::Handle) -> Result<(Arc<T>, Arc<Library>)> {
    // SAFETY: the caller says so.
    let place = unsafe { place::<T>(handle) }?;
    let held = lock_whole(&place.held);
    let held = held.as_ref().ok_or_else(|| freed(T::NAME))?;
    let object = Arc::clone(&held.object).downcast::<T>();
    Ok((object.map_err(|_| of_another_kind(T::NAME, held.name))?, Arc::clone(&held.library)))
}

/// Takes the object out of a handle; with the library handle that it belongs to, so that the caller decides
/// where both are dropped.
///
/// # Safety As of [`get`].
pub(crate) unsafe fn take<T: Object>(handle: *mut T::Handle) -> Result<(Arc<T>, Arc<Library>)> {
    // SAFETY: the caller says so.
    let place = unsafe { place::<T>(handle) }?;
    let Held { object, library, .. } = {
        let mut held = lock_whole(&place.held);
        match &*held {
            None => return Err(freed(T::NAME)),
            Some(found) if !found.object.is::<T>() => return Err(of_another_kind(T::NAME, found.name)),
            Some(_) => held.take().ok_or_else(|| freed(T::NAME))?,
        }
    };
    library.handles().give_back(NonNull::from(place));
    let object = object.downcast::<T>().map_err(|_| freed(T::NAME))?;
    Ok((object, library))
}

/// The body of a function that frees handles: NULL is fine, what is no handle of its kind is not.
///
/// # Safety
/// As of [`get`].
pub(crate) unsafe fn free<T: Object>(handle: *mut T::Handle) -> unisonic_status {
    // SAFETY: NULL, and the caller says so.
    unsafe {
        crate::entry::entry(std::ptr::null_mut(), |entry| {
            if handle.is_null() {
                return Ok(());
            }
            let (object, library) = take::<T>(handle)?;
            entry.log_to(&library);
            drop(object);
            Ok(())
        })
    }
}
