//! Turns kernels into PTX text: a function of the kernel and the target, nothing else.
//!
//! [`emit`] is the way in. `emitter.rs` holds the state and the one exhaustive match over the operations;
//! each family of the table has its file, named as in the interpreter: `alu.rs`, `shape.rs`, `mem.rs`,
//! `lanes.rs`, `dot.rs`, `matrix.rs`; `flow.rs` has blocks, branches and loops. What is known beforehand is
//! found by `known.rs`, `division.rs` and `address.rs`. [`Target`] says what GPUs there are.
//!
//! **Parameters** of the entry are the launch's record (`core::kir::abi`): for each object that is not
//! shared, in the kernel's order, a `.u64` device address; after them each parameter of the kernel, a `.b32`.
//! A launch has `workgroup` threads a block in one dimension, and [`dynamic_shared_len_bytes`] of dynamic
//! shared memory.
//!
//! **Order.** From sm_90 on a launch may begin before those before it have ended (programmatic dependent
//! launch): kernels let those after them begin, and wait for those before them, before they touch what
//! another launch writes (`core::kir::waits`).
//!
//! **Arithmetic** is what the table of operations says, on every target: each float operation is one `add`,
//! `sub` or `mul` with `.rn`, which keeps subnormals and is never contracted. `tests/proof.rs` holds that
//! nothing else is emitted.

mod address;
mod alu;
mod division;
mod dot;
mod emitter;
mod flow;
mod known;
mod lanes;
mod matrix;
mod mem;
mod registers;
mod shape;
mod target;

pub use target::{Target, Version};

use emitter::Emitter;
use unisonic_core::kir::Kernel;
use unisonic_core::kir::kernel::Space;

/// Elements of objects are words.
const ELEM_LEN_BYTES: u32 = 4;

/// Shared memory that PTX lets a kernel declare by itself; more is asked for at the launch.
const MAX_STATIC_SHARED_LEN_BYTES: u32 = 48 * 1024;

/// The PTX module of a kernel that verifies and is legal for [`Target::caps`]. Its one entry is called
/// [`entry_name`]. The same input gives the same bytes.
pub fn emit(kernel: &Kernel, target: Target) -> String {
    let mut emitter = Emitter::new(kernel, target);
    emitter.begin();
    emitter.block(&kernel.body);
    emitter.module()
}

/// Name of a kernel's entry. It has a prefix since PTX reserves words such as `add`.
pub fn entry_name(kernel: &Kernel) -> String {
    format!("kir_{}", kernel.name)
}

/// Dynamic shared memory that a launch has to give: none up to 48 KiB in all, which the module declares.
pub fn dynamic_shared_len_bytes(kernel: &Kernel) -> u32 {
    let len_bytes = shared_offsets_bytes(kernel).1;
    if len_bytes > MAX_STATIC_SHARED_LEN_BYTES { len_bytes } else { 0 }
}

/// Where each object lies in shared memory, 0 for those that do not, and bytes in all: one after the other,
/// each at a multiple of 16 bytes.
fn shared_offsets_bytes(kernel: &Kernel) -> (Vec<u32>, u32) {
    let mut end = 0;
    let offsets = kernel.objects.iter().map(|object| {
        let Space::Shared { len } = object.space else { return 0 };
        let offset = end;
        end += (len * ELEM_LEN_BYTES).next_multiple_of(16);
        offset
    });
    (offsets.collect(), end)
}

#[cfg(test)]
mod tests {
    use unisonic_core::kir::Scalar;
    use unisonic_core::kir::build::kernel;

    use super::{dynamic_shared_len_bytes, shared_offsets_bytes};

    #[test]
    fn shared_objects_lie_one_after_the_other() {
        let kernel = kernel("k", 32, |k| {
            k.shared("a", Scalar::F32, 4);
            k.read("x", Scalar::F32);
            k.shared("b", Scalar::F32, 5);
            k.shared("c", Scalar::F32, 1);
        });
        assert_eq!(shared_offsets_bytes(&kernel), (vec![0, 0, 16, 48], 64));
    }

    #[test]
    fn launches_give_what_is_above_48_kib() {
        for (len, expected) in [(1, 0), (12_288, 0), (12_289, 49_168), (16_384, 65_536)] {
            let kernel = kernel("k", 32, |k| {
                k.shared("a", Scalar::F32, len);
            });
            assert_eq!(dynamic_shared_len_bytes(&kernel), expected);
        }
    }
}
