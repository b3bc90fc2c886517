//! The fast CPU device: the steps of a plan on vectors and threads, equal to the scalar device bit for bit.
//!
//! Start reading at `program.rs` (the loop over steps) and `steps.rs` (their tasks). `linear.rs`, `rows.rs` and
//! `attention.rs` are the kernels, written once over [`crate::simd`]; `matrix.rs`, `packing.rs` and `quants.rs` say how
//! weights lie in memory, `kv.rs` how keys and values do.

pub(crate) mod attention;
mod buffers;
mod elementary;
#[cfg(test)]
mod kernel_tests;
mod kv;
pub(crate) mod linear;
pub(crate) mod matrix;
mod packing;
mod program;
mod quants;
pub(crate) mod rows;
mod steps;

use std::sync::Arc;

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::plan::{
    BufferKind, Device, DeviceError, DeviceInfo, Encoding, Limits, PROFILE, Plan, Program, WeightSource,
};

pub use crate::isa::Isa;
use crate::scalar::{Arithmetic, ScalarDevice};

/// The fast CPU device.
#[derive(Clone, Copy, Debug)]
pub struct CpuDevice {
    isa: Isa,
    threads: usize,
}

impl CpuDevice {
    /// A device with the fastest instructions of this machine and one thread for each processor.
    pub fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { isa: Isa::best(), threads }
    }

    /// The same with this many threads, at least one.
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads: threads.max(1), ..self }
    }

    /// The same with other instructions; none if this machine does not have them.
    pub fn with_isa(self, isa: Isa) -> Option<Self> {
        isa.is_available().then_some(Self { isa, ..self })
    }
}

impl Default for CpuDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl Device for CpuDevice {
    fn info(&self) -> DeviceInfo {
        let plural = if self.threads == 1 { "" } else { "s" };
        DeviceInfo {
            id: "cpu".into(),
            name: format!("CPU, {}, {} thread{plural}", self.isa, self.threads),
            profile: PROFILE.into(),
        }
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: &dyn WeightSource,
        limits: Limits,
        progress: &dyn Fn(usize, usize),
    ) -> Result<Box<dyn Program>, DeviceError> {
        match self.isa.kernels() {
            Some(kernels) if supports(&plan) => {
                let program =
                    program::NativeProgram::load(plan, kernels, self.threads, weights, limits, progress)?;
                Ok(Box::new(program))
            }
            // Shapes and formats without kernels run on the oracle: slower, and the same bits.
            _ => ScalarDevice::new(Arithmetic::U1).load(plan, weights, limits, progress),
        }
    }
}

/// Whether the kernels can run a plan: vectors of 16 have to fit its rows and heads.
fn supports(plan: &Plan) -> bool {
    let fits = |len: u32| len.is_multiple_of(16);
    let weights = plan.weights.iter().all(|weight| match weight.encoding {
        Encoding::Block(BlockFormat::MXFP4 | BlockFormat::TQ1_0 | BlockFormat::TQ2_0) => false,
        Encoding::Block(_) | Encoding::W16(_) | Encoding::F32(_) => true,
    });
    let heads = plan
        .kv_layers
        .iter()
        .all(|layer| fits(layer.head_len) && layer.head_len as usize <= attention::MAX_HEAD_LEN);
    let buffers = plan.buffers.iter().enumerate().all(|(id, buffer)| match buffer.kind {
        // Logits are written by columns, so any vocabulary will do.
        BufferKind::F32 { width } => fits(width) || id == plan.logits.index(),
        BufferKind::A16 { width } => fits(width),
        BufferKind::Q16 { head_len, .. } => fits(head_len),
    });
    weights && heads && buffers
}
