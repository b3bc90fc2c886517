//! Every format, form and number of rows gives the bits of `core::numerics`, in the interpreter.

use unisonic_core::format::blocks::{BlockFormat, DecodedRow, decode_row};
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::kernel::Space;
use unisonic_core::kir::legal::{Caps, legalize};
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
            Self { layout, words: vec![0; layout.buffer_len() as usize], blocks: vec![], floats: vec![] };
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
        BlockFormat::TQ1_0 => &[52],
        BlockFormat::TQ2_0 => &[64],
        BlockFormat::MXFP4 => &[],
        format if format.has_minimum() => &[0, 2],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(format.len_bytes()) {
        if format == BlockFormat::MXFP4 {
            // From below the smallest exponent that counts to the largest that is allowed.
            block[0] = 96 + block[0] % 53;
        }
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
    let (mut bias, residual) = (rows(1, n, 7), rows(count, n, 8));
    // What a head may give, and what it may not.
    bias[0] = f32::from_bits(0x5F7F_FFFF);
    bias[n - 1] = f32::from_bits(0xDF80_0000);
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
    let globals = kernel.objects.iter().filter(|object| !matches!(object.space, Space::Shared { .. }));
    let found = |name: &str| {
        let at = globals.clone().position(|object| object.name == name)?;
        Some(&launch.buffers[at])
    };
    let out = floats(found("out").unwrap());
    let flags = found("flags").map(|flags| words(flags));
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

const EPILOGUES: [Epilogue; 5] = [
    Epilogue { bias: false, add: None, checks_range: false },
    Epilogue { bias: true, add: None, checks_range: true },
    Epilogue { bias: false, add: Some(Residual::Buffer), checks_range: false },
    Epilogue { bias: true, add: Some(Residual::InPlace), checks_range: false },
    Epilogue { bias: true, add: None, checks_range: false },
];
const WEIGHT_ROWS: [usize; 5] = [16, 40, 7, 33, 24];

/// Row lengths of a format: whole superblocks, rows of real models that are none, and the shortest.
fn widths(format: WeightFormat) -> &'static [usize] {
    match format {
        WeightFormat::W16 => &[256, 100, 576, 640, 896],
        WeightFormat::Block(format) if format.elems() == 32 => &[256, 96, 576, 640, 896],
        WeightFormat::Block(_) => &[256, 512, 768, 1280, 1792],
    }
}

fn split(form: Form, [warps, groups, tiles, rounds]: [u32; 4]) -> SplitK {
    SplitK { form, warps, groups, tiles, rounds, resident: 1 }
}

/// One cluster and many, barriers in between and none, more groups and tiles than there are.
const SPLITS: [[u32; 4]; 5] = [[2, 1, 1, 1], [3, 1, 2, 2], [1, 2, 1, 1], [4, 1, 4, 1], [2, 3, 2, 4]];

fn check_split(
    format: WeightFormat,
    rows: usize,
    width: usize,
    n: usize,
    epilogue: Epilogue,
    tuning: SplitK,
) {
    let (matrix, x) = (Matrix::new(format, n, width), Activations::new(rows, width));
    check(&matrix, &x, epilogue, &split_k(matrix.layout, x.layout, epilogue, tuning));
}

/// Every format with every number of rows, in a cover of the rest.
#[test]
fn few_rows_equal_the_reference() {
    for (i, format) in WeightFormat::ALL.into_iter().enumerate() {
        for (j, rows) in [1, 2, 4, 8, 16].into_iter().enumerate() {
            let tuning = split(Form::Matrix, SPLITS[(i + 3 * j) % 5]);
            let (width, n) = (widths(format)[(i + j) % 5], WEIGHT_ROWS[(i + 2 * j) % 5]);
            check_split(format, rows, width, n, EPILOGUES[(i + 4 * j) % 5], tuning);
        }
    }
}

#[test]
fn dot_products_equal_the_reference() {
    for (i, format) in WeightFormat::ALL.into_iter().enumerate() {
        for (j, rows) in [1, 2, 3].into_iter().enumerate() {
            let tuning = split(Form::Dot4, SPLITS[(i + j) % 5]);
            let (width, n) = (widths(format)[(i + 2 * j) % 5], WEIGHT_ROWS[(i + j) % 5]);
            check_split(format, rows, width, n, EPILOGUES[(i + 3 * j) % 5], tuning);
        }
    }
}

/// A row of a real model, with the tuning that is used.
#[test]
fn a_long_row_equals_the_reference() {
    let format = WeightFormat::Block(BlockFormat::Q4_K);
    let (matrix, x) = (Matrix::new(format, 16, 4864), Activations::new(3, 4864));
    let tuning = SplitK::new(matrix.layout, x.layout);
    check(&matrix, &x, EPILOGUES[3], &split_k(matrix.layout, x.layout, EPILOGUES[3], tuning));
}

fn tile([warps_of_rows, warps_of_tiles, groups, tiles, stages]: [u32; 5]) -> Tiled {
    Tiled { warps: [warps_of_rows, warps_of_tiles], groups, tiles, stages, resident: 1 }
}

const TILES: [[u32; 5]; 4] = [[2, 1, 1, 2, 2], [1, 2, 2, 1, 3], [2, 2, 1, 1, 2], [1, 1, 1, 2, 4]];

fn check_tiled(format: WeightFormat, rows: usize, width: usize, n: usize, epilogue: Epilogue, tuning: Tiled) {
    let (matrix, x) = (Matrix::new(format, n, width), Activations::new(rows, width));
    check(&matrix, &x, epilogue, &tiled(matrix.layout, x.layout, epilogue, tuning));
}

#[test]
fn many_rows_equal_the_reference() {
    for (i, format) in WeightFormat::ALL.into_iter().enumerate() {
        for (j, rows) in [3, 8, 19].into_iter().enumerate() {
            let (width, n) = (widths(format)[(i + 2 * j) % 5], WEIGHT_ROWS[(i + j) % 5]);
            let tuning = tile(TILES[(i + j) % 4]);
            check_tiled(format, rows, width, n, EPILOGUES[(i + 3 * j) % 5], tuning);
        }
    }
}

/// The tunings that are used pass the verifier, shared memory included, for shapes of real models.
#[test]
fn kernels_of_real_shapes_verify() {
    for format in WeightFormat::ALL {
        for (n, width) in [(3584, 18944), (576, 1536), (152_064, 896), (8192, 28672)] {
            let Ok(layout) = WeightLayout::new(format, n, width) else { continue };
            for rows in [1, 2, 4, 16, 64] {
                let x = ActivationLayout::new(rows, width).unwrap();
                let linear = split_k(layout, x, EPILOGUES[1], SplitK::new(layout, x));
                assert_eq!(verify(&linear.kernel), [], "{layout:?}, {rows} rows");
            }
            let x = ActivationLayout::new(512, width).unwrap();
            let tuning = Tiled::new(layout, x);
            let linear = tiled(layout, x, EPILOGUES[1], tuning);
            assert_eq!(verify(&linear.kernel), [], "{layout:?}, {tuning:?}");
        }
    }
}

/// What a device without matrix instructions, dot products, wide loads and subgroups is given has the same results.
#[test]
fn legalised_kernels_equal_the_reference() {
    let formats = [BlockFormat::Q4_K, BlockFormat::Q6_K, BlockFormat::Q5_1, BlockFormat::IQ4_NL];
    for format in formats.map(WeightFormat::Block).into_iter().chain([WeightFormat::W16]) {
        let (matrix, x) = (Matrix::new(format, 24, 512), Activations::new(3, 512));
        let (layout, x_layout, epilogue) = (matrix.layout, x.layout, EPILOGUES[1]);
        for linear in [
            split_k(layout, x_layout, epilogue, split(Form::Matrix, SPLITS[0])),
            split_k(layout, x_layout, epilogue, split(Form::Dot4, SPLITS[1])),
            tiled(layout, x_layout, epilogue, tile(TILES[0])),
        ] {
            let kernel = legalize(&linear.kernel, &Caps::NONE);
            check(&matrix, &x, epilogue, &Linear { kernel, ..linear });
        }
    }
}

/// The full product, in tier full.
#[test]
fn all_cases_equal_the_reference() {
    if std::env::var("UNISONIC_TIER").as_deref() != Ok("full") {
        return;
    }
    for format in WeightFormat::ALL {
        for (j, &width) in widths(format).iter().chain(&[4864]).enumerate() {
            for (i, rows) in [1, 2, 4, 8, 16].into_iter().enumerate() {
                for (h, n) in [16, 40].into_iter().enumerate() {
                    let epilogue = EPILOGUES[(i + j + h) % 5];
                    let tuning = split(Form::Matrix, SPLITS[(i + j) % 5]);
                    check_split(format, rows, width, n, epilogue, tuning);
                    if rows <= 4 {
                        let tuning = split(Form::Dot4, SPLITS[j % 5]);
                        check_split(format, rows, width, n, epilogue, tuning);
                    }
                    if rows >= 4 {
                        check_tiled(format, rows, width, n, epilogue, tile(TILES[(i + j) % 4]));
                    }
                }
            }
        }
    }
}
