//! Whether a device takes a kernel: what choices of a template's shape are made by, and tests hold.

use unisonic_core::kir::kernel::{Block, Space, Stmt};
use unisonic_core::kir::legal::{Caps, is_legal};
use unisonic_core::kir::op::Effect;
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
fn shared_len(kernel: &Kernel) -> u64 {
    let lens = kernel.objects.iter().filter_map(|object| match object.space {
        Space::Shared { len } => Some((4 * u64::from(len)).next_multiple_of(16)),
        _ => None,
    });
    lens.sum()
}

/// Whether invocations exchange values, so that subgroups have to be whole.
fn exchanges(block: &Block) -> bool {
    let of_op = |op: Op| op.row().effect == Effect::Exchanges;
    block.stmts.iter().any(|stmt| match stmt {
        Stmt::Inst(inst) => of_op(inst.op),
        Stmt::If { then, otherwise, .. } => exchanges(then) || exchanges(otherwise),
        Stmt::Loop { body, .. } => exchanges(body),
    })
}
