//! Kernels over superblocks of rows: A16, and gates with it.

use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::plan::Activation;

use super::RowKernel;
use super::a16::{A16Form, A16Out, Place, SUPERBLOCK, four, store_four};
use super::elementary::gate as gate_of;
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
/// Buffers: `x`, rows of `form.width` f32; the regions of the form ([`A16Form`]); `flags`, a word a superblock. Reads 4 bytes an
/// element and writes about 2.
pub fn quantize_a16(form: A16Form, shape: SuperblockShape) -> RowKernel {
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

/// `act(gate)*up` (`core::numerics::activation`), to f32, to A16 or to both.
///
/// Buffers: `gate` and `up`, rows of `width` f32; `out`, rows of f32, if asked; the regions of the form and `flags`, a word a
/// superblock, if asked. Reads 8 bytes an element, writes 4 and about 2; about 60 operations.
pub fn gate(activation: Activation, width: u32, outputs: Outputs, shape: SuperblockShape) -> RowKernel {
    let template = superblocks("gate", width, shape, |k| {
        let (gate, up) = (k.read("gate", Scalar::F32), k.read("up", Scalar::F32));
        let results = Results::declare(k, width, outputs);
        Box::new(move |at| {
            let values = at.columns().map(|column| {
                let first = at.row * width;
                let gate = four(k, width, column, |column, len| gate.load_vector(first + column, len));
                let up = four(k, width, column, |column, len| up.load_vector(first + column, len));
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

    /// Stores a superblock; its flag says whether the row, of which `in_range` tells, and the superblock are in range.
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
) -> RowKernel {
    let groups_a_row = width.div_ceil(SUPERBLOCK * shape.clusters);
    let kernel: Kernel = kernel(name, shape.clusters * CLUSTER, |k| {
        let body = body(k);
        let (group, cluster) = (k.group_id(), k.local_id() / CLUSTER);
        let s = (group % groups_a_row) * shape.clusters + cluster;
        body(Place::new(k, group / groups_a_row, s, width));
    });
    RowKernel { kernel, groups_a_row, flags_a_row: 0 }
}

#[cfg(test)]
pub mod tests {
    use std::collections::HashSet;

    use unisonic_core::numerics::a16::{A16Row, plane_len, scales_len};
    use unisonic_core::numerics::{a16, activation};
    use unisonic_core::plan::Activation;
    use unisonic_core::planes::activation::{ActivationLayout, Digits, PackedActivation};

    use super::super::tests::{bits, bytes, floats, launch, rows, words};
    use super::{A16Form, Outputs, SuperblockShape};

    /// Bytes that nobody wrote.
    const POISON: u8 = 0xEE;

    fn layout(form: A16Form, rows: usize) -> ActivationLayout {
        let layout = ActivationLayout::new(rows, form.width as usize).unwrap();
        assert_eq!(layout.tile_rows(), form.tile_rows);
        layout
    }

    /// The form of a buffer of some rows.
    pub fn form(rows: usize, width: usize, digits: Option<Digits>, sums: bool) -> A16Form {
        let tile_rows = ActivationLayout::new(rows, width).unwrap().tile_rows();
        A16Form { width: width as u32, tile_rows, digits, sums }
    }

    /// Buffers of the regions of a form, poisoned.
    pub fn regions(form: A16Form, rows: usize) -> Vec<Vec<u8>> {
        let layout = layout(form, rows);
        let mut lens = vec![layout.planes_len(), layout.scales_len()];
        lens.extend(form.digits.map(|_| layout.digits_len()));
        lens.extend(form.sums.then(|| layout.sums_len()));
        lens.into_iter().map(|len| vec![POISON; 4 * len as usize]).collect()
    }

    /// The places of each region that belong to a row.
    fn written(form: A16Form, layout: ActivationLayout) -> Vec<HashSet<u32>> {
        let superblocks = layout.superblocks();
        let each = |parts: u32, index: &dyn Fn(u32, u32, u32) -> u32| -> HashSet<u32> {
            let of_row = |row| (0..superblocks).flat_map(move |s| (0..parts).map(move |part| (row, s, part)));
            (0..layout.rows()).flat_map(of_row).map(|(row, s, part)| index(row, s, part)).collect()
        };
        let mut all = vec![
            each(128, &|row, s, part| layout.word_index(row, part % 2, 64 * s + part / 2)),
            each(1, &|row, s, _| layout.scale_index(row, s)),
        ];
        let digits = || each(16, &|row, s, part| layout.digit_index(row, s, part % 2, part / 2));
        all.extend(form.digits.map(|_| digits()));
        all.extend(form.sums.then(|| each(8, &|row, s, b| layout.sum_index(row, s, b))));
        all
    }

    /// Compares regions with the reference's A16 of some rows; returns which superblocks are in range.
    pub fn check_regions(form: A16Form, found: &[Vec<u8>], x: &[f32], what: &str) -> Vec<bool> {
        let width = form.width as usize;
        let layout = layout(form, x.len() / width);
        let mut in_range = vec![];
        let quantized: Vec<(Vec<i8>, Vec<i8>, Vec<f32>)> = x
            .chunks(width)
            .map(|x| {
                let (mut h, mut l) = (vec![0; plane_len(width)], vec![0; plane_len(width)]);
                let mut scales = vec![0.0; scales_len(width)];
                for (s, x) in x.chunks(256).enumerate() {
                    let at = 256 * s..(256 * (s + 1)).min(h.len());
                    let (h, l) = (&mut h[at.clone()], &mut l[at]);
                    in_range.push(a16::quantize_a16(x, h, l, &mut scales[s..=s]));
                }
                (h, l, scales)
            })
            .collect();
        let rows: Vec<A16Row<'_>> =
            quantized.iter().map(|(high, low, scales)| A16Row { high, low, scales }).collect();
        let expected = PackedActivation::pack(layout, form.digits.unwrap_or(Digits::Eight), &rows);
        let word_of = |bytes: &[i8; 4]| u32::from_le_bytes(bytes.map(|byte| byte as u8));
        let of_bytes = |words: &[[i8; 4]]| words.iter().map(word_of).collect::<Vec<_>>();
        let mut regions = vec![of_bytes(&expected.planes), bits(&expected.scales)];
        regions.extend(form.digits.map(|_| of_bytes(&expected.digits)));
        regions.extend(form.sums.then(|| bits(&expected.sums)));
        for (region, (found, (mut expected, written))) in
            (0..).zip(found.iter().zip(regions.into_iter().zip(written(form, layout))))
        {
            // Places of rows that do not exist keep their poison.
            let all = 0..expected.len();
            all.filter(|at| !written.contains(&(*at as u32)))
                .for_each(|at| expected[at] = u32::from_le_bytes([POISON; 4]));
            let found = words(found);
            assert_eq!(found.len(), expected.len(), "{what}, region {region}");
            let wrong = (0..found.len()).find(|&at| found[at] != expected[at]);
            assert_eq!(wrong, None, "{what}, region {region}");
        }
        in_range
    }

    /// Rows that are hard: zeros, small values, a superblock out of range.
    pub fn hard_rows(count: usize, width: usize, seed: u64) -> Vec<f32> {
        let mut x = rows(count, width, seed);
        for (number, row) in x.chunks_mut(width).enumerate() {
            match number % 5 {
                1 => row.fill(-0.0),
                2 => row.iter_mut().for_each(|x| *x *= f32::from_bits(0x2980_0000)),
                3 => row[width - 1] = f32::from_bits(0x5F80_0000),
                _ => {}
            }
        }
        x
    }

    const CASES: [(usize, usize, Option<Digits>, bool); 7] = [
        (1, 16, None, false),
        (5, 48, Some(Digits::Eight), true),
        (2, 30, None, true),
        (5, 256, Some(Digits::Sixteen), false),
        (3, 576, Some(Digits::Eight), false),
        (9, 640, Some(Digits::Sixteen), true),
        (4, 1280, None, false),
    ];

    #[test]
    fn quantize_equals_the_reference() {
        for (count, width, digits, sums) in CASES {
            let form = form(count, width, digits, sums);
            let x = hard_rows(count, width, 3);
            for clusters in [1, 4] {
                let template = super::quantize_a16(form, SuperblockShape { clusters });
                let mut buffers = vec![bytes(&x)];
                buffers.extend(regions(form, count));
                buffers.push(vec![POISON; 4 * count * template.flags_a_row as usize]);
                let found = launch(&template, count, buffers);
                let what = format!("{count} rows of {width}");
                let in_range = check_regions(form, &found[1..], &x, &what);
                let flags: Vec<u32> = in_range.iter().map(|&fits| u32::from(!fits)).collect();
                assert_eq!(words(&found[found.len() - 1]), flags, "{what}");
            }
        }
    }

    #[test]
    fn gate_equals_the_reference() {
        for (number, (count, width, digits, sums)) in CASES.into_iter().enumerate() {
            let form = form(count, width, digits, sums);
            let (gate, mut up) = (rows(count, width, 1), rows(count, width, 2));
            up[count * width - 1] = f32::from_bits(0x5F80_0000);
            let activation = [Activation::Silu, Activation::Gelu][number % 2];
            let gated: Vec<f32> = gate
                .iter()
                .zip(&up)
                .map(|(&g, &u)| match activation {
                    Activation::Silu => activation::swiglu(g, u),
                    Activation::Gelu => activation::gelu_gate(g, u),
                })
                .collect();
            for (f32, a16) in [(true, None), (false, Some(form)), (true, Some(form))] {
                let outputs = Outputs { f32, a16 };
                let template = super::gate(activation, width as u32, outputs, SuperblockShape::default());
                let mut buffers = vec![bytes(&gate), bytes(&up)];
                buffers.extend(f32.then(|| vec![POISON; 4 * gated.len()]));
                if let Some(form) = a16 {
                    buffers.extend(regions(form, count));
                    buffers.push(vec![POISON; 4 * count * template.flags_a_row as usize]);
                }
                let found = launch(&template, count, buffers);
                let what = format!("{activation:?}, {count} rows of {width}");
                if f32 {
                    assert_eq!(bits(&floats(&found[2])), bits(&gated), "{what}");
                }
                if let Some(form) = a16 {
                    let in_range = check_regions(form, &found[2 + usize::from(f32)..], &gated, &what);
                    let flags: Vec<u32> = in_range.iter().map(|&fits| u32::from(!fits)).collect();
                    assert_eq!(words(&found[found.len() - 1]), flags, "{what}");
                }
            }
        }
    }
}
