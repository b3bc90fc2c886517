//! The fast CPU device: the steps of a plan on vectors and threads, equal to the scalar device bit for bit.
//!
//! Start reading at `program.rs` (the loop over steps), `steps.rs` and `head_steps.rs` (their tasks). `linear.rs`,
//! `rows.rs`, `heads.rs` and `attention.rs` are the kernels, written once over `simd`; `matrix.rs`, `packing.rs` and
//! `quants.rs` say how weights lie in memory, `loading.rs` how they get there, `kv.rs` how keys and values lie.

pub(crate) mod attention;
mod buffers;
mod elementary;
mod experts;
mod head_steps;
pub(crate) mod heads;
#[cfg(test)]
mod kernel_tests;
mod kv;
pub(crate) mod linear;
mod loading;
pub(crate) mod matrix;
mod packing;
mod program;
mod quants;
pub(crate) mod rows;
mod steps;

use std::sync::Arc;

use unisonic_core::plan::{
    BufferId, BufferKind, Device, DeviceError, DeviceInfo, Limits, Op, PROFILE, Plan, Program, Progress,
    WeightSource,
};

pub use crate::isa::Isa;
use crate::scalar::{Arithmetic, ScalarDevice};
use crate::simd::LANES;

/// Most threads of a device: more than any processor has, and fewer than a system lets a process start.
pub const MAX_THREADS: usize = 1024;

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
        Self { isa: Isa::best(), threads: threads.min(MAX_THREADS) }
    }

    /// The same with this many threads, 1 to [`MAX_THREADS`].
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads: threads.clamp(1, MAX_THREADS), ..self }
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
            threads: u32::try_from(self.threads).ok(),
        }
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: &dyn WeightSource,
        limits: Limits,
        progress: &Progress<'_>,
    ) -> Result<Box<dyn Program>, DeviceError> {
        plan.check()?;
        let unfit = unfit(&plan);
        match (self.isa.kernels(), unfit) {
            (Some(kernels), None) => {
                let info = self.info();
                let program = program::NativeProgram::load(
                    plan,
                    info,
                    kernels,
                    self.threads,
                    weights,
                    limits,
                    progress,
                )?;
                Ok(Box::new(program))
            }
            // Shapes without kernels run on the oracle: slower, and the same bits.
            (_, unfit) => {
                let why = unfit.unwrap_or_else(|| format!("this machine has no {}", self.isa));
                ScalarDevice::new(Arithmetic::U1)
                    .instead_of(self.info(), &why)
                    .load(plan, weights, limits, progress)
            }
        }
    }
}

/// The routes that a step makes or reads.
fn routes_of(op: &Op) -> Option<BufferId> {
    match *op {
        Op::Route { out: routes, .. } | Op::ExpertLinear { routes, .. } | Op::SumExperts { routes, .. } => {
            Some(routes)
        }
        _ => None,
    }
}

/// Whether all that touches a buffer are results of linear layers, which are written by columns, and soft caps, whose
/// kernel takes rows of any length: logits.
fn takes_any_width(plan: &Plan, buffer: BufferId) -> bool {
    plan.steps.iter().all(|step| match step.op {
        Op::Linear { x, out, .. } if out == buffer => x != buffer,
        Op::SoftCap { .. } => true,
        ref op => {
            op.result() != Some(buffer) && op.quantized() != Some(buffer) && !op.operands().contains(&buffer)
        }
    })
}

/// Why the kernels cannot run a plan, if they cannot: vectors of 16 have to fit its rows and heads.
fn unfit(plan: &Plan) -> Option<String> {
    let fits = |len: u32| len.is_multiple_of(LANES as u32);
    let head_fits = |len: u32| fits(len) && len as usize <= attention::MAX_HEAD_LEN;
    let normed = plan.steps.iter().filter_map(|step| match step.op {
        Op::HeadNorm { head_len, .. } => Some(head_len),
        _ => None,
    });
    let mut heads = plan.kv_layers.iter().map(|layer| layer.head_len).chain(normed);
    let heads = heads.find(|&head_len| !head_fits(head_len)).map(|head_len| {
        let longest = attention::MAX_HEAD_LEN;
        format!("heads of {head_len} values, but kernels take multiples of 16 up to {longest}")
    });
    let routes: Vec<BufferId> = plan.steps.iter().filter_map(|step| routes_of(&step.op)).collect();
    let rows = (0..).map(BufferId).zip(&plan.buffers).find_map(|(id, buffer)| match buffer.kind {
        // Logits are written by columns, so any vocabulary will do; routes are no rows for kernels.
        BufferKind::F32 { .. } if takes_any_width(plan, id) || routes.contains(&id) => None,
        BufferKind::F32 { width } | BufferKind::A16 { width } if !fits(width) => {
            Some(format!("rows of {width} values, but kernels take multiples of 16"))
        }
        BufferKind::F32 { .. } | BufferKind::A16 { .. } | BufferKind::Q16 { .. } => None,
    });
    heads.or(rows)
}
