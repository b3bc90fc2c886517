//! Differences that specifications leave to a device, and that no kernel of ours makes use of: they are shown, and nobody is to be
//! blamed for them. Faults are another list (`unisonic_vulkan::driver::KNOWN_FAULTS`).

/// What the specification leaves to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// As in reports.
    pub name: &'static str,
    /// What a device may do.
    pub what: &'static str,
    /// Where that is said.
    pub source: &'static str,
    /// Why no result of ours depends on it.
    pub why: &'static str,
}

/// All of them.
pub const PERMITTED: &[Permission] = &[
    Permission {
        name: "flush",
        what: "subnormal operands and results are zeros",
        source: "Vulkan, \"Precision and Operation of SPIR-V Instructions\": denormalized values may be flushed to zero",
        why: "docs/numerics.md, \"Why flush-to-zero cannot matter\"",
    },
    Permission {
        name: "fused-fma",
        what: "Fma rounds once",
        source: "GLSL.std.450, Fma: a multiplication and an addition, or the fused operation",
        why: "kernels add products by FMul and FAdd, each decorated NoContraction",
    },
    Permission {
        name: "minimum-of-zeros",
        what: "of 0 and -0 either is the smaller and the larger",
        source: "GLSL.std.450, FMin and FMax: which operand results if they are equal is not said",
        why: "kernels compare ordered integers",
    },
    Permission {
        name: "half-rounding",
        what: "a float becomes either of the halves beside it",
        source: "Vulkan, \"Precision and Operation of SPIR-V Instructions\": conversions are correctly rounded, in either direction",
        why: "kernels make halves by integer operations",
    },
];

/// What a device does that makes use of a permission.
pub fn what(name: &str) -> Option<&'static str> {
    PERMITTED.iter().find(|permission| permission.name == name).map(|permission| permission.what)
}
