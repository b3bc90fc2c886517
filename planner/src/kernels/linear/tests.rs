//! Every format, form and number of rows gives the bits of `core::numerics`, in the interpreter.

use unisonic_core::format::blocks::{BlockFormat, DecodedRow, decode_row};
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::verify;
use unisonic_core::numerics::a16::{A16Row, plane_len, quantize_a16, scales_len};
use unisonic_core::numerics::linear::linear_row;
use unisonic_core::numerics::range::logit_in_range;
use unisonic_core::numerics::w16::{W16Row, quantize_w16, w16_linear_row};
use unisonic_core::planes::activation::{ActivationLayout, Digits, PackedActivation};
use unisonic_core::planes::pack::GroupPacker;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};

use super::super::tests::{bytes, floats, rows, words};
use super::*;

/// A matrix as planes and as rows that the reference takes.
struct Matrix {
    layout: WeightLayout,
    words: Vec<u32>,
    blocks: Vec<DecodedRow>,
    floats: Vec<(Vec<i8>, Vec<i8>, Vec<f32>)>,
}

impl Matrix {
    fn new(format: WeightFormat, rows: usize, width: usize) -> Self {
        let layout = WeightLayout::new(format, rows, width).unwrap();
        let mut matrix =
            Self { layout, words: vec![0; layout.len() as usize], blocks: vec![], floats: vec![] };
        let groups = matrix.words.chunks_exact_mut(layout.group_len() as usize);
        let mut packer = GroupPacker::new(layout);
        if let WeightFormat::Block(format) = format {
            let bytes = random_blocks(format, rows * width / format.elems());
            for (group, rows) in groups.zip(bytes.chunks(16 * packer.row_len_bytes())) {
                packer.pack(rows, group);
            }
            for bytes in bytes.chunks(packer.row_len_bytes()) {
                let mut row = DecodedRow::new();
                decode_row(format, bytes, &mut row);
                matrix.blocks.push(row);
            }
        } else {
            for floats in super::super::tests::rows(rows, width, 5).chunks(width) {
                let (len, blocks) = (plane_len(width), width.div_ceil(32));
                let (mut high, mut low, mut scales) = (vec![0; len], vec![0; len], vec![0.0; blocks]);
                quantize_w16(floats, &mut high, &mut low, &mut scales).unwrap();
                matrix.floats.push((high, low, scales));
            }
            for (group, rows) in groups.zip(matrix.floats.chunks(16)) {
                packer.pack_w16(&rows.iter().map(w16_row).collect::<Vec<_>>(), group);
            }
        }
        matrix
    }

    fn times(&self, row: usize, x: &A16Row<'_>, bias: Option<f32>) -> f32 {
        match self.blocks.get(row) {
            Some(row) => linear_row(row, x, bias),
            None => w16_linear_row(&w16_row(&self.floats[row]), x, bias),
        }
    }
}

fn w16_row((high, low, scales): &(Vec<i8>, Vec<i8>, Vec<f32>)) -> W16Row<'_> {
    W16Row { high, low, scales }
}

/// Blocks of random bytes whose f16 fields are finite.
fn random_blocks(format: BlockFormat, count: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64 ^ format.len_bytes() as u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut bytes: Vec<u8> = (0..count * format.len_bytes()).map(|_| next()).collect();
    let halves: &[usize] = match format {
        BlockFormat::Q2_K => &[80, 82],
        BlockFormat::Q3_K => &[108],
        BlockFormat::Q6_K => &[208],
        format if format.has_minimum() => &[0, 2],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(format.len_bytes()) {
        for &at in halves {
            // A small exponent now and then: subnormal halves.
            block[at + 1] = (block[at + 1] & 0x83) | (block[at] % 24) << 2;
        }
    }
    bytes
}

/// Quantised rows.
struct Activations {
    layout: ActivationLayout,
    rows: Vec<(Vec<i8>, Vec<i8>, Vec<f32>)>,
}

impl Activations {
    fn new(count: usize, width: usize) -> Self {
        let x = rows(count, width, count as u64);
        let quantized = x.chunks(width).map(|x| {
            let (mut high, mut low) = (vec![0; plane_len(width)], vec![0; plane_len(width)]);
            let mut scales = vec![0.0; scales_len(width)];
            assert!(quantize_a16(x, &mut high, &mut low, &mut scales));
            (high, low, scales)
        });
        Self { layout: ActivationLayout::new(count, width).unwrap(), rows: quantized.collect() }
    }

    fn row(&self, row: usize) -> A16Row<'_> {
        let (high, low, scales) = &self.rows[row];
        A16Row { high, low, scales }
    }
}

fn words_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Runs a kernel on a matrix and rows and compares all that it writes with the reference.
fn check(matrix: &Matrix, x: &Activations, epilogue: Epilogue, linear: &Linear) {
    let (layout, kernel) = (matrix.layout, &linear.kernel);
    let format = layout.format();
    let what =
        format!("{format} {}x{} times {}, {epilogue:?}", layout.rows(), layout.width(), x.layout.rows());
    assert_eq!(verify(kernel), [], "{what}");
    let digits =
        if format == WeightFormat::Block(BlockFormat::Q2_K) { Digits::Sixteen } else { Digits::Eight };
    let x_rows: Vec<A16Row<'_>> = (0..x.rows.len()).map(|row| x.row(row)).collect();
    let packed = PackedActivation::pack(x.layout, digits, &x_rows);
    let (n, count) = (layout.rows() as usize, x.rows.len());
    let (bias, residual) = (rows(1, n, 7), rows(count, n, 8));
    let signed = |words: &[[i8; 4]]| words.as_flattened().iter().map(|&byte| byte as u8).collect::<Vec<_>>();
    let flags_len = count * layout.groups() as usize * 2;
    let buffers = kernel.objects.iter().filter_map(|object| {
        Some(match &object.name[..] {
            "weights" => words_bytes(&matrix.words),
            "x_planes" => signed(&packed.planes),
            "x_scales" => bytes(&packed.scales),
            "x_digits" => signed(&packed.digits),
            "x_sums" => bytes(&packed.sums),
            "bias" => bytes(&bias),
            "add" => bytes(&residual),
            "out" if epilogue.add == Some(Residual::InPlace) => bytes(&residual),
            "out" => vec![0xEE; 4 * n * count],
            "flags" => vec![0xEE; 4 * flags_len],
            _ => return None,
        })
    });
    let buffers = buffers.collect();
    let mut launch = Launch { groups: linear.workgroups, params: vec![], buffers, fuel: u64::MAX };
    run(kernel, &mut launch).unwrap_or_else(|trap| panic!("{what}: {trap}"));
    let names =
        kernel.objects.iter().filter(|object| object.space.is_readable() || object.space.is_writable());
    let found = |name: &str| {
        let global = names
            .clone()
            .filter(|object| !matches!(object.space, unisonic_core::kir::kernel::Space::Shared { .. }));
        global.clone().position(|object| object.name == name).map(|at| launch.buffers[at].clone())
    };
    let out = floats(&found("out").unwrap());
    let flags = found("flags").map(|flags| words(&flags));
    let mut expected_flags = vec![0; flags_len];
    for row in 0..count {
        for weight_row in 0..n {
            let y = matrix.times(weight_row, &x_rows[row], epilogue.bias.then(|| bias[weight_row]));
            if !logit_in_range(y) {
                expected_flags[row * layout.groups() as usize * 2 + weight_row / 8] = 1;
            }
            let at = row * n + weight_row;
            let expected = if epilogue.add.is_some() { residual[at] + y } else { y };
            assert_eq!(out[at].to_bits(), expected.to_bits(), "{what}: row {row}, weight row {weight_row}");
        }
    }
    if let Some(flags) = flags {
        assert_eq!(flags, expected_flags, "{what}");
    }
}

#[test]
fn first() {
    for format in WeightFormat::ALL {
        for form in [Form::Matrix, Form::Dot4] {
            let matrix = Matrix::new(format, 24, 512);
            let x = Activations::new(2, 512);
            let tuning = SplitK { form, warps: 2, groups: 1, tiles: 1, rounds: 1 };
            let linear = split_k(matrix.layout, x.layout, Epilogue::default(), tuning);
            check(&matrix, &x, Epilogue::default(), &linear);
        }
    }
}
