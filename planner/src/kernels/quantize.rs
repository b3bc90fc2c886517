//! Kernels over superblocks of rows: A16, and gates with it.

use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::plan::Activation;

use super::GridKernel;
use super::a16::{A16Form, A16Out, Place, SUPERBLOCK, four, store_four};
use super::elementary::{gate as gate_of, gelu as gelu_of};
use super::reduce::CLUSTER;

/// Workgroups over superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SuperblockShape {
    /// Clusters of 32 invocations, each with a superblock.
    pub clusters: u32,
}

impl Default for SuperblockShape {
    fn default() -> Self {
        Self { clusters: 4 }
    }
}

/// A16 of rows (`core::numerics::a16::quantize_a16`).
///
/// Buffers: `x`, rows of `form.width` f32; the regions of the form ([`A16Form`]); `flags`, a word a superblock.
/// Reads 4 bytes an element and writes about 2.
pub fn quantize_a16(form: A16Form, shape: SuperblockShape) -> GridKernel {
    superblocks("quantize_a16", form.width, shape, |k| {
        let x = k.read("x", Scalar::F32);
        let to = A16Out::declare(k, form);
        let flags = k.write("flags", Scalar::U32);
        Box::new(move |at| {
            let values = at.columns().map(|column| {
                four(k, form.width, column, |column, len| x.load_vector(at.row * form.width + column, len))
            });
            let in_range = to.store(at, values);
            k.when(at.exists & at.lane.eq(k.u32(0)), || {
                flags.store(at.row * form.superblocks() + at.s, in_range.select(k.u32(0), k.u32(1)));
            });
        })
    })
    .with_flags(form.superblocks())
}

/// Results of a kernel over superblocks. At least one of them is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outputs {
    /// Whether rows of f32 are written.
    pub f32: bool,
    /// A16 of the same rows.
    pub a16: Option<A16Form>,
}

/// A gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gate {
    /// Function.
    pub activation: Activation,
    /// Values of a row.
    pub width: u32,
    /// Values from a row of `up` to the next, of which a part is taken if there are more.
    pub up_width: u32,
    /// Where the result goes.
    pub outputs: Outputs,
}

/// `act(gate)*up` (`core::numerics::activation`), to f32, to A16 or to both.
///
/// Buffers: `gate`, rows of `width` f32; `up`, rows of `up_width`; `out`, rows of f32, if asked; the regions of the form and
/// `flags`, a word a superblock, if asked. Parameter, if rows of `up` are longer: `first_of_up`, the column at which the part
/// begins, a multiple of the width. Reads 8 bytes an element, writes 4 and about 2; about 60 operations.
pub fn gate(gate: Gate, shape: SuperblockShape) -> GridKernel {
    let Gate { activation, width, up_width, outputs } = gate;
    let template = superblocks("gate", width, shape, |k| {
        let (gate, up) = (k.read("gate", Scalar::F32), k.read("up", Scalar::F32));
        let part = (up_width > width).then(|| k.param("first_of_up", Scalar::U32));
        let results = Results::declare(k, width, outputs);
        Box::new(move |at| {
            let values = at.columns().map(|column| {
                let first = at.row * width;
                let first_up = part.map_or(first, |part| at.row * up_width + part);
                let gate = four(k, width, column, |column, len| gate.load_vector(first + column, len));
                let up = four(k, width, column, |column, len| up.load_vector(first_up + column, len));
                gate_of(k, activation, gate, up)
            });
            results.store(at, values, k.constant(Scalar::Bool.into(), 1));
        })
    });
    match outputs.a16 {
        Some(form) => template.with_flags(form.superblocks()),
        None => template,
    }
}

/// GELU without a gate (`core::numerics::activation::gelu`), to f32, to A16 or to both.
///
/// Buffers: `x`, rows of `width` f32; the others as for [`gate`]. Reads 4 bytes an element, writes 4 and about 2; about 60
/// operations.
pub fn gelu(width: u32, outputs: Outputs, shape: SuperblockShape) -> GridKernel {
    let template = superblocks("gelu", width, shape, |k| {
        let x = k.read("x", Scalar::F32);
        let results = Results::declare(k, width, outputs);
        Box::new(move |at| {
            let values = at.columns().map(|column| {
                let x = four(k, width, column, |column, len| x.load_vector(at.row * width + column, len));
                gelu_of(k, x)
            });
            results.store(at, values, k.constant(Scalar::Bool.into(), 1));
        })
    });
    match outputs.a16 {
        Some(form) => template.with_flags(form.superblocks()),
        None => template,
    }
}

/// The objects of [`Outputs`].
pub struct Results<'k> {
    k: &'k Build,
    width: u32,
    out: Option<Mem<'k>>,
    a16: Option<(A16Out<'k>, Mem<'k>)>,
}

impl<'k> Results<'k> {
    /// Declares `out`, then the regions of A16 and `flags`.
    pub fn declare(k: &'k Build, width: u32, outputs: Outputs) -> Self {
        let out = outputs.f32.then(|| k.write("out", Scalar::F32));
        let a16 = outputs.a16.map(|form| (A16Out::declare(k, form), k.write("flags", Scalar::U32)));
        Self { k, width, out, a16 }
    }

    /// Stores a superblock; its flag says whether the row, of which `in_range` tells, and the superblock are in
    /// range.
    pub fn store(&self, at: Place<'k>, values: [V<'k>; 2], in_range: V<'k>) {
        let (k, width) = (self.k, self.width);
        if let Some(out) = self.out {
            for (column, four) in at.columns().into_iter().zip(values) {
                store_four(k, out, at.row * width, width, column, four);
            }
        }
        if let Some((to, flags)) = &self.a16 {
            let in_range = to.store(at, values) & in_range;
            k.when(at.exists & at.lane.eq(k.u32(0)), || {
                let index = at.row * width.div_ceil(SUPERBLOCK) + at.s;
                flags.store(index, in_range.select(k.u32(0), k.u32(1)));
            });
        }
    }
}

/// What a cluster does with a superblock.
type Body<'k> = Box<dyn FnOnce(Place<'k>) + 'k>;

/// A kernel whose clusters have a superblock of a row each.
fn superblocks(
    name: &str,
    width: u32,
    shape: SuperblockShape,
    body: impl for<'k> FnOnce(&'k Build) -> Body<'k>,
) -> GridKernel {
    let workgroups_a_row = width.div_ceil(SUPERBLOCK * shape.clusters);
    let kernel: Kernel = kernel(name, shape.clusters * CLUSTER, |k| {
        let body = body(k);
        let (group, cluster) = (k.group_id(), k.local_id() / CLUSTER);
        let s = (group % workgroups_a_row) * shape.clusters + cluster;
        body(Place::new(k, group / workgroups_a_row, s, width));
    });
    GridKernel::rows(kernel, workgroups_a_row)
}
