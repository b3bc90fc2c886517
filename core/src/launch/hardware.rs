//! What a GPU has, as far as kernels for it depend on that.

use crate::kir::legal::Caps;

/// What a device offers a kernel. Two devices with equal numbers get the same kernels; none of the numbers changes a bit of
/// a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hardware {
    /// Operations.
    pub caps: Caps,
    /// Whether a matrix instruction takes words of registers as they are, as in PTX. Where matrices are made of them first
    /// (cooperative matrices), one row is multiplied faster without.
    pub matrix_registers: bool,
    /// Shared memory that a workgroup may have.
    pub shared_len_bytes: u32,
    /// Invocations that a workgroup may have.
    pub workgroup: u32,
    /// Multiprocessors (compute units), for choices of how far to spread work; a guess where the driver does not say.
    pub multiprocessors: u32,
}

impl Hardware {
    /// An NVIDIA GPU from sm_86 on, of middling size.
    pub const SM_86: Hardware = Hardware {
        caps: Caps { load_b: false, ..Caps::ALL },
        matrix_registers: true,
        shared_len_bytes: 99 * 1024,
        workgroup: 1024,
        multiprocessors: 64,
    };
    /// A Vulkan device with cooperative matrices, and 48 KiB of shared memory as NVIDIA's driver has it.
    pub const COOPERATIVE: Hardware = Hardware {
        caps: Caps { mma16: false, copy_async: false, ..Caps::ALL },
        matrix_registers: false,
        shared_len_bytes: 48 * 1024,
        workgroup: 1024,
        multiprocessors: 64,
    };
    /// The least that Vulkan 1.2 and our kernels ask for: 16 KiB of shared memory and 256 invocations.
    pub const LEAST: Hardware = Hardware {
        caps: Caps::NONE,
        matrix_registers: false,
        shared_len_bytes: 16 * 1024,
        workgroup: 256,
        multiprocessors: 8,
    };
}
