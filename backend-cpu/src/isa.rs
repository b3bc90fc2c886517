//! Which instructions this processor and system have, and the kernels compiled for each.
//!
//! The processor and the operating system are both asked (`is_x86_feature_detected!` checks that wide registers are
//! saved). Every set of instructions gives the same bits; the choice is speed and nothing else.

use std::fmt;

use unisonic_core::plan::{Activation, RopeStyle};

use crate::native::attention::{self, Keys, Query, Scores};
use crate::native::heads;
use crate::native::linear::{self, Activations};
use crate::native::matrix::Packing;
use crate::native::rows::{self, A16Mut};
use crate::simd;

/// A set of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// AVX-512 F, BW, VL, DQ, VNNI.
    Avx512Vnni,
    /// AVX2, F16C.
    Avx2,
    /// aarch64 NEON.
    Neon,
    /// The build's baseline.
    Portable,
}

impl Isa {
    /// All, fastest first.
    pub const ALL: [Isa; 4] = [Isa::Avx512Vnni, Isa::Avx2, Isa::Neon, Isa::Portable];

    /// Whether this machine runs it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => true,
            #[allow(unreachable_patterns, reason = "which arms are left depends on the processor")]
            _ => false,
        }
    }

    /// The fastest that this machine runs.
    pub fn best() -> Self {
        Self::ALL.into_iter().find(|isa| isa.is_available()).unwrap_or(Isa::Portable)
    }

    /// The kernels, if this machine runs them.
    pub fn kernels(self) -> Option<&'static Kernels> {
        if !self.is_available() {
            return None;
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => Some(&avx512::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Some(&avx2::KERNELS),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => Some(&neon::KERNELS),
            Isa::Portable => Some(&portable::KERNELS),
            #[allow(unreachable_patterns, reason = "which arms are left depends on the processor")]
            _ => None,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Avx512Vnni => "AVX-512 VNNI",
            Isa::Avx2 => "AVX2",
            Isa::Neon => "NEON",
            Isa::Portable => "portable",
        })
    }
}

/// The kernels of one set of instructions. Each function has the contract of the generic one of its name; calling it
/// needs a machine with the instructions, which [`Isa::kernels`] has checked.
#[allow(missing_docs, clippy::type_complexity, reason = "documented at the generic functions")]
pub struct Kernels {
    pub panel: unsafe fn(Packing, *const u8, usize, Activations, usize, *mut f32),
    pub finish_linear: unsafe fn(*const f32, *const f32, *const f32, *mut f32) -> bool,
    pub rms_norm: unsafe fn(&[f32], &[f32], f32, Option<&[f32]>, &mut [f32]) -> bool,
    pub layer_norm: unsafe fn(&[f32], &[f32], &[f32], f32, &mut [f32]) -> bool,
    pub router_dot: unsafe fn(&[f32], &[f32]) -> f32,
    pub add_expert: unsafe fn(&mut [f32], f32, &[f32]),
    pub quantize_a16: unsafe fn(&[f32], f32, &mut A16Mut<'_>) -> bool,
    pub quantize_16: unsafe fn(&[f32], f32, *mut i8, *mut i8, &mut f32) -> bool,
    pub rotate: unsafe fn(RopeStyle, &mut [f32], &[f32], &[f32]),
    pub quantize_value_8: unsafe fn(&mut [f32], *mut i8, &mut f32) -> bool,
    pub gate: unsafe fn(Activation, &[f32], &[f32], &mut [f32]),
    pub gelus: unsafe fn(&[f32], &mut [f32]),
    pub soft_caps: unsafe fn(&[f32], f32, &mut [f32]),
    pub attend: unsafe fn(&Query<'_>, Scores, &Keys<'_>, &mut [f32]),
}

macro_rules! kernels {
    ($module:ident, $simd:ty $(, $feature:literal)?) => {
        mod $module {
            use super::*;

            pub static KERNELS: Kernels = Kernels {
                panel,
                finish_linear,
                rms_norm,
                layer_norm,
                router_dot,
                add_expert,
                quantize_a16,
                quantize_16,
                rotate,
                quantize_value_8,
                gate,
                gelus,
                soft_caps,
                attend,
            };

            $(#[target_feature(enable = $feature)])?
            unsafe fn panel(p: Packing, panel: *const u8, tiles: usize, x: Activations, rows: usize, out: *mut f32) {
                // SAFETY: the caller's promise, and the instructions are enabled here.
                unsafe { linear::panel::<$simd>(p, panel, tiles, x, rows, out) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn finish_linear(acc: *const f32, bias: *const f32, add: *const f32, y: *mut f32) -> bool {
                // SAFETY: as above.
                unsafe { rows::finish_linear::<$simd>(acc, bias, add, y) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn rms_norm(x: &[f32], weight: &[f32], eps: f32, add: Option<&[f32]>, y: &mut [f32]) -> bool {
                // SAFETY: as above.
                unsafe { rows::rms_norm::<$simd>(x, weight, eps, add, y) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) -> bool {
                // SAFETY: as above.
                unsafe { rows::layer_norm::<$simd>(x, weight, bias, eps, y) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn router_dot(x: &[f32], weight: &[f32]) -> f32 {
                // SAFETY: as above.
                unsafe { rows::router_dot::<$simd>(x, weight) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn add_expert(y: &mut [f32], weight: f32, output: &[f32]) {
                // SAFETY: as above.
                unsafe { rows::add_expert::<$simd>(y, weight, output) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn quantize_a16(x: &[f32], limit: f32, to: &mut A16Mut<'_>) -> bool {
                // SAFETY: as above.
                unsafe { rows::quantize_a16::<$simd>(x, limit, to) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn quantize_16(x: &[f32], limit: f32, high: *mut i8, low: *mut i8, scale: &mut f32) -> bool {
                // SAFETY: as above.
                unsafe { rows::quantize_16::<$simd>(x, limit, high, low, scale) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn rotate(style: RopeStyle, head: &mut [f32], cosines: &[f32], sines: &[f32]) {
                // SAFETY: as above.
                unsafe { heads::rotate::<$simd>(style, head, cosines, sines) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn quantize_value_8(value: &mut [f32], plane: *mut i8, scale: &mut f32) -> bool {
                // SAFETY: as above.
                unsafe { heads::quantize_value_8::<$simd>(value, plane, scale) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn gate(function: Activation, gate: &[f32], up: &[f32], y: &mut [f32]) {
                // SAFETY: as above.
                unsafe { rows::gate::<$simd>(function, gate, up, y) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn gelus(x: &[f32], y: &mut [f32]) {
                // SAFETY: as above.
                unsafe { rows::gelus::<$simd>(x, y) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn soft_caps(x: &[f32], cap: f32, y: &mut [f32]) {
                // SAFETY: as above.
                unsafe { rows::soft_caps::<$simd>(x, cap, y) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn attend(query: &Query<'_>, scores: Scores, keys: &Keys<'_>, out: &mut [f32]) {
                // SAFETY: as above.
                unsafe { attention::attend::<$simd>(query, scores, keys, out) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(avx512, simd::Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,f16c");
#[cfg(target_arch = "x86_64")]
kernels!(avx2, simd::Avx2, "avx2,f16c");
#[cfg(target_arch = "aarch64")]
kernels!(neon, simd::Neon);
kernels!(portable, simd::Portable);
