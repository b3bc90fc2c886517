//! The GPUs that kernels are emitted for, and what each has.

use unisonic_core::kir::legal::Caps;

/// A PTX target. A device runs what was emitted for its own compute capability or a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Pascal (GTX 10).
    Sm61,
    /// Turing (RTX 20).
    Sm75,
    /// Ampere (A100).
    Sm80,
    /// Ampere (RTX 30).
    Sm86,
    /// Ada (RTX 40).
    Sm89,
    /// Hopper (H100, H200).
    Sm90,
}

/// A version of the PTX language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Before the dot.
    pub major: u8,
    /// After it.
    pub minor: u8,
}

impl Target {
    /// All, the oldest first.
    pub const ALL: [Target; 6] =
        [Target::Sm61, Target::Sm75, Target::Sm80, Target::Sm86, Target::Sm89, Target::Sm90];

    /// The name in PTX: `sm_86`.
    pub fn name(self) -> &'static str {
        match self {
            Target::Sm61 => "sm_61",
            Target::Sm75 => "sm_75",
            Target::Sm80 => "sm_80",
            Target::Sm86 => "sm_86",
            Target::Sm89 => "sm_89",
            Target::Sm90 => "sm_90",
        }
    }

    /// The target of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Compute capability: major and minor.
    pub fn compute_capability(self) -> (u32, u32) {
        match self {
            Target::Sm61 => (6, 1),
            Target::Sm75 => (7, 5),
            Target::Sm80 => (8, 0),
            Target::Sm86 => (8, 6),
            Target::Sm89 => (8, 9),
            Target::Sm90 => (9, 0),
        }
    }

    /// The best target for a device of a compute capability; none for devices older than all targets.
    pub fn for_compute_capability(major: u32, minor: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|target| target.compute_capability() <= (major, minor))
    }

    /// The first version of PTX that knows the target.
    pub fn version(self) -> Version {
        let (major, minor) = match self {
            Target::Sm61 => (5, 0),
            Target::Sm75 => (6, 3),
            Target::Sm80 => (7, 0),
            Target::Sm86 => (7, 1),
            Target::Sm89 | Target::Sm90 => (7, 8),
        };
        Version { major, minor }
    }

    /// What it has, for the legaliser (PTX ISA: `dp4a`, `mma`, `cp.async`, `shfl`).
    pub fn caps(self) -> Caps {
        let from_sm80 = self >= Target::Sm80;
        Caps { mma16: from_sm80, mma32: from_sm80, load_b: false, copy_async: from_sm80, ..Caps::ALL }
    }

    /// Whether a launch may begin before those before it have ended, and wait for them itself
    /// (`griddepcontrol`).
    pub fn has_dependent_launches(self) -> bool {
        self >= Target::Sm90
    }

    /// Largest shared memory of a workgroup (CUDA C++ Programming Guide, technical specifications per compute
    /// capability).
    pub fn max_shared_len_bytes(self) -> u32 {
        let kib = match self {
            Target::Sm61 => 48,
            Target::Sm75 => 64,
            Target::Sm80 => 163,
            Target::Sm86 | Target::Sm89 => 99,
            Target::Sm90 => 227,
        };
        kib * 1024
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, Version};

    /// PTX ISA, release notes: first versions of targets. CUDA C++ Programming Guide, table of technical
    /// specifications per compute capability: maximum amount of shared memory per thread block.
    #[test]
    fn targets_are_what_the_manuals_say() {
        let expected = [
            ("sm_61", (6, 1), (5, 0), 49_152, false),
            ("sm_75", (7, 5), (6, 3), 65_536, false),
            ("sm_80", (8, 0), (7, 0), 166_912, true),
            ("sm_86", (8, 6), (7, 1), 101_376, true),
            ("sm_89", (8, 9), (7, 8), 101_376, true),
            ("sm_90", (9, 0), (7, 8), 232_448, true),
        ];
        assert!(Target::ALL.is_sorted());
        for (target, (name, capability, (major, minor), shared_len_bytes, multiplies)) in
            Target::ALL.into_iter().zip(expected)
        {
            assert_eq!(target.name(), name);
            assert_eq!(target.compute_capability(), capability, "{name}");
            assert_eq!(target.version(), Version { major, minor }, "{name}");
            assert_eq!(target.max_shared_len_bytes(), shared_len_bytes, "{name}");
            let caps = target.caps();
            assert_eq!([caps.mma16, caps.mma32, caps.copy_async], [multiplies; 3], "{name}");
        }
    }

    #[test]
    fn a_device_gets_the_newest_target_that_is_not_newer_than_it() {
        for (capability, expected) in [
            ((6, 0), None),
            ((6, 1), Some(Target::Sm61)),
            ((7, 0), Some(Target::Sm61)),
            ((7, 4), Some(Target::Sm61)),
            ((7, 5), Some(Target::Sm75)),
            ((8, 0), Some(Target::Sm80)),
            ((8, 5), Some(Target::Sm80)),
            ((8, 6), Some(Target::Sm86)),
            ((8, 7), Some(Target::Sm86)),
            ((8, 9), Some(Target::Sm89)),
            ((9, 0), Some(Target::Sm90)),
            ((12, 0), Some(Target::Sm90)),
        ] {
            assert_eq!(
                Target::for_compute_capability(capability.0, capability.1),
                expected,
                "{capability:?}"
            );
        }
    }

    #[test]
    fn names_are_read_back() {
        for target in Target::ALL {
            assert_eq!(Target::from_name(target.name()), Some(target));
        }
    }
}
