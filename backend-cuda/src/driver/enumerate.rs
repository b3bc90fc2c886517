//! Which GPUs there are.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys;
use sys::CUdevice_attribute_enum as Attribute;
use unisonic_core::launch::Hardware;

use super::error::{NoCuda, check};
use super::library::{Version, start};
use super::machine::Without;
use crate::ptx::Target;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number, as [`super::open`] takes it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Device memory in all.
    pub memory_len_bytes: u64,
    /// Compute capability: major and minor.
    pub compute_capability: (u32, u32),
    /// What the driver is for.
    pub driver: Version,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Whether it shares the host's memory.
    pub is_integrated: bool,
    /// Shared memory that a workgroup may ask for.
    pub max_shared_len_bytes: u32,
    /// Invocations that a workgroup may have.
    pub max_workgroup: u32,
}

/// Most shared memory that kernels are told of, even where there is more, so that one choice serves all GPUs from sm_86 on.
const SHARED_LEN_BYTES: u32 = 99 * 1024;

/// All GPUs that the driver shows, also those that are too old to be opened.
///
/// # Errors
/// If there is no driver, it is too old or does not work, or there is no GPU; the message says what to do.
pub fn enumerate() -> Result<Vec<Found>, NoCuda> {
    let driver = start()?;
    (0..count()?).map(|index| found(index, device(index)?, driver)).collect()
}

/// How many there are: at least one.
fn count() -> Result<u32, NoCuda> {
    let mut count = 0;
    // SAFETY: the driver was started; the number is written to a place of its type.
    let result = unsafe { sys::cuDeviceGetCount(&mut count) };
    check("cuDeviceGetCount", result)?;
    if count <= 0 { Err(NoCuda::NoDevice) } else { Ok(count.unsigned_abs()) }
}

/// The driver's name of a GPU that there is.
fn device(index: u32) -> Result<sys::CUdevice, NoCuda> {
    let mut device = 0;
    // SAFETY: the driver was started; the device is written to a place of its type.
    let result = unsafe { sys::cuDeviceGet(&mut device, index as c_int) };
    check("cuDeviceGet", result)?;
    Ok(device)
}

/// A GPU of a number, and the driver's name of it.
pub fn find(index: u32) -> Result<(sys::CUdevice, Found), NoCuda> {
    let driver = start()?;
    let count = count()?;
    if index >= count {
        return Err(NoCuda::NoSuchDevice { index, count });
    }
    let device = device(index)?;
    Ok((device, found(index, device, driver)?))
}

fn found(index: u32, device: sys::CUdevice, driver: Version) -> Result<Found, NoCuda> {
    let attribute = |attribute: Attribute| -> Result<u32, NoCuda> {
        let mut value = 0;
        // SAFETY: the device is one that the driver named; the number is written to a place of its type.
        let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
        check("cuDeviceGetAttribute", result)?;
        Ok(value.unsigned_abs())
    };
    let mut memory_len_bytes = 0;
    // SAFETY: the device is one that the driver named; the number is written to a place of its type.
    let result = unsafe { sys::cuDeviceTotalMem_v2(&mut memory_len_bytes, device) };
    check("cuDeviceTotalMem", result)?;
    Ok(Found {
        index,
        name: name(device)?,
        memory_len_bytes: memory_len_bytes as u64,
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        is_integrated: attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        max_shared_len_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        max_workgroup: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
    })
}

fn name(device: sys::CUdevice) -> Result<String, NoCuda> {
    let mut name = [0_u8; 256];
    // SAFETY: the device is one that the driver named; the driver writes at most so many bytes.
    let result =
        unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int, device) };
    check("cuDeviceGetName", result)?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

impl Found {
    /// What kernels are emitted for: sm_90, where launches can be dependent and the driver captures that; of the targets
    /// below, none after sm_86 has anything that kernels use, and what is emitted for it is known to older drivers and runs
    /// on all newer GPUs.
    pub fn target(&self, without: Without) -> Result<Target, NoCuda> {
        let (major, minor) = self.compute_capability;
        let best = Target::for_compute_capability(major, minor);
        let best = best.ok_or_else(|| NoCuda::OldDevice {
            name: self.name.clone(),
            capability: self.compute_capability,
        })?;
        let depends = best.has_dependent_launches()
            && !without.dependent_launches
            && self.driver >= Version::DEPENDENT_LAUNCHES;
        Ok(if depends { Target::Sm90 } else { best.min(Target::Sm86) })
    }

    /// What kernels may use of it.
    pub(super) fn hardware(&self, target: Target) -> Hardware {
        let shared_len_bytes = self.max_shared_len_bytes.min(SHARED_LEN_BYTES);
        Hardware {
            caps: target.caps(),
            matrix_registers: true,
            shared_len_bytes,
            workgroup: self.max_workgroup,
            multiprocessors: self.multiprocessors,
        }
    }
}

#[cfg(test)]
mod tests {
    use unisonic_core::kir::legal::Caps;

    use super::*;

    fn gpu(compute_capability: (u32, u32), max_shared_kib: u32) -> Found {
        Found {
            index: 0,
            name: "a GPU".to_owned(),
            memory_len_bytes: 8 << 30,
            compute_capability,
            driver: Version::OLDEST,
            multiprocessors: 20,
            is_integrated: false,
            max_shared_len_bytes: max_shared_kib * 1024,
            max_workgroup: 1024,
        }
    }

    #[test]
    fn all_gpus_from_sm_86_on_offer_the_same() {
        for (capability, shared_kib) in [((8, 6), 99), ((8, 9), 99), ((9, 0), 227), ((12, 0), 99)] {
            let found = gpu(capability, shared_kib);
            let target = found.target(Without::default()).expect("a target");
            assert_eq!(target, Target::Sm86);
            assert_eq!(found.hardware(target), Hardware { multiprocessors: 20, ..Hardware::SM_86 });
        }
    }

    #[test]
    fn launches_are_dependent_from_sm_90_on_where_the_driver_captures_that() {
        let driver = Version { major: 12, minor: 3 };
        for (capability, driver, expected) in [
            ((8, 9), driver, Target::Sm86),
            ((9, 0), Version { minor: 2, ..driver }, Target::Sm86),
            ((9, 0), driver, Target::Sm90),
            ((12, 0), Version { major: 13, minor: 0 }, Target::Sm90),
        ] {
            let found = Found { driver, ..gpu(capability, 99) };
            assert_eq!(found.target(Without::default()), Ok(expected), "{capability:?} {driver}");
            let without = Without { dependent_launches: true, ..Without::default() };
            assert_eq!(found.target(without), Ok(Target::Sm86));
        }
    }

    #[test]
    fn older_gpus_offer_less() {
        let all = Caps { load_b: false, ..Caps::ALL };
        let less = Caps { mma16: false, mma32: false, copy_async: false, ..all };
        for (capability, kib, target, expected_kib, caps) in [
            ((8, 0), 163, Target::Sm80, 99, all),
            ((7, 5), 64, Target::Sm75, 64, less),
            ((7, 0), 96, Target::Sm61, 96, less),
            ((6, 1), 48, Target::Sm61, 48, less),
        ] {
            let found = gpu(capability, kib);
            assert_eq!(found.target(Without::default()), Ok(target));
            let hardware = found.hardware(target);
            assert_eq!(hardware.shared_len_bytes, expected_kib * 1024, "{capability:?}");
            assert_eq!(hardware.caps, caps, "{capability:?}");
        }
        let error = gpu((6, 0), 48).target(Without::default());
        assert_eq!(error, Err(NoCuda::OldDevice { name: "a GPU".to_owned(), capability: (6, 0) }));
    }
}
