//! The rows of a template: what may be chosen freely in it.

use std::fmt;

use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::verify;
use unisonic_core::launch::Hardware;
use unisonic_core::planes::activation::{ActivationLayout, TILE_ROWS};
use unisonic_core::planes::weight::WeightLayout;

use crate::kernels::linear::{Form, HalfStaged, SplitK, Tiled, half_staged, split_k, tiled};
use crate::kernels::of_plan::Template;
use crate::kernels::{Attention, DecodeShape, GridKernel, attention_decode, misfit};

/// Rows of a batch from which tiles of the result are among the rows of a linear layer.
const TILES_FROM: u32 = 16;
/// Rows of a batch from which nothing else is worth measuring.
const TILES_ONLY_FROM: u32 = 64;
/// Registers of a multiprocessor, in subgroups of 32.
const REGISTERS: u32 = 2048;

/// A choice. Its text ([`fmt::Display`]) is what tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// What the rules of the template choose.
    Rules,
    /// A linear layer of few rows.
    SplitK(SplitK),
    /// A linear layer of many rows, with asynchronous copies.
    Tiled(Tiled),
    /// A linear layer of many rows, without.
    HalfStaged(HalfStaged),
    /// Attention of few rows.
    Decode(DecodeShape),
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Row::Rules => f.write_str("rules"),
            Row::SplitK(SplitK { form, clusters, groups, tiles, rounds, resident, ahead }) => {
                let form = match form {
                    Form::Matrix => "matrix",
                    Form::Dot4 => "dot4",
                };
                write!(
                    f,
                    "split-k form {form} clusters {clusters} groups {groups} tiles {tiles} rounds {rounds} \
                     resident {resident} ahead {ahead}"
                )
            }
            Row::Tiled(Tiled { clusters: [along, across], groups, tiles, stages, resident }) => write!(
                f,
                "tiled clusters {along}x{across} groups {groups} tiles {tiles} stages {stages} resident {resident}"
            ),
            Row::HalfStaged(HalfStaged { clusters, groups, tiles, columns, resident }) => {
                let columns = if columns { "columns" } else { "fragments" };
                write!(
                    f,
                    "half-staged clusters {clusters} groups {groups} tiles {tiles} {columns} resident {resident}"
                )
            }
            Row::Decode(DecodeShape { clusters, heads }) => {
                write!(f, "decode clusters {clusters} heads {heads}")
            }
        }
    }
}

/// The rows of a template on some hardware, the rules' first, each once; none for a template without a
/// [`super::site()`]. Some may not fit the hardware: [`kernel`] says.
pub fn rows(template: &Template, hardware: &Hardware) -> Vec<Row> {
    let mut rows = vec![Row::Rules];
    match *template {
        Template::Linear(weights, x, _) => {
            rows.extend(split_k_rows(weights, x, hardware).into_iter().map(Row::SplitK));
            if x.rows() >= TILES_FROM && hardware.caps.mma32 && x.tile_rows() == TILE_ROWS as u32 {
                rows.extend(tiled_rows(hardware).into_iter().map(Row::Tiled));
                rows.extend(half_staged_rows(weights, x, hardware).into_iter().map(Row::HalfStaged));
            }
        }
        Template::AttentionDecode(attention, _) => {
            rows.extend(decode_rows(attention).into_iter().map(Row::Decode));
        }
        _ => return vec![],
    }
    let mut unique: Vec<Row> = vec![];
    rows.into_iter().for_each(|row| {
        if !unique.contains(&row) {
            unique.push(row);
        }
    });
    unique
}

/// The kernel of a template in the row with this text, legal for the hardware. None where the template has no
/// such row there, or its kernel does not verify or does not fit.
pub fn kernel(template: &Template, row: &str, hardware: &Hardware) -> Option<GridKernel> {
    let row = rows(template, hardware).into_iter().find(|known| known.to_string() == row)?;
    let found = match (row, *template) {
        (Row::Rules, _) => return Some(template.kernel(hardware)),
        (Row::SplitK(tuning), Template::Linear(weights, x, epilogue)) => {
            split_k(weights, x, epilogue, tuning)
        }
        (Row::Tiled(tuning), Template::Linear(weights, x, epilogue)) => tiled(weights, x, epilogue, tuning),
        (Row::HalfStaged(tuning), Template::Linear(weights, x, epilogue)) => {
            half_staged(weights, x, epilogue, tuning)
        }
        (Row::Decode(shape), Template::AttentionDecode(attention, _)) => attention_decode(attention, shape),
        _ => return None,
    };
    let legal = legalize(&found.kernel, &hardware.caps);
    let is_usable = misfit(&legal, hardware).is_none() && verify(&legal).is_empty();
    is_usable.then_some(GridKernel { kernel: legal, ..found })
}

/// What differs from the rules' choice in one or two numbers.
fn split_k_rows(weights: WeightLayout, x: ActivationLayout, hardware: &Hardware) -> Vec<SplitK> {
    let rules = SplitK::new(weights, x, hardware);
    let mut rows = vec![rules];
    if x.rows() >= TILES_ONLY_FROM && hardware.caps.mma32 {
        return rows;
    }
    let superblocks = weights.superblocks();
    let whole = (hardware.caps.subgroup / 32).max(1);
    let most = (hardware.workgroup / 32).min(superblocks.next_multiple_of(whole));
    let of_clusters = |clusters: u32, tiles: u32| {
        // 16 KiB of partial results, as the rules have them.
        let slots = 256 / (clusters * tiles * x.tile_rows()).max(1);
        SplitK { clusters, tiles, rounds: slots.clamp(1, superblocks.div_ceil(clusters)), ..rules }
    };
    let counts = [1, 2, 4, 8, 16, 32, superblocks.div_ceil(2), superblocks];
    let counts = counts.into_iter().filter(|&clusters| clusters <= most && clusters.is_multiple_of(whole));
    for clusters in counts {
        let one = of_clusters(clusters, rules.tiles);
        rows.push(SplitK { groups: 2, ..one });
        // Compilers of Vulkan drivers are not told.
        let registers = if hardware.matrix_registers { &[64, 128][..] } else { &[128] };
        let resident =
            |&registers: &u32| SplitK { resident: (REGISTERS / (clusters * registers)).max(1), ..one };
        rows.extend(registers.iter().map(resident));
    }
    let other = match rules.form {
        Form::Matrix => Some(Form::Dot4),
        Form::Dot4 => hardware.caps.mma32.then_some(Form::Matrix),
    };
    rows.extend(other.map(|form| SplitK { form, tiles: rules.tiles.min(2), ..rules }));
    let tiles = [1, 2, 4].into_iter().filter(|&tiles| tiles <= x.tiles() && tiles != rules.tiles);
    rows.extend(tiles.map(|tiles| of_clusters(rules.clusters, tiles)));
    rows
}

fn tiled_rows(hardware: &Hardware) -> Vec<Tiled> {
    if !hardware.caps.copy_async {
        return vec![];
    }
    let sizes = [(2, 8), (2, 4), (1, 8), (1, 4)];
    let tilings = [([4, 1], 2), ([4, 1], 3), ([2, 2], 2), ([8, 1], 2)];
    let of_size = |(groups, tiles)| {
        tilings.map(|(clusters, stages)| Tiled { clusters, groups, tiles, stages, resident: 2 })
    };
    sizes.into_iter().flat_map(of_size).collect()
}

fn half_staged_rows(weights: WeightLayout, x: ActivationLayout, hardware: &Hardware) -> Vec<HalfStaged> {
    let Some(rules) = HalfStaged::new(weights, x, hardware) else { return vec![] };
    let counts = if hardware.caps.copy_async { &[4][..] } else { &[4, 2, 8] };
    let sizes = [(2, 8), (2, 4), (1, 8), (1, 4), (1, 2)];
    let of_size =
        |(groups, tiles)| counts.iter().map(move |&clusters| HalfStaged { clusters, groups, tiles, ..rules });
    sizes.into_iter().flat_map(of_size).collect()
}

fn decode_rows(attention: Attention) -> Vec<DecodeShape> {
    let of_kv_head = attention.heads / attention.layout.heads;
    let heads = [1, 2, 3, 4, 8, of_kv_head].into_iter().filter(|&heads| heads <= of_kv_head.min(8));
    heads.flat_map(|heads| [16, 8, 4, 2].map(|clusters| DecodeShape { clusters, heads })).collect()
}
