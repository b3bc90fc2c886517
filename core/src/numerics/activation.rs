//! Gates and the soft cap, element by element (docs/numerics.md "Norms and elementwise").

use super::elementary::sigmoid;
use super::float::{clamp, reciprocal_constant, snap};

/// `f32(2*sqrt(2/pi))`.
pub const GELU_C1: f32 = f32::from_bits(0x3FCC_422A);
/// `f32(2*sqrt(2/pi)*0.044715)`.
pub const GELU_C2: f32 = f32::from_bits(0x3D92_2279);

/// SwiGLU: `snap((g*sigmoid(g))*u)`.
pub fn swiglu(gate: f32, up: f32) -> f32 {
    snap((gate * sigmoid(gate)) * up)
}

/// Gated GELU, tanh form: `snap((g*sigmoid(k*(C1 + (k*k)*C2)))*u)`, k = g clamped to ±64.
pub fn gelu_gate(gate: f32, up: f32) -> f32 {
    snap(gelu_unsnapped(gate) * up)
}

/// GELU without a gate, tanh form: `snap(g*sigmoid(k*(C1 + (k*k)*C2)))`, k = g clamped to ±64.
pub fn gelu(x: f32) -> f32 {
    snap(gelu_unsnapped(x))
}

fn gelu_unsnapped(x: f32) -> f32 {
    let k = clamp(x, -64.0, 64.0);
    x * sigmoid(k * (GELU_C1 + (k * k) * GELU_C2))
}

/// `snap(x*s)`: a row times a scalar of the model.
pub fn scaled(x: f32, s: f32) -> f32 {
    snap(x * s)
}

/// Soft cap, `c*tanh(x/c)`: `u = x*f32(1/c); y = c*(2*sigmoid(2*u) - 1)`. Not snapped.
pub fn soft_cap(x: f32, cap: f32) -> f32 {
    let u = x * reciprocal_constant(cap);
    cap * (2.0 * sigmoid(2.0 * u) - 1.0)
}
