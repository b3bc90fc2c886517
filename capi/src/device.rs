//! Which devices there are.

use std::ffi::CString;
use std::sync::Arc;

use unisonic_devices::{Backend, Listed};

use crate::entry::{answer, entry};
use crate::error::{Error, c_string, unisonic_error};
use crate::handle::{self, Object};
use crate::library::{Library, unisonic_library};
use crate::options::{self, SizeTagged, unisonic_text};
use crate::status::unisonic_status;

/// Devices that were found.
pub struct unisonic_device_list {
    _opaque: (),
}

/// A device. Its texts live as long as the list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_device_info {
    /// sizeof(unisonic_device_info).
    pub struct_size: usize,
    /// By which it is opened, such as "cpu" or "vulkan:0"; for a backend without devices, its name.
    pub name: unisonic_text,
    /// Hardware or implementation.
    pub hardware: unisonic_text,
    /// Driver and version, where there is one.
    pub driver: unisonic_text,
    /// Why it cannot be used and what to do; without text if it can.
    pub problem: unisonic_text,
    /// Memory in all; 0 where the driver does not say.
    pub memory_len_bytes: u64,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_device_info {
    const NAME: &'static str = "unisonic_device_info";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What is behind a list.
pub(crate) struct DeviceList {
    devices: Vec<Found>,
}

struct Found {
    name: CString,
    hardware: CString,
    driver: Option<CString>,
    problem: Option<CString>,
    memory_len_bytes: u64,
}

impl Object for DeviceList {
    type Handle = unisonic_device_list;
    const NAME: &'static str = "device list";
}

impl Found {
    fn all_of(backend: Backend) -> Vec<Self> {
        match backend.devices {
            Ok(devices) => devices.iter().map(Self::of).collect(),
            Err(problem) => vec![Self {
                name: c_string(&backend.name.to_lowercase()),
                hardware: CString::default(),
                driver: None,
                problem: Some(c_string(&problem)),
                memory_len_bytes: 0,
            }],
        }
    }

    fn of(listed: &Listed) -> Self {
        Self {
            name: c_string(&listed.name.to_string()),
            hardware: c_string(&listed.hardware),
            driver: listed.driver.as_deref().map(c_string),
            problem: (!listed.missing.is_empty()).then(|| c_string(&listed.missing.join("; "))),
            memory_len_bytes: listed.memory_len_bytes.unwrap_or(0),
        }
    }

    fn info(&self) -> unisonic_device_info {
        let text = |text: &Option<CString>| text.as_deref().map_or(unisonic_text::NONE, unisonic_text::of);
        unisonic_device_info {
            struct_size: size_of::<unisonic_device_info>(),
            name: unisonic_text::of(&self.name),
            hardware: unisonic_text::of(&self.hardware),
            driver: text(&self.driver),
            problem: text(&self.problem),
            memory_len_bytes: self.memory_len_bytes,
        }
    }
}

/// Finds all devices, those that cannot be used too, with the reason. Asks drivers, which can take seconds
/// and, of some drivers of GPUs, prints to stderr. Free the list with unisonic_device_list_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_device_list_new(
    library: *mut unisonic_library,
    list: *mut *mut unisonic_device_list,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let list = options::out(list, "list")?;
            let library = entry.object::<Library>(library)?;
            let found = unisonic_devices::list(library.cache());
            let devices = found.into_iter().flat_map(Found::all_of).collect();
            handle::write(list, &library, Arc::new(DeviceList { devices }))
        })
    }
}

/// Number of devices; 0 if the list is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_device_list_len(list: *mut unisonic_device_list) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<DeviceList>(list)?.devices.len()) })
}

/// Describes device `index`, from 0, into `info`, whose struct_size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_device_list_get(
    list: *mut unisonic_device_list,
    index: usize,
    info: *mut unisonic_device_info,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let list = entry.object::<DeviceList>(list)?;
            let found = list.devices.get(index).ok_or_else(|| {
                Error::argument(format!("device {index}, but there are {}", list.devices.len()))
            })?;
            options::write(info, &found.info())
        })
    }
}

/// Frees a list; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_device_list_free(list: *mut unisonic_device_list) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<DeviceList>(list) }
}
