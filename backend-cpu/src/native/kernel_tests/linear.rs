//! Linear layers and embedding rows.

use unisonic_core::format::blocks::{
    BlockFormat, DecodedRow, ScaleLayout, check_row, decode_row, expand_floats,
};
use unisonic_core::numerics::a16::{A16Row, plane_len, quantize_a16, scales_len};
use unisonic_core::numerics::embedding::{embed_row, embed_w16_row};
use unisonic_core::numerics::linear::linear_row;
use unisonic_core::numerics::range::logit_in_range;
use unisonic_core::numerics::w16::w16_linear_row;
use unisonic_core::plan::{
    Encoding, FloatSource, LoadedWeight, MemoryWeights, W16Matrix, Weight, load_weight,
};

use super::json::{assert_bits, bytes, float, floats, list, load, text};
use super::{Quantized, Random, assert_same, each_isa};
use crate::isa::{Isa, Kernels};
use crate::native::matrix::PackedMatrix;
use crate::native::packing::pack_rows;
use crate::simd::LANES;

/// A matrix as a file holds it and as kernels do.
struct Matrix {
    encoding: Encoding,
    bytes: Vec<u8>,
    loaded: LoadedWeight,
    packed: PackedMatrix,
}

impl Matrix {
    fn new(encoding: Encoding, rows: usize, cols: usize, bytes: Vec<u8>) -> Self {
        let weight =
            Weight { tensor: "w".into(), encoding, rows: rows as u32, cols: cols as u32, part: None };
        let source = MemoryWeights([("w".to_owned(), bytes.clone())].into());
        let loaded = load_weight(&source, &weight).unwrap();
        let mut packed = PackedMatrix::allocate(&weight).unwrap().expect("the format has a packing");
        pack_rows(packed.packing, rows, packed.tiles, &loaded, packed.panels_mut());
        Self { encoding, bytes, loaded, packed }
    }

    fn embeddings(&self, cols: usize) -> Vec<Vec<f32>> {
        let row = |row| {
            let mut out = vec![f32::NAN; cols];
            self.packed.embed(row, &mut out);
            out
        };
        (0..self.packed.rows).map(row).collect()
    }

    /// `[row of x][row of the matrix]`, with the kernels of a program.
    fn multiply(&self, kernels: &Kernels, x: &Quantized, bias: &[f32], add: &[f32]) -> Vec<Vec<f32>> {
        let count = x.in_range.len();
        let panels = self.packed.panels();
        let mut y = vec![vec![f32::NAN; panels * LANES]; count];
        let mut acc = vec![f32::NAN; count * LANES];
        let pad = |x: &[f32]| [x, &[0.0; LANES]].concat();
        let (bias, add) = (pad(bias), pad(add));
        for panel in 0..panels {
            let first = panel * LANES;
            let or_null = |x: &[f32]| if x.len() == LANES { std::ptr::null() } else { x[first..].as_ptr() };
            acc.fill(f32::NAN);
            // SAFETY: `Isa::kernels` has asked for the instructions; the panel is one of this packing, x has as many
            // tiles, and operands have 16 values for each panel or are absent.
            unsafe {
                let (from, to) = (self.packed.panel(panel).as_ptr(), acc.as_mut_ptr());
                (kernels.panel)(self.packed.packing, from, self.packed.tiles, x.activations(), count, to);
                for (acc, y) in acc.chunks_exact(LANES).zip(&mut y) {
                    let y = &mut y[first..first + LANES];
                    let in_range =
                        (kernels.finish_linear)(acc.as_ptr(), or_null(&bias), or_null(&add), y.as_mut_ptr());
                    if add.len() == LANES {
                        assert_eq!(in_range, y.iter().all(|&y| logit_in_range(y)));
                    }
                }
            }
        }
        for y in &mut y {
            y.truncate(self.packed.rows);
        }
        y
    }
}

/// Every case of a file as one matrix, whose activation row stands in the batch five times: in a tile of tokens, and
/// after it.
#[test]
fn known_answers() {
    let names = BlockFormat::ALL.into_iter().map(|format| (format.name(), Some(Encoding::Block(format))));
    for (name, encoding) in names.chain([("W16", None)]) {
        for case in list(&load(&format!("linear_{name}"))["cases"]) {
            let encoding = encoding.unwrap_or_else(|| {
                Encoding::W16(match text(&case["source"]) {
                    "f32" => FloatSource::F32,
                    "f16" => FloatSource::F16,
                    "bf16" => FloatSource::BF16,
                    other => panic!("no source {other}"),
                })
            });
            let (x, rows) = (floats(&case["x"]), list(&case["rows"]));
            let what = format!("{name}, {}, {} columns", text(&case["name"]), x.len());
            let file_rows = rows.iter().flat_map(|row| bytes(row.get("blocks").unwrap_or(&row["raw"])));
            let matrix = Matrix::new(encoding, rows.len(), x.len(), file_rows.collect());
            for (row, found) in rows.iter().zip(matrix.embeddings(x.len())) {
                if let Some(expected) = row.get("embed") {
                    assert_bits(&found, expected, &what);
                }
            }
            let bias = vec![float(&case["bias"]); rows.len()];
            each_isa(|isa, kernels| {
                let quantized = Quantized::of_rows(kernels, [&x[..]; 5].into_iter(), x.len());
                assert!(quantized.in_range.iter().all(|&in_range| in_range), "{what}");
                for (bias, key) in [(&[][..], "y"), (&bias[..], "y_bias")] {
                    for y in matrix.multiply(kernels, &quantized, bias, &[]) {
                        for (y, row) in y.iter().zip(rows) {
                            assert_bits(&[*y], &row[key], &format!("{isa}, {what}: {key}"));
                        }
                    }
                }
            });
        }
    }
}

/// Blocks of random bytes that the range contract allows.
fn random_blocks(random: &mut Random, format: BlockFormat, blocks: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..blocks {
        let block = loop {
            let block: Vec<u8> = (0..format.len_bytes()).map(|_| random.word() as u8).collect();
            if check_row(format, &block).is_ok() {
                break block;
            }
        };
        bytes.extend(block);
    }
    bytes
}

/// A row that `core::numerics` has quantised.
struct Row {
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
}

impl Row {
    fn of(x: &[f32]) -> Self {
        let mut row = Self {
            high: vec![0; plane_len(x.len())],
            low: vec![0; plane_len(x.len())],
            scales: vec![0.0; scales_len(x.len())],
        };
        assert!(quantize_a16(x, &mut row.high, &mut row.low, &mut row.scales));
        row
    }

    fn view(&self) -> A16Row<'_> {
        A16Row { high: &self.high, low: &self.low, scales: &self.scales }
    }
}

/// What `core::numerics` makes of a matrix in its file's form.
struct Reference {
    /// `[row of x][row of the matrix]`.
    products: Vec<Vec<f32>>,
    embeddings: Vec<Vec<f32>>,
}

impl Reference {
    fn of_blocks(matrix: &Matrix, format: BlockFormat, cols: usize, x: &[Row], bias: &[f32]) -> Self {
        let row_len_bytes = cols / format.elems() * format.len_bytes();
        let rows: Vec<DecodedRow> = matrix
            .bytes
            .chunks_exact(row_len_bytes)
            .map(|bytes| {
                let mut row = DecodedRow::new();
                decode_row(format, bytes, &mut row);
                row
            })
            .collect();
        let embedding = |row| {
            let mut out = vec![f32::NAN; cols];
            embed_row(row, &mut out);
            out
        };
        Self {
            products: products(x, &rows, bias, |row, x, bias| linear_row(row, &x.view(), bias)),
            embeddings: rows.iter().map(embedding).collect(),
        }
    }

    fn of_floats(matrix: &W16Matrix, rows: usize, cols: usize, x: &[Row], bias: &[f32]) -> Self {
        let rows: Vec<_> = (0..rows).map(|row| matrix.row(row)).collect();
        let embedding = |row| {
            let mut out = vec![f32::NAN; cols];
            embed_w16_row(row, &mut out);
            out
        };
        Self {
            products: products(x, &rows, bias, |row, x, bias| w16_linear_row(row, &x.view(), bias)),
            embeddings: rows.iter().map(embedding).collect(),
        }
    }
}

fn products<R>(
    x: &[Row],
    rows: &[R],
    bias: &[f32],
    product: impl Fn(&R, &Row, Option<f32>) -> f32,
) -> Vec<Vec<f32>> {
    let of_row = |x| rows.iter().enumerate().map(|(r, row)| product(row, x, bias.get(r).copied())).collect();
    x.iter().map(of_row).collect()
}

/// A matrix times random rows, with and without bias and residual.
fn compare(what: &str, random: &mut Random, matrix: &Matrix, x: &[Vec<f32>]) {
    let (rows, cols) = (matrix.packed.rows, x[0].len());
    let quantized: Vec<Row> = x.iter().map(|x| Row::of(x)).collect();
    let bias: Vec<f32> = (0..rows).map(|_| random.float(0)).collect();
    let bias = if random.below(2) == 0 { &bias[..] } else { &[] };
    let add: Vec<f32> = (0..rows).map(|_| random.float(10)).collect();
    let reference = match (matrix.encoding, &matrix.loaded) {
        (Encoding::Block(format), _) => Reference::of_blocks(matrix, format, cols, &quantized, bias),
        (_, LoadedWeight::W16(matrix)) => Reference::of_floats(matrix, rows, cols, &quantized, bias),
        _ => panic!("{what} is no matrix"),
    };
    for (row, (found, expected)) in matrix.embeddings(cols).iter().zip(&reference.embeddings).enumerate() {
        assert_same(found, expected, || format!("{what}, embedding {row}"));
    }
    each_isa(|isa: Isa, kernels| {
        let quantized = Quantized::of_rows(kernels, x.iter().map(|x| &x[..]), cols);
        let plain = matrix.multiply(kernels, &quantized, bias, &[]);
        let added = matrix.multiply(kernels, &quantized, bias, &add);
        for (row, expected) in reference.products.iter().enumerate() {
            assert_same(&plain[row], expected, || format!("{isa}, {what}, row {row}"));
            let expected: Vec<f32> = add.iter().zip(expected).map(|(add, y)| add + y).collect();
            assert_same(&added[row], &expected, || format!("{isa}, {what}, row {row} with residual"));
        }
    });
}

#[test]
fn random_blocks_equal_the_reference() {
    for (seed, format) in BlockFormat::ALL.into_iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let lengths: &[usize] = match format.scale_layout() {
            ScaleLayout::Block32 => &[64, 96, 256, 512, 576],
            _ => &[256, 512, 768],
        };
        for round in 0..16 {
            let (rows, cols) = (1 + random.below(40), random.pick(lengths));
            let batch = 1 + round % 9;
            let blocks = random_blocks(&mut random, format, rows * cols / format.elems());
            let matrix = Matrix::new(Encoding::Block(format), rows, cols, blocks);
            let what = format!("{format}, {rows} rows of {cols}, {batch} rows of x");
            let x: Vec<_> = (0..batch).map(|_| random.row(cols)).collect();
            compare(&what, &mut random, &matrix, &x);
        }
    }
}

/// Also rows that end inside a block of 32.
#[test]
fn random_float_matrices_equal_the_reference() {
    let mut random = Random::new(100);
    for round in 0..30 {
        let (rows, cols) = (1 + random.below(40), random.pick(&[16, 48, 64, 256, 272, 576]));
        let source = random.pick(&[FloatSource::F32, FloatSource::F16, FloatSource::BF16]);
        let batch = 1 + round % 9;
        let mut bytes = Vec::new();
        while bytes.len() < rows * cols * source.len_bytes() {
            let element = (random.word() as u32).to_le_bytes();
            let mut value = Vec::new();
            expand_floats(source, &element[..source.len_bytes()], &mut value);
            if value[0].is_finite() && value[0].to_bits() << 1 <= 16_777_216_f32.to_bits() << 1 {
                bytes.extend(&element[..source.len_bytes()]);
            }
        }
        let matrix = Matrix::new(Encoding::W16(source), rows, cols, bytes);
        let what = format!("{source:?}, {rows} rows of {cols}, {batch} rows of x");
        let x: Vec<_> = (0..batch).map(|_| random.row(cols)).collect();
        compare(&what, &mut random, &matrix, &x);
    }
}

/// Superblocks of float matrices whose products lie around 2^-60, below which each is zero.
#[test]
fn small_float_matrices_equal_the_reference() {
    let mut random = Random::new(101);
    for round in 0..20 {
        let (rows, cols) = (16, 576);
        let elements = (0..rows * cols).flat_map(|_| random.float(-33).to_le_bytes()).collect();
        let matrix = Matrix::new(Encoding::W16(FloatSource::F32), rows, cols, elements);
        let row = |random: &mut Random| (0..cols).map(|_| random.float(-32)).collect::<Vec<f32>>();
        let x: Vec<_> = (0..2).map(|_| row(&mut random)).collect();
        compare(&format!("round {round}"), &mut random, &matrix, &x);
    }
}
