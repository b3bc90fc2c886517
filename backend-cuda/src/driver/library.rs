//! Opening the driver's library so that nothing panics: `cudarc` panics where the library or one of its
//! functions is missing, so both are looked for first.

use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys;

use super::error::{NoCuda, check};

/// A version of CUDA, as the driver counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Before the dot.
    pub major: u32,
    /// After it.
    pub minor: u32,
}

impl Version {
    /// The oldest that has all functions that are called, and knows PTX 7.4, the newest that is emitted for
    /// the targets in use.
    pub const OLDEST: Version = Version { major: 11, minor: 4 };

    /// The first that captures dependent launches into graphs, as edges that do not wait for the end of a
    /// launch.
    pub const DEPENDENT_LAUNCHES: Version = Version { major: 12, minor: 3 };

    /// From `1000 * major + 10 * minor`.
    fn from_number(number: u32) -> Self {
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Each function that is called anywhere in `driver/`; a test holds that.
const FUNCTIONS: [&str; 43] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuLinkCreate_v2",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuLinkDestroy",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
];

/// A function that newer drivers have: looked for with [`has`] before it is called.
pub const LAUNCH_WITH_ATTRIBUTES: &str = "cuLaunchKernelEx";

/// Opens the library and starts the driver, once for the process; which version it is. After this, functions
/// of [`FUNCTIONS`] can be called.
pub fn start() -> Result<Version, NoCuda> {
    static STARTED: OnceLock<Result<Version, NoCuda>> = OnceLock::new();
    STARTED.get_or_init(start_once).clone()
}

fn start_once() -> Result<Version, NoCuda> {
    // SAFETY: opening a library runs its initialisers; the driver's do nothing that anything here relies on.
    if !unsafe { sys::is_culib_present() } {
        return Err(NoCuda::NoLibrary);
    }
    if let Some(function) = FUNCTIONS.into_iter().find(|function| !has(function)) {
        return Err(NoCuda::NoFunction { function });
    }
    let mut number = 0;
    // SAFETY: the function is there; it writes an int, before the driver is started too.
    let result = unsafe { sys::cuDriverGetVersion(&mut number) };
    check("cuDriverGetVersion", result)?;
    let version = Version::from_number(number.unsigned_abs());
    if version < Version::OLDEST {
        return Err(NoCuda::OldDriver { found: version });
    }
    // SAFETY: the function is there, and takes no flags.
    let result = unsafe { sys::cuInit(0) };
    if result == sys::CUresult::CUDA_ERROR_NO_DEVICE {
        return Err(NoCuda::NoDevice);
    }
    check("cuInit", result)?;
    Ok(version)
}

/// `cuEventElapsedTime`, which every driver has and the bindings of the newest version leave out.
pub type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// The function, of the library that [`start`] opened.
pub fn elapsed_time() -> Option<ElapsedTime> {
    // SAFETY: the library stays open for as long as the process lives; the type is the one of the driver
    // API's header.
    unsafe { sys::culib().get::<ElapsedTime>(b"cuEventElapsedTime").ok().map(|function| *function) }
}

/// Whether the library, which [`start`] found, has a function.
pub fn has(function: &str) -> bool {
    // SAFETY: what is found is not used, so its type does not matter.
    unsafe { sys::culib().get::<*const ()>(function.as_bytes()).is_ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_counts_in_thousands_and_tens() {
        for (number, major, minor, text) in
            [(11_040, 11, 4, "11.4"), (13_000, 13, 0, "13.0"), (0, 0, 0, "0.0")]
        {
            let version = Version::from_number(number);
            assert_eq!(version, Version { major, minor });
            assert_eq!(version.to_string(), text);
        }
        assert!(Version::from_number(11_030) < Version::OLDEST);
        assert!(Version::from_number(12_000) > Version::OLDEST);
    }

    /// A function that is called without having been looked for would panic where it is missing.
    #[test]
    fn every_function_that_is_called_is_looked_for() {
        let sources = [
            include_str!("context.rs"),
            include_str!("enumerate.rs"),
            include_str!("error.rs"),
            include_str!("graph.rs"),
            include_str!("jit.rs"),
            include_str!("launch.rs"),
            include_str!("library.rs"),
            include_str!("machine.rs"),
            include_str!("memory.rs"),
            include_str!("module.rs"),
            include_str!("pinned.rs"),
            include_str!("recording.rs"),
            include_str!("stream.rs"),
            include_str!("timing.rs"),
            include_str!("upload.rs"),
        ];
        let prefix = ["sys", "::cu"].concat();
        let mut called: Vec<&str> = sources
            .iter()
            .flat_map(|source| source.split(&prefix).skip(1))
            .filter(|rest| !rest.starts_with("lib"))
            .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
            .collect();
        called.sort_unstable();
        called.dedup();
        let looked_for = FUNCTIONS.into_iter().chain([LAUNCH_WITH_ATTRIBUTES]);
        let mut looked_for: Vec<&str> = looked_for.map(|function| &function["cu".len()..]).collect();
        looked_for.sort_unstable();
        assert_eq!(called, looked_for);
    }

    #[test]
    fn starting_says_the_same_each_time() {
        let (first, second) = (start(), start());
        assert_eq!(first, second);
        // SAFETY: as in `start_once`.
        let present = unsafe { sys::is_culib_present() };
        assert_eq!(first == Err(NoCuda::NoLibrary), !present);
    }
}
