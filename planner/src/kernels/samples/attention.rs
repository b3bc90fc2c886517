//! Samples of attention. States of chunks that follow each other merge by `core::numerics::merge`.

use unisonic_core::launch::Hardware;
use unisonic_core::numerics::attention::{
    Q16, default_kappa, default_scale, finish, kappa_with_soft_cap, visible_in_chunk,
};
use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::kv::quantize_head_16;
use unisonic_core::numerics::merge::{GROUP_CHUNKS, Merger, State};

use super::super::kv::KEYS;
use super::super::{
    Attention, DecodeShape, KvLayout, MergeShape, MergedRows, PrefillShape, attention_decode,
    attention_merge, attention_prefill,
};
use super::buffers::Buffers;
use super::cache::{Token, positions, sequences, tokens};
use super::data::{POISON_WORD, bytes, random, rows, word_bytes};
use super::heads::plane_bytes;
use super::kept::{Kept, uniform};
use super::quantized::{OUTPUTS, outputs, results};
use super::{DEVICES, Extent, Sample};

const HEAD_LENS: [u32; 9] = [64, 16, 32, 80, 96, 112, 128, 256, 512];
/// Of those the ones that [`attention_prefill`] takes.
const PREFILL_HEAD_LENS: &[u32] = HEAD_LENS.split_last().unwrap().1;
/// Query heads and KV heads.
const HEADS: [[u32; 2]; 6] = [[3, 1], [2, 2], [7, 1], [6, 2], [16, 1], [12, 3]];
/// One key, some of a chunk, a chunk and one key less or more, some of two or three, a group of chunks and
/// more.
const WINDOWS: [Option<u32>; 9] =
    [None, Some(1), Some(40), Some(63), Some(64), Some(65), Some(100), Some(1024), Some(1030)];
const SOFT_CAPS: [Option<f32>; 2] = [None, Some(50.0)];

fn attention(head_len: u32, [heads, kv_heads]: [u32; 2], window: usize, soft_cap: usize) -> Attention {
    let soft_cap = SOFT_CAPS[soft_cap];
    let kappa = match soft_cap {
        Some(_) => kappa_with_soft_cap(default_scale(head_len)),
        None => default_kappa(head_len),
    };
    let layout = KvLayout { heads: kv_heads, head_len };
    Attention { layout, heads, kappa, window: WINDOWS[window], soft_cap }
}

/// Chunks of one head in ascending order, with their states.
type Chunks = Vec<(usize, State)>;

/// The states of groups: level 1.
fn of_groups(chunks: &Chunks) -> Chunks {
    let same_group = |a: &(usize, State), b: &(usize, State)| a.0 / GROUP_CHUNKS == b.0 / GROUP_CHUNKS;
    let of_group = |chunks: &[(usize, State)]| Some((chunks.first()?.0 / GROUP_CHUNKS, merged(chunks)?));
    chunks.chunk_by(same_group).filter_map(of_group).collect()
}

/// The state of all chunks.
fn merged(chunks: &[(usize, State)]) -> Option<State> {
    let mut merger = Merger::new();
    for (chunk, state) in chunks {
        merger.push(*chunk, state.clone());
    }
    merger.finish()
}

/// Output rows, from the chunks of each row and head.
fn finished(heads: &[Chunks]) -> Vec<f32> {
    let states = heads.iter().filter_map(|chunks| merged(chunks));
    let outputs = states.map(|state| {
        let mut out = vec![0.0; state.output.len()];
        finish(&state, &mut out);
        out
    });
    outputs.collect::<Vec<_>>().concat()
}

/// The buffers `maxima`, `sums` and `outputs`, with places for `groups` groups; words of groups that a row
/// does not see are `poison`.
fn state_buffers(heads: &[Chunks], head_len: u32, groups: u32, poison: u32) -> [Vec<u8>; 3] {
    let (groups, head_len) = (groups as usize, head_len as usize);
    let places = heads.len() * groups;
    let [mut maxima, mut sums] = [0, 1].map(|_| vec![poison; places]);
    let mut outputs = vec![poison; places * head_len];
    for (number, chunks) in heads.iter().enumerate() {
        for (group, state) in of_groups(chunks) {
            let at = number * groups + group;
            (maxima[at], sums[at]) = (state.max_exponent as u32, state.sum.to_bits());
            for (word, o) in outputs[at * head_len..].iter_mut().zip(&state.output) {
                *word = o.to_bits();
            }
        }
    }
    [maxima, sums, outputs].map(|words| word_bytes(&words))
}

/// Groups of the longest context of some rows.
fn groups_of(rows: &[Token]) -> u32 {
    rows.iter().map(|row| row.position / (KEYS * GROUP_CHUNKS as u32) + 1).max().unwrap_or(1)
}

/// Rows with their queries, over what they see.
struct Batch {
    attention: Attention,
    rows: Vec<Token>,
    kept: Kept,
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
}

impl Batch {
    fn new(attention: Attention, rows: Vec<Token>) -> Self {
        let (count, head_len) = (rows.len() * attention.heads as usize, attention.layout.head_len as usize);
        let mut next = random(9);
        let mut x: Vec<f32> = (0..count * head_len).map(|_| uniform(next())).collect();
        // The last row is ones, the first head of the first row zeros.
        x[(rows.len() - 1) * attention.heads as usize * head_len..].fill(1.0);
        x[..head_len].fill(0.0);
        let (mut high, mut low) = (vec![0; x.len()], vec![0; x.len()]);
        let mut scales = vec![0.0; count];
        for (number, x) in x.chunks(head_len).enumerate() {
            let at = number * head_len..(number + 1) * head_len;
            let (high, low) = (&mut high[at.clone()], &mut low[at]);
            let fits = quantize_head_16(x, high, low, &mut scales[number]);
            assert!(fits, "queries of samples are in range");
        }
        let kept = Kept::new(attention, &rows);
        Self { attention, rows, kept, high, low, scales }
    }

    /// The reference's states of chunks for each row and head.
    fn chunks(&self) -> Vec<Chunks> {
        let Attention { heads, layout, .. } = self.attention;
        let planes = |plane: &'_ [i8], number: usize| {
            let len = layout.head_len as usize;
            plane[number * len..(number + 1) * len].to_vec()
        };
        let of_head = |number: usize| {
            let (high, low) = (planes(&self.high, number), planes(&self.low, number));
            let q = Q16 { high: &high, low: &low, scale: self.scales[number] };
            let (row, head) = (number / heads as usize, number % heads as usize);
            self.kept.states(self.rows[row], head / (heads / layout.heads) as usize, &q)
        };
        (0..self.scales.len()).map(of_head).collect()
    }

    /// The buffers `high`, `low`, `scales` and `positions`.
    fn query_buffers(&self) -> Buffers {
        Buffers::default()
            .read(plane_bytes(&self.high))
            .read(plane_bytes(&self.low))
            .read(bytes(&self.scales))
            .read(word_bytes(&positions(&self.rows)))
    }

    /// The buffers `sequences`, `pages` and `cache`.
    fn cache_buffers(&self) -> [Vec<u8>; 3] {
        let Kept { pages, cache, .. } = &self.kept;
        [word_bytes(&sequences(&self.rows)), word_bytes(&pages.words), cache.bytes.clone()]
    }
}

/// Samples of [`attention_decode`].
pub fn attention_decode_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    /// Rows as (sequence, position): first keys, ends of chunks and of groups, chunks that are not full.
    const ROWS: [&[(u32, u32)]; 5] =
        [&[(0, 0), (1, 64), (1, 63)], &[(0, 129)], &[(1, 130), (0, 360)], &[(0, 1023)], &[(0, 0), (0, 1099)]];
    /// Clusters and query heads of a workgroup; none: those that are used.
    const SHAPES: [Option<(u32, u32)>; 8] = [
        None,
        Some((16, 1)),
        Some((16, 2)),
        Some((8, 3)),
        Some((4, 2)),
        Some((2, 1)),
        Some((1, 2)),
        Some((16, 3)),
    ];
    let sizes = [
        HEAD_LENS.len(),
        HEADS.len(),
        WINDOWS.len(),
        ROWS.len(),
        SOFT_CAPS.len(),
        SHAPES.len(),
        DEVICES.len(),
    ];
    let choices = extent.combinations_with_drawn(sizes, 3).into_iter();
    Box::new(choices.map(|[head_len, heads, window, rows, soft_cap, shape, device]| {
        let attention = attention(HEAD_LENS[head_len], HEADS[heads], window, soft_cap);
        let shape = match SHAPES[shape] {
            // No device has shared memory for three of the longest.
            Some((16, heads)) if attention.layout.head_len > 256 => {
                DecodeShape { clusters: 16, heads: heads.min(2) }
            }
            Some((clusters, heads)) => DecodeShape { clusters, heads },
            None => DecodeShape::new(attention, 1 << 20, &Hardware::SM_86),
        };
        let batch = Batch::new(attention, tokens(ROWS[rows]));
        // A place that nobody uses, too.
        let groups = groups_of(&batch.rows) + (heads % 2) as u32;
        let states = state_buffers(&batch.chunks(), attention.layout.head_len, groups, POISON_WORD);
        let buffers = batch.query_buffers().read_all(batch.cache_buffers()).write_all(states);
        let template = attention_decode(attention, shape);
        let name = format!("attention_decode {attention:?}, {shape:?}, rows {:?}", batch.rows);
        let count = batch.rows.len() as u32 * groups;
        Sample::new(name, template, count, buffers, DEVICES[device])
            .with_params(vec![batch.kept.pages.pages_a_sequence, groups])
    }))
}

/// Samples of [`attention_merge`], over chunks with states that no cache needs to have.
pub fn attention_merge_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const HEADS: [u32; 5] = [3, 1, 2, 7, 14];
    const ROWS: [&[(u32, u32)]; 5] = [
        &[(0, 1023), (0, 1024), (0, 5000)],
        &[(0, 0)],
        &[(0, 8191), (0, 2048)],
        &[(0, 3000); 4],
        &[(0, 1023), (1, 200), (2, 63)],
    ];
    let sizes = [HEAD_LENS.len(), HEADS.len(), WINDOWS.len(), ROWS.len(), OUTPUTS.len(), DEVICES.len()];
    let choices = extent.combinations_with_drawn(sizes, 2).into_iter();
    Box::new(choices.map(|[head_len, heads, window, rows, to, device]| {
        let (attention, rows) =
            (attention(HEAD_LENS[head_len], [HEADS[heads], 1], window, 0), tokens(ROWS[rows]));
        let head_len = attention.layout.head_len;
        let chunks = invented_chunks(attention, &rows);
        let groups = groups_of(&rows) + u32::from(heads == 1);
        let one_group = groups == 1;
        // Whoever merges what is not there sees its M win and gets a NaN.
        let states = state_buffers(&chunks, head_len, groups, i32::MAX as u32);
        let states = states.into_iter().skip(usize::from(one_group));
        // Of several rows the last and the first, or all.
        let (merged_rows, selected) = match rows.len() {
            count if count > 1 && heads % 2 == 0 => (MergedRows::Selected, vec![count - 1, 0]),
            count => (MergedRows::All, (0..count).collect()),
        };
        let selected_rows: Vec<Token> = selected.iter().map(|&row| rows[row]).collect();
        let positions = (!one_group).then(|| word_bytes(&positions(&selected_rows)));
        let buffers = Buffers::default().read_all(states).read_all(positions);
        let indices: Vec<u32> = selected.iter().map(|&row| row as u32).collect();
        let buffers = buffers.read_all((merged_rows == MergedRows::Selected).then(|| word_bytes(&indices)));
        let width = (attention.heads * head_len) as usize;
        let outputs = outputs(OUTPUTS[to], selected.len(), width);
        let of_row = |&row: &usize| &chunks[row * attention.heads as usize..][..attention.heads as usize];
        let chunks: Vec<Chunks> = selected.iter().flat_map(of_row).cloned().collect();
        let buffers = results(buffers, outputs, &finished(&chunks), width, |_| true);
        let template = attention_merge(attention, outputs, MergeShape { rows: merged_rows, one_group });
        let name = format!("attention_merge {attention:?}, {outputs:?}, {merged_rows:?} of {rows:?}");
        Sample::new(name, template, selected.len() as u32, buffers, DEVICES[device])
            .with_params(if one_group { vec![] } else { vec![groups] })
    }))
}

/// States of the chunks that rows see: M that are often 32 apart. O of a head lie between 2^-12 and 2^12,
/// around 2^-60, or around what A16 is no longer defined for.
fn invented_chunks(attention: Attention, list: &[Token]) -> Vec<Chunks> {
    const STEPS: [i32; 9] = [-33, -32, -31, -1, 0, 1, 31, 32, 33];
    let mut next = random(11);
    let head_len = attention.layout.head_len as usize;
    let heads = list.iter().flat_map(|row| (0..attention.heads as usize).map(move |head| (row, head)));
    let of_head = |(number, (row, _)): (usize, (&Token, usize))| {
        let factor = [pow2(0), pow2(-60), pow2(0), pow2(58)][number % 4];
        let seen = |chunk: &u32| !visible_in_chunk(row.position, attention.window, *chunk).is_empty();
        let of_chunk = |chunk: u32| {
            let output = rows(1, head_len, next()).iter().map(|x| x * factor).collect();
            let max_exponent = STEPS[(next() >> 40) as usize % STEPS.len()];
            let sum = 1.0 + (uniform(next()) + 1.0) * 30.0;
            (chunk as usize, State { max_exponent, sum, output })
        };
        (0..=row.position / KEYS).filter(seen).map(of_chunk).collect()
    };
    heads.enumerate().map(of_head).collect()
}

/// Rows at positions on end of a sequence.
struct Run {
    sequence: u32,
    first: u32,
    len: u32,
}

/// Samples of [`attention_prefill`].
pub fn attention_prefill_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const fn run(sequence: u32, first: u32, len: u32) -> Run {
        Run { sequence, first, len }
    }
    /// First keys, the ends of chunks and groups, tiles that are not full, of one row, of other sequences.
    const RUNS: [&[Run]; 6] = [
        &[run(1, 0, 5), run(0, 62, 4)],
        &[run(0, 100, 20)],
        &[run(2, 0, 1), run(0, 358, 3), run(1, 63, 1)],
        &[run(0, 1022, 4)],
        &[run(1, 1098, 2)],
        // With windows of 63 to 65, two groups with states around 2^-60.
        &[run(1, 1041, 1)],
    ];
    const CLUSTERS: [u32; 3] = [1, 2, 4];
    let sizes = [
        PREFILL_HEAD_LENS.len(),
        HEADS.len(),
        WINDOWS.len(),
        RUNS.len(),
        SOFT_CAPS.len(),
        CLUSTERS.len(),
        DEVICES.len(),
    ];
    let choices = extent.combinations_with_drawn(sizes, 3).into_iter();
    Box::new(choices.map(|[head_len, heads, window, runs, soft_cap, clusters, device]| {
        let attention = attention(PREFILL_HEAD_LENS[head_len], HEADS[heads], window, soft_cap);
        let shape = PrefillShape { clusters: CLUSTERS[clusters] };
        let (rows, tiles) = tiles(RUNS[runs], shape.rows_a_tile(attention));
        let batch = Batch::new(attention, rows);
        let buffers = batch
            .query_buffers()
            .read(word_bytes(&tiles))
            .read_all(batch.cache_buffers())
            .write(bytes(&finished(&batch.chunks())));
        let name = format!("attention_prefill {attention:?}, {shape:?}, tiles {tiles:?}");
        let count = tiles.len() as u32 / 2;
        Sample::new(name, attention_prefill(attention, shape), count, buffers, DEVICES[device])
            .with_params(vec![batch.kept.pages.pages_a_sequence])
    }))
}

/// Rows of some runs and the buffer `tiles`, the last tile first.
fn tiles(runs: &[Run], rows_a_tile: u32) -> (Vec<Token>, Vec<u32>) {
    let (mut rows, mut tiles) = (vec![], vec![]);
    for &Run { sequence, first, len } in runs {
        for at in (0..len).step_by(rows_a_tile as usize) {
            let count = rows_a_tile.min(len - at);
            tiles.push([rows.len() as u32, count]);
            rows.extend((at..at + count).map(|i| Token { sequence, position: first + i }));
        }
    }
    tiles.reverse();
    (rows, tiles.concat())
}
