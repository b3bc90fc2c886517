//! Faults of drivers that are known, and what is done about each: a table, keyed by driver and version.
//!
//! The self-test finds most of what matters on any driver, in the table or not; a row here says what a fault is called, has a file
//! that shows it, and switches off what no probe would find. Differences that specifications permit are not here
//! (`unisonic_conform::permitted`). Start reading at [`KNOWN_FAULTS`].

use std::fmt;
use std::ops::Range;

/// A fault of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFault {
    /// What it is called.
    pub name: &'static str,
    /// What the driver does.
    pub what: &'static str,
    /// How the driver is called, as in [`super::Found::driver`]: what stands before the version.
    pub driver: &'static str,
    /// Versions with the fault, from the first to before the first without; a driver that says no version is 0.0.0.
    pub versions: Range<[u32; 3]>,
    /// What is not used because of it.
    pub off: Off,
    /// A file that shows it, which `unisonic conform --replay` runs.
    pub replay: &'static str,
}

/// What of a device is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// Constants of f32 that the driver's compiler knows.
    Constants,
    /// Exchanges in subgroups.
    Subgroups,
    /// Packed dot products.
    IntegerDot,
    /// Matrix products.
    Matrices,
    /// Conversions between floats and halves, which kernels do by integer operations on every device.
    HalfConversions,
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constants => "constants at compile time",
            Self::Subgroups => "exchanges in subgroups",
            Self::IntegerDot => "packed dot products",
            Self::Matrices => "matrices",
            Self::HalfConversions => "conversions between floats and halves",
        })
    }
}

/// No version is later.
const LAST: [u32; 3] = [u32::MAX; 3];

/// All of them.
pub const KNOWN_FAULTS: &[KnownFault] = &[
    KnownFault {
        name: "swiftshader-half-overflow",
        what: "packHalf2x16 makes a NaN, not an infinity, of a float beyond the largest half",
        driver: "SwiftShader driver",
        versions: [0; 3]..LAST,
        off: Off::HalfConversions,
        replay: include_str!("../../known-faults/swiftshader-half-overflow.txt"),
    },
    KnownFault {
        name: "llvmpipe-zero-minus",
        what: "0 - t with a 0 that the compiler knows becomes -t, which is -0 where t is 0",
        driver: "llvmpipe Mesa",
        versions: [0; 3]..[23, 0, 0],
        off: Off::Constants,
        replay: include_str!("../../known-faults/llvmpipe-zero-minus.txt"),
    },
];

/// The faults of a driver, by what it says of itself: name and version.
pub fn known_faults(driver: &str) -> impl Iterator<Item = &'static KnownFault> {
    KNOWN_FAULTS.iter().filter(move |fault| {
        let version = driver.strip_prefix(fault.driver).map(version);
        version.is_some_and(|version| fault.versions.contains(&version))
    })
}

/// The first three numbers of a text; 0 where there are fewer.
fn version(text: &str) -> [u32; 3] {
    let first = text.trim_start().split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
    let mut numbers = first.split('.').map(|number| number.parse().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (text, expected) in [
            (" 22.3.6 (LLVM 15.0.6)", [22, 3, 6]),
            (" 26.1.6-1~bpo13+1 (LLVM 19.1.7)", [26, 1, 6]),
            ("", [0; 3]),
            (" git-0123", [0; 3]),
            (" 5", [5, 0, 0]),
        ] {
            assert_eq!(version(text), expected, "{text:?}");
        }
    }

    #[test]
    fn faults_are_found_by_driver_and_version() {
        let names = |driver: &'static str| known_faults(driver).map(|fault| fault.name).collect::<Vec<_>>();
        assert_eq!(names("llvmpipe Mesa 22.3.6 (LLVM 15.0.6)"), ["llvmpipe-zero-minus"]);
        assert_eq!(names("llvmpipe Mesa 26.1.6-1~bpo13+1 (LLVM 19.1.7)"), [""; 0]);
        assert_eq!(names("SwiftShader driver"), ["swiftshader-half-overflow"]);
        assert_eq!(names("NVIDIA 580.82.07"), [""; 0]);
        for fault in KNOWN_FAULTS {
            assert!(fault.replay.starts_with("unisonic replay 1\n"), "{}", fault.name);
        }
    }
}
