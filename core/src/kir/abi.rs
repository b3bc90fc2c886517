//! How buffers and parameters reach a kernel: the record of a launch.
//!
//! First, for each object that is not shared, in the kernel's order, its device address: 64 bits,
//! little-endian, a multiple of [`ALIGN_BYTES`]. Then each parameter in order: one word. CUDA takes the same
//! fields as parameters of the entry, Vulkan the address of the record as its push constants. A buffer can be
//! read up to the next multiple of [`READABLE_LEN_BYTES`] of its length.

use super::kernel::{Kernel, ObjectId, ParamId, Space};

/// Most elements of an object: Vulkan takes indices as signed numbers of 32 bits (SPIR-V, `OpAccessChain`).
pub const MAX_OBJECT_LEN: u32 = i32::MAX as u32;
/// Buffers begin at multiples of this.
pub const ALIGN_BYTES: u64 = 256;
/// What lies between the end of a buffer and the next multiple of this may be read, and means nothing.
pub const READABLE_LEN_BYTES: u64 = 16;
/// Longest record: what launches on GPUs before sm_70 take (CUDA C++ Programming Guide, function parameters).
pub const MAX_RECORD_LEN_BYTES: u32 = 4096;
/// An address.
pub const ADDRESS_LEN_BYTES: u32 = 8;
/// A parameter.
pub const PARAM_LEN_BYTES: u32 = 4;

/// The objects that the record holds an address of, in its order.
pub fn addressed(kernel: &Kernel) -> impl Iterator<Item = ObjectId> + '_ {
    let is_addressed = |space: Space| !matches!(space, Space::Shared { .. });
    (0..)
        .map(ObjectId)
        .zip(&kernel.objects)
        .filter(move |(_, object)| is_addressed(object.space))
        .map(|x| x.0)
}

/// Where an object's address is in the record; none for shared memory.
pub fn address_offset_bytes(kernel: &Kernel, id: ObjectId) -> Option<u32> {
    let number = addressed(kernel).position(|other| other == id)?;
    Some(number as u32 * ADDRESS_LEN_BYTES)
}

/// Where a parameter is in the record.
pub fn param_offset_bytes(kernel: &Kernel, id: ParamId) -> u32 {
    addressed(kernel).count() as u32 * ADDRESS_LEN_BYTES + id.0 * PARAM_LEN_BYTES
}

/// The length of the record.
pub fn record_len_bytes(kernel: &Kernel) -> u32 {
    param_offset_bytes(kernel, ParamId(kernel.params.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::super::build::kernel;
    use super::super::{Scalar, Type};
    use super::*;

    /// The last words of a buffer can be read as the widest vector, which lies at a multiple of its length.
    #[test]
    fn vectors_can_be_read_at_the_end_of_a_buffer() {
        let widest = Type::WIDTHS.into_iter().map(u64::from).max();
        assert_eq!(widest.map(|words| words * 4), Some(READABLE_LEN_BYTES));
        assert!(ALIGN_BYTES.is_multiple_of(READABLE_LEN_BYTES));
    }

    #[test]
    fn addresses_come_before_parameters() {
        let kernel = kernel("k", 32, |k| {
            k.param("n", Scalar::U32);
            k.read("x", Scalar::F32);
            k.shared("s", Scalar::F32, 4);
            k.write("y", Scalar::F32);
            k.param("m", Scalar::U32);
        });
        let offsets: Vec<_> = (0..3).map(|id| address_offset_bytes(&kernel, ObjectId(id))).collect();
        assert_eq!(offsets, [Some(0), None, Some(8)]);
        assert_eq!([0, 1].map(|id| param_offset_bytes(&kernel, ParamId(id))), [16, 20]);
        assert_eq!(record_len_bytes(&kernel), 24);
    }
}
