//! Samples of linear layers: every format that planes lay out, as blocks or as W16.

use unisonic_core::format::blocks::{DecodedRow, decode_row};
use unisonic_core::launch::Hardware;
use unisonic_core::numerics::a16::A16Row;
use unisonic_core::numerics::linear::linear_row;
use unisonic_core::numerics::range::logit_in_range;
use unisonic_core::numerics::w16::w16_linear_row;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::pack::GroupPacker;
use unisonic_core::planes::region::Regions;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};

use super::super::linear::{
    Epilogue, Form, HalfStaged, Residual, SplitK, Tiled, half_staged, split_k, tiled,
};
use super::super::{A16Form, GridKernel};
use super::buffers::Buffers;
use super::data::{blocks, bytes, flags, hard_rows, rows, word_bytes};
use super::planes::{A16Rows, W16Rows, a16_form};
use super::{DEVICES, Extent, Sample};

/// Devices whose tuning is among others.
const USED: [Hardware; 3] = [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE];

/// Weight rows: no multiples of 16 too.
const WEIGHT_ROWS: [usize; 7] = [16, 40, 7, 33, 24, 17, 16];

/// Row lengths that go with them: whole superblocks, rows of real models that are none, and the shortest. The last is for
/// [`Extent::Full`].
fn widths(format: WeightFormat) -> [usize; 7] {
    match format {
        WeightFormat::W16 => [256, 100, 576, 640, 896, 1024, 4864],
        WeightFormat::Block(format) if format.elems() == 32 => [256, 96, 576, 640, 896, 1024, 4864],
        WeightFormat::Block(_) => [256, 512, 768, 1280, 1792, 1024, 4864],
    }
}

const EPILOGUES: [Epilogue; 5] = [
    Epilogue { bias: false, add: None, checks_range: false },
    Epilogue { bias: true, add: None, checks_range: true },
    Epilogue { bias: false, add: Some(Residual::Buffer), checks_range: false },
    Epilogue { bias: true, add: Some(Residual::InPlace), checks_range: false },
    Epilogue { bias: true, add: None, checks_range: false },
];

/// Samples of [`split_k()`].
pub fn split_k_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const ROWS: [usize; 6] = [1, 2, 3, 4, 8, 16];
    /// One cluster and many, barriers in between and none, more groups and tiles than there are.
    const TUNINGS: [[u32; 4]; 5] = [[2, 1, 1, 1], [3, 1, 2, 2], [1, 2, 1, 1], [4, 1, 4, 1], [2, 3, 2, 4]];
    let choices = choices(extent, ROWS.len(), 2 * TUNINGS.len() + USED.len());
    Box::new(choices.into_iter().map(move |[format, shape, rows, tuning, epilogue, device]| {
        let case = Case::new(format, shape, ROWS[rows], epilogue);
        let tuning = match TUNINGS.get(tuning / 2) {
            Some(&[clusters, groups, tiles, rounds]) => {
                let form = [Form::Matrix, Form::Dot4][tuning % 2];
                SplitK { form, clusters, groups, tiles, rounds, resident: 1, ahead: groups }
            }
            None => SplitK::new(case.weights, case.x, &USED[tuning - 2 * TUNINGS.len()]),
        };
        case.sample(split_k(case.weights, case.x, case.epilogue, tuning), &tuning, device)
    }))
}

/// Samples of [`tiled()`].
pub fn tiled_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const ROWS: [usize; 4] = [17, 3, 33, 64];
    const TUNINGS: [[u32; 5]; 4] = [[2, 1, 1, 2, 2], [1, 2, 2, 1, 3], [2, 2, 1, 1, 2], [1, 1, 1, 2, 4]];
    let choices = choices(extent, ROWS.len(), TUNINGS.len() + 1);
    Box::new(choices.into_iter().map(move |[format, shape, rows, tuning, epilogue, device]| {
        let case = Case::new(format, shape, ROWS[rows], epilogue);
        let tuning = match TUNINGS.get(tuning) {
            Some(&[of_rows, of_tiles, groups, tiles, stages]) => {
                Tiled { clusters: [of_rows, of_tiles], groups, tiles, stages, resident: 1 }
            }
            // What is used.
            None => {
                Tiled::new(case.weights, case.x, &USED[0]).unwrap_or_else(|| panic!("{:?} has room", USED[0]))
            }
        };
        case.sample(tiled(case.weights, case.x, case.epilogue, tuning), &tuning, device)
    }))
}

/// Samples of [`half_staged()`].
pub fn half_staged_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const ROWS: [usize; 4] = [17, 3, 33, 64];
    const TUNINGS: [([u32; 3], bool); 4] =
        [([2, 1, 2], true), ([1, 2, 1], false), ([3, 1, 3], true), ([1, 1, 2], false)];
    let choices = choices(extent, ROWS.len(), TUNINGS.len() + 1);
    Box::new(choices.into_iter().map(move |[format, shape, rows, tuning, epilogue, device]| {
        let case = Case::new(format, shape, ROWS[rows], epilogue);
        let tuning = match TUNINGS.get(tuning) {
            Some(&([clusters, groups, tiles], columns)) => {
                HalfStaged { clusters, groups, tiles, columns, resident: 1 }
            }
            None => HalfStaged::new(case.weights, case.x, &USED[2])
                .unwrap_or_else(|| panic!("{:?} has room", USED[2])),
        };
        case.sample(half_staged(case.weights, case.x, case.epilogue, tuning), &tuning, device)
    }))
}

/// Combinations of format, shape, rows, tuning, epilogue and device. In [`Extent::Full`] all of the first four, while the others
/// take turns: what they do does not depend on the rest.
fn choices(extent: Extent, rows: usize, tunings: usize) -> Vec<[usize; 6]> {
    let (formats, shapes) = (WeightFormat::ALL.len(), WEIGHT_ROWS.len());
    let (epilogues, devices) = (EPILOGUES.len(), DEVICES.len());
    match extent {
        Extent::Pairs => extent.combinations([formats, shapes - 1, rows, tunings, epilogues, devices]),
        Extent::Full => {
            let all = extent.combinations([formats, shapes, rows, tunings]).into_iter().enumerate();
            all.map(|(number, [format, shape, rows, tuning])| {
                [format, shape, rows, tuning, number % epilogues, number / epilogues % devices]
            })
            .collect()
        }
    }
}

/// What is computed, however.
struct Case {
    weights: WeightLayout,
    x: ActivationLayout,
    epilogue: Epilogue,
}

impl Case {
    fn new(format: usize, shape: usize, rows: usize, epilogue: usize) -> Self {
        let format = WeightFormat::ALL[format];
        let (n, width) = (WEIGHT_ROWS[shape], widths(format)[shape]);
        let layouts = WeightLayout::new(format, n, width)
            .and_then(|weights| Ok((weights, ActivationLayout::new(rows, width)?)));
        let (weights, x) =
            layouts.unwrap_or_else(|error| panic!("samples are small matrices of whole blocks: {error}"));
        Self { weights, x, epilogue: EPILOGUES[epilogue] }
    }

    fn sample(&self, linear: GridKernel, tuning: &dyn std::fmt::Debug, device: usize) -> Sample {
        let Self { weights, x, epilogue } = *self;
        let (format, n, width, count) = (weights.format(), weights.rows(), weights.width(), x.rows());
        let name =
            format!("{} {format} {n}x{width} times {count}, {epilogue:?}, {tuning:?}", linear.kernel.name);
        Sample::new(name, linear, count, self.buffers(), DEVICES[device])
    }

    fn buffers(&self) -> Buffers {
        let (n, count, epilogue) = (self.weights.rows() as usize, self.x.rows() as usize, self.epilogue);
        let width = self.weights.width() as usize;
        let matrix = Matrix::new(self.weights);
        let x = A16Rows::new(&hard_rows(count, width, count as u64), width);
        let (mut bias, residual) = (rows(1, n, 7), rows(count, n, 8));
        // The most that a head may give, and the least that it may not.
        bias[0] = f32::from_bits(0x5F7F_FFFF);
        bias[n - 1] = f32::from_bits(0xDF80_0000);

        let groups = self.weights.groups() as usize;
        let mut in_range = vec![true; count * groups * 2];
        let mut out = vec![0.0; count * n];
        for (row, x) in x.rows().iter().enumerate() {
            for weight_row in 0..n {
                let y = matrix.times(weight_row, x, epilogue.bias.then(|| bias[weight_row]));
                in_range[row * groups * 2 + weight_row / 8] &= logit_in_range(y);
                let at = row * n + weight_row;
                out[at] = if epilogue.add.is_some() { residual[at] + y } else { y };
            }
        }

        let buffers = Buffers::default()
            .read(word_bytes(&matrix.words))
            .read_all(x.regions(form(self.weights.format(), self.x)))
            .read_all(epilogue.bias.then(|| bytes(&bias)));
        let buffers = match epilogue.add {
            None => buffers.write(bytes(&out)),
            Some(Residual::Buffer) => buffers.read(bytes(&residual)).write(bytes(&out)),
            Some(Residual::InPlace) => buffers.update(bytes(&residual), bytes(&out)),
        };
        buffers.write_all(epilogue.checks_range.then(|| word_bytes(&flags(&in_range))))
    }
}

/// The regions of A16 that weights of a format read.
fn form(format: WeightFormat, x: ActivationLayout) -> A16Form {
    a16_form(x.rows() as usize, x.width() as usize, Regions::read_by(&[format]))
}

/// A matrix as planes and as rows that the reference takes.
pub(super) struct Matrix {
    words: Vec<u32>,
    rows: Rows,
}

enum Rows {
    Blocks(Vec<DecodedRow>),
    W16(W16Rows),
}

impl Matrix {
    /// Of random weights.
    pub(super) fn new(layout: WeightLayout) -> Self {
        let (n, width) = (layout.rows() as usize, layout.width() as usize);
        let mut words = vec![0; layout.buffer_len() as usize];
        let groups = words.chunks_exact_mut(layout.group_len() as usize);
        let mut packer = GroupPacker::new(layout);
        let rows = match layout.format() {
            WeightFormat::Block(format) => {
                let bytes = blocks(format, n * width / format.elems(), 5);
                for (group, rows) in groups.zip(bytes.chunks(16 * packer.row_len_bytes())) {
                    packer.pack(rows, group);
                }
                let decoded = bytes.chunks(packer.row_len_bytes()).map(|bytes| {
                    let mut row = DecodedRow::new();
                    decode_row(format, bytes, &mut row);
                    row
                });
                Rows::Blocks(decoded.collect())
            }
            WeightFormat::W16 => {
                let rows = W16Rows::new(&hard_rows(n, width, 5), width);
                for (group, rows) in groups.zip(rows.rows().chunks(16)) {
                    packer.pack_w16(rows, group);
                }
                Rows::W16(rows)
            }
        };
        Self { words, rows }
    }

    /// Its planes.
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// A weight row times a row.
    pub(super) fn times(&self, row: usize, x: &A16Row<'_>, bias: Option<f32>) -> f32 {
        match &self.rows {
            Rows::Blocks(rows) => linear_row(&rows[row], x, bias),
            Rows::W16(rows) => w16_linear_row(&rows.row(row), x, bias),
        }
    }
}
