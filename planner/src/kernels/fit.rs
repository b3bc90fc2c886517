//! Whether a device takes a kernel: what choices of a template's shape are made by, and tests hold.

use unisonic_core::kir::kernel::{Block, Space, Stmt};
use unisonic_core::kir::legal::{Caps, is_legal};
use unisonic_core::kir::verify::MAX_SHARED_LEN_BYTES;
use unisonic_core::kir::{Kernel, Op};
use unisonic_core::launch::Hardware;

use super::reduce::CLUSTER;

/// What keeps a device from running a kernel as it is; none if nothing does.
pub fn misfit(kernel: &Kernel, hardware: &Hardware) -> Option<String> {
    let Hardware { caps, shared_len_bytes, workgroup, .. } = hardware;
    let shared = shared_len(kernel);
    if kernel.workgroup > *workgroup {
        return Some(format!("{} invocations of {workgroup}", kernel.workgroup));
    }
    if shared > u64::from(*shared_len_bytes) {
        return Some(format!("{shared} bytes of shared memory of {shared_len_bytes}"));
    }
    if !is_legal(kernel, caps) {
        return Some("operations that the device lacks".to_owned());
    }
    if exchanges(&kernel.body) && !kernel.workgroup.is_multiple_of(caps.subgroup) {
        return Some(format!("{} invocations are no whole subgroups of {}", kernel.workgroup, caps.subgroup));
    }
    None
}

/// What a template would take of a device, as far as its shape says: more than it will, rather than less.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Shared memory of the template.
    pub shared_len_bytes: u32,
    /// Words of an invocation that it exchanges with its cluster at a time.
    pub exchanged: u32,
}

impl Room {
    /// Whether a device has it, with what the legaliser adds, and with whole subgroups.
    pub fn fits(self, hardware: &Hardware) -> bool {
        let shared = u64::from(self.shared_len_bytes) + u64::from(stage_len_bytes(self, &hardware.caps));
        self.workgroup <= hardware.workgroup
            && self.workgroup.is_multiple_of(hardware.caps.subgroup)
            && shared <= u64::from(hardware.shared_len_bytes).min(MAX_SHARED_LEN_BYTES)
    }
}

/// Shared memory through which clusters that are more than a subgroup exchange.
fn stage_len_bytes(room: Room, caps: &Caps) -> u32 {
    if caps.subgroup >= CLUSTER { 0 } else { 4 * room.workgroup * room.exchanged }
}

/// Bytes of shared memory, each object at a multiple of 16 bytes.
pub(super) fn shared_len(kernel: &Kernel) -> u64 {
    let lens = kernel.objects.iter().filter_map(|object| match object.space {
        Space::Shared { len } => Some((4 * u64::from(len)).next_multiple_of(16)),
        _ => None,
    });
    lens.sum()
}

/// Whether invocations exchange values, so that subgroups have to be whole.
fn exchanges(block: &Block) -> bool {
    let of_op = |op: Op| op.row().effect.is_of_clusters();
    block.stmts.iter().any(|stmt| match stmt {
        Stmt::Inst(inst) => of_op(inst.op),
        Stmt::If { then, otherwise, .. } => exchanges(then) || exchanges(otherwise),
        Stmt::Loop { body, .. } => exchanges(body),
    })
}

#[cfg(test)]
pub mod tests {
    use unisonic_core::kir::Scalar;
    use unisonic_core::kir::build::kernel;
    use unisonic_core::kir::legal::legalize;

    use super::super::samples::Extent;
    use super::*;

    /// Devices among which every two of: shared memory, invocations, subgroups, operations.
    pub fn devices() -> Vec<Hardware> {
        const KIB: [u32; 6] = [99, 227, 64, 48, 32, 16];
        const WORKGROUPS: [u32; 3] = [1024, 256, 512];
        const SUBGROUPS: [u32; 7] = [32, 1, 4, 8, 16, 64, 128];
        let no_matrices = Caps { mma16: false, mma32: false, copy_async: false, ..Caps::ALL };
        let operations = [Caps::ALL, no_matrices, Caps { mma32: false, ..Caps::ALL }, Caps::NONE];
        let choices =
            Extent::Pairs.combinations([KIB.len(), WORKGROUPS.len(), SUBGROUPS.len(), operations.len()]);
        let of_choice = |[kib, workgroup, subgroup, caps]: [usize; 4]| Hardware {
            caps: Caps { subgroup: SUBGROUPS[subgroup], ..operations[caps] },
            matrix_registers: kib % 2 == 0,
            shared_len_bytes: KIB[kib] * 1024,
            workgroup: WORKGROUPS[workgroup],
            multiprocessors: [64, 8][workgroup % 2],
        };
        let mut devices: Vec<Hardware> = choices.into_iter().map(of_choice).collect();
        devices.extend([Hardware::SM_86, Hardware::LEAST]);
        devices
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let exchange = |workgroup: u32| {
            kernel("exchange", workgroup, |k| {
                let shared = k.shared("shared", Scalar::U32, 3 * 1024);
                let x = k.vector([k.local_id(); 2]).shuffle_xor(32, 16);
                shared.store(k.local_id() * 2, x);
            })
        };
        let least = Hardware::LEAST;
        let legal = |workgroup: u32| legalize(&exchange(workgroup), &least.caps);
        assert_eq!(misfit(&legal(256), &least), None);
        // 12 KiB and 2 words of each invocation.
        assert_eq!(misfit(&legal(512), &Hardware { workgroup: 512, ..least }), None);
        let told = |kernel: &Kernel, hardware: &Hardware| misfit(kernel, hardware).unwrap_or_default();
        assert!(told(&legal(512), &least).contains("512 invocations of 256"));
        let less = Hardware { shared_len_bytes: 14 * 1024 - 16, ..least };
        assert!(told(&legal(256), &less).contains("14336 bytes of shared memory"));
        assert!(told(&exchange(256), &least).contains("operations"));
        let wide = Hardware { caps: Caps { subgroup: 64, ..Caps::ALL }, ..least };
        assert!(told(&exchange(96), &wide).contains("whole subgroups"));
        for (workgroup, shared_len_bytes) in
            [(256, 12 * 1024), (512, 12 * 1024), (96, 12 * 1024), (256, 15 * 1024)]
        {
            let room = Room { workgroup, shared_len_bytes, exchanged: 2 };
            assert_eq!(room.fits(&least), shared_len_bytes == 12 * 1024 && workgroup < 512);
            assert_eq!(room.fits(&wide), workgroup == 256);
        }
    }
}
