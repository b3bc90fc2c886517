//! Attention over a cache of a few sequences against `core::numerics::attention`.

use unisonic_core::kir::Kernel;
use unisonic_core::kir::legal::Caps;
use unisonic_core::numerics::attention::{
    KvChunk, Q16, attend_chunk, default_kappa, finish, visible_in_chunk,
};
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::merge::{Merger, State};

use super::super::kv::KvLayout;
use super::super::kv::tests::Cache;
use super::super::quantize::Outputs;
use super::super::quantize::tests::{check_regions, form, regions};
use super::super::tests::{
    bits, bytes, floats, launch_groups, launch_on, random, word_bytes, words, workgroups,
};
use super::{Attention, DecodeShape, PrefillShape};

/// Keys and values of a sequence for a KV head, quantised, chunk by chunk. Slots that were never written have
/// poison.
struct HeadCache {
    high: Vec<i8>,
    low: Vec<i8>,
    key_scales: Vec<f32>,
    value: Vec<i8>,
    value_scales: Vec<f32>,
}

/// Sequences in a cache, on the host and as kernels see it.
struct World {
    cache: Cache,
    pages: Vec<u32>,
    pages_a_sequence: u32,
    sequences: Vec<Vec<HeadCache>>,
}

/// A number in [-1, 1).
fn uniform(word: u64) -> f32 {
    (word >> 40) as f32 * f32::from_bits(0x3400_0000) - 1.0
}

/// Key and value of a position. Of eight chunks, most have scores of like size; one has scores far apart, so
/// that most weights are dropped; [`PEAK_CHUNK`] is such that some of what a query of ones makes of it lies
/// below 2^-60.
fn key_and_value(position: usize, head_len: usize, next: &mut impl FnMut() -> u64) -> [Vec<f32>; 2] {
    let mut random = |scale: f32| (0..head_len).map(|_| uniform(next()) * scale).collect::<Vec<f32>>();
    let zeros = || vec![0.0; head_len];
    let [key, value] = match position / 64 % 8 {
        3 => [random(40.0), random(1.0)],
        // A score of 17.6 (heads of 64) without a value, scores of 0 with values that the transform makes a
        // peak of, beside small numbers.
        PEAK_CHUNK if position % 64 == 17 => [vec![1.525; head_len], zeros()],
        PEAK_CHUNK => {
            let noise = random(0.02);
            let scale = (1.0 + noise[0] * 20.0) * f32::from_bits((127 - 38) << 23);
            [zeros(), noise.iter().map(|x| (1.0 + x) * scale).collect()]
        }
        _ => [random(8.0), random(f32::from_bits((125 + position as u32 % 4) << 23))],
    };
    [if position % 11 == 6 { zeros() } else { key }, if position % 13 == 5 { zeros() } else { value }]
}

/// A chunk, and every eighth after it.
const PEAK_CHUNK: usize = 5;

const POISON: f32 = f32::from_bits(0xFFFF_FFFF);

impl World {
    /// Sequences of these lengths, their pages in a mixed order.
    fn new(layout: KvLayout, lens: &[usize], seed: u64) -> Self {
        let (heads, hd) = (layout.heads as usize, layout.head_len as usize);
        let pages_a_sequence = lens.iter().map(|len| len.div_ceil(64)).max().unwrap();
        let page_count = lens.len() * pages_a_sequence;
        let mut cache = Cache::poisoned(layout, page_count);
        // 1 + 3n mod a count that 3 does not divide would do; reversal is simpler and mixes as well.
        let pages: Vec<u32> = (0..page_count as u32).rev().collect();
        let mut next = random(seed);
        let mut sequences = vec![];
        for (sequence, &len) in lens.iter().enumerate() {
            let slots = len.next_multiple_of(64);
            let mut of_heads = vec![];
            for head in 0..heads {
                let mut own = HeadCache {
                    high: vec![-1; slots * hd],
                    low: vec![-1; slots * hd],
                    key_scales: vec![POISON; slots],
                    value: vec![-1; slots * hd],
                    value_scales: vec![POISON; slots],
                };
                for position in 0..len {
                    let [key, mut value] = key_and_value(position, hd, &mut next);
                    let at = position * hd..(position + 1) * hd;
                    let (high, low) = (&mut own.high[at.clone()], &mut own.low[at.clone()]);
                    assert!(quantize_head_16(&key, high, low, &mut own.key_scales[position]));
                    let plane = &mut own.value[at.clone()];
                    assert!(quantize_value_8(&mut value, plane, &mut own.value_scales[position]));
                    let page = pages[sequence * pages_a_sequence + position / 64] as usize;
                    let (sk, sv) = (own.key_scales[position], own.value_scales[position]);
                    let planes = (&own.high[at.clone()], &own.low[at.clone()], &own.value[at]);
                    cache.write(page, head, position % 64, planes.0, planes.1, sk, planes.2, sv);
                }
                of_heads.push(own);
            }
            sequences.push(of_heads);
        }
        Self { cache, pages, pages_a_sequence: pages_a_sequence as u32, sequences }
    }

    /// The state of a query head after all of its keys.
    fn state(
        &self,
        attention: Attention,
        sequence: usize,
        kv_head: usize,
        position: u32,
        q: &Q16<'_>,
    ) -> State {
        let (own, hd) = (&self.sequences[sequence][kv_head], q.high.len());
        let mut merger = Merger::new();
        for chunk in 0..=position / 64 {
            let visible = visible_in_chunk(position, attention.window, chunk);
            if visible.is_empty() {
                continue;
            }
            let (keys, planes) = (64 * chunk as usize.., 64 * hd * chunk as usize..);
            let kv = KvChunk {
                key_high: &own.high[planes.clone()][..64 * hd],
                key_low: &own.low[planes.clone()][..64 * hd],
                key_scales: &own.key_scales[keys.clone()][..64],
                value: &own.value[planes][..64 * hd],
                value_scales: &own.value_scales[keys][..64],
            };
            merger.push(chunk as usize, attend_chunk(q, attention.kappa, attention.soft_cap, &kv, visible));
        }
        merger.finish().unwrap()
    }
}

/// Q16 of the rows of a batch.
struct Queries {
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
}

impl Queries {
    fn new(heads: usize, head_len: usize, rows_len: usize, seed: u64) -> Self {
        let count = heads * rows_len;
        let (mut high, mut low) = (vec![0; count * head_len], vec![0; count * head_len]);
        let mut scales = vec![0.0; count];
        let mut next = random(seed);
        let mut x: Vec<f32> = (0..count * head_len).map(|_| uniform(next())).collect();
        // The first head of the first row is zeros, the last row ones.
        x[..head_len].fill(0.0);
        x[(count - heads) * head_len..].fill(1.0);
        for (number, x) in x.chunks(head_len).enumerate() {
            let at = number * head_len..(number + 1) * head_len;
            let (high, low) = (&mut high[at.clone()], &mut low[at]);
            assert!(quantize_head_16(x, high, low, &mut scales[number]));
        }
        Self { high, low, scales }
    }

    /// The buffers `high`, `low` and `scales`.
    fn buffers(&self) -> Vec<Vec<u8>> {
        let plane = |plane: &[i8]| plane.iter().map(|&x| x as u8).collect();
        vec![plane(&self.high), plane(&self.low), bytes(&self.scales)]
    }
}

/// Rows to attend for.
struct Batch<'a> {
    queries: Queries,
    positions: &'a [u32],
    sequences: &'a [u32],
    /// Whether the kernels run on the weakest device too.
    legalized: bool,
}

impl Batch<'_> {
    /// The reference's state of every row and head.
    fn states(&self, world: &World, attention: Attention) -> Vec<State> {
        let (heads, hd) = (attention.heads as usize, attention.layout.head_len as usize);
        let state = |number: usize| {
            let (row, head) = (number / heads, number % heads);
            let at = number * hd..(number + 1) * hd;
            let Queries { high, low, scales } = &self.queries;
            let q = Q16 { high: &high[at.clone()], low: &low[at], scale: scales[number] };
            let kv_head = head / (heads / attention.layout.heads as usize);
            world.state(attention, self.sequences[row] as usize, kv_head, self.positions[row], &q)
        };
        (0..self.positions.len() * heads).map(state).collect()
    }

    fn launch(&self, kernel: &Kernel, groups: u32, params: Vec<u32>, buffers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if self.legalized {
            launch_groups(kernel, groups, params, buffers)
        } else {
            launch_on(Caps::ALL, kernel, groups, params, buffers)
        }
    }
}

/// The output rows of states.
fn finished(states: &[State]) -> Vec<f32> {
    states
        .iter()
        .flat_map(|state| {
            let mut out = vec![0.0; state.output.len()];
            finish(state, &mut out);
            out
        })
        .collect()
}

/// A buffer of words that nobody wrote.
fn poison(words: usize) -> Vec<u8> {
    vec![0xFF; 4 * words]
}

/// Groups that have a place in the buffers of states.
fn groups_of(world: &World) -> u32 {
    world.pages_a_sequence.div_ceil(16) + 1
}

/// States of groups: `maxima`, `sums`, `outputs`.
fn decode(world: &World, attention: Attention, batch: &Batch<'_>, shape: DecodeShape) -> Vec<Vec<u8>> {
    let (rows, groups) = (batch.positions.len() as u32, groups_of(world));
    let states = (rows * attention.heads * groups) as usize;
    let template = super::attention_decode(attention, shape);
    let mut buffers = batch.queries.buffers();
    buffers.extend([batch.positions, batch.sequences, &world.pages].map(word_bytes));
    buffers.push(world.cache.bytes.clone());
    buffers.extend([poison(states), poison(states), poison(states * attention.layout.head_len as usize)]);
    let params = vec![world.pages_a_sequence, groups];
    batch.launch(&template.kernel, workgroups(&template, rows * groups), params, buffers)[7..].to_vec()
}

/// Rows of states of groups.
fn merge(
    world: &World,
    attention: Attention,
    batch: &Batch<'_>,
    states: Vec<Vec<u8>>,
    outputs: Outputs,
) -> Vec<Vec<u8>> {
    let rows = batch.positions.len();
    let template = super::attention_merge(attention, outputs);
    let mut buffers = states;
    buffers.push(word_bytes(batch.positions));
    buffers
        .extend(outputs.f32.then(|| poison(rows * (attention.heads * attention.layout.head_len) as usize)));
    if let Some(form) = outputs.a16 {
        buffers.extend(regions(form, rows));
        buffers.push(poison(rows * template.flags_a_row as usize));
    }
    let launched = workgroups(&template, rows as u32);
    batch.launch(&template.kernel, launched, vec![groups_of(world)], buffers)[4..].to_vec()
}

/// The one kernel, over tiles of rows: first rows and how many.
fn prefill(
    world: &World,
    attention: Attention,
    batch: &Batch<'_>,
    shape: PrefillShape,
    tiles: &[u32],
) -> Vec<f32> {
    let kernel = super::attention_prefill(attention, shape).kernel;
    let mut buffers = batch.queries.buffers();
    buffers.extend([batch.positions, tiles, batch.sequences, &world.pages].map(word_bytes));
    let len = batch.positions.len() * (attention.heads * attention.layout.head_len) as usize;
    buffers.extend([world.cache.bytes.clone(), poison(len)]);
    let groups = tiles.len() as u32 / 2 * attention.layout.heads;
    floats(&batch.launch(&kernel, groups, vec![world.pages_a_sequence], buffers)[8])
}

/// Equal bits; the first that differ are told.
fn compare(found: &[f32], expected: &[f32], what: &str) {
    let (found, expected) = (bits(found), bits(expected));
    assert_eq!(found.len(), expected.len(), "{what}");
    let wrong = (0..found.len()).find(|&at| found[at] != expected[at]);
    assert_eq!(wrong.map(|at| (at, found[at], expected[at])), None, "{what}");
}

#[derive(Clone, Copy, Debug)]
struct Case {
    head_len: u32,
    heads: u32,
    kv_heads: u32,
    window: Option<u32>,
    soft_cap: Option<f32>,
    legalized: bool,
}

impl Case {
    const DEFAULT: Case =
        Case { head_len: 64, heads: 6, kv_heads: 2, window: None, soft_cap: None, legalized: false };

    fn attention(self) -> Attention {
        let layout = KvLayout { heads: self.kv_heads, head_len: self.head_len };
        let kappa = default_kappa(self.head_len);
        Attention { layout, heads: self.heads, kappa, window: self.window, soft_cap: self.soft_cap }
    }

    fn world(self) -> World {
        World::new(self.attention().layout, &LENS, 5)
    }

    fn batch<'a>(self, positions: &'a [u32], sequences: &'a [u32]) -> Batch<'a> {
        let queries = Queries::new(self.heads as usize, self.head_len as usize, positions.len(), 9);
        Batch { queries, positions, sequences, legalized: self.legalized }
    }
}

/// Rows of two sequences: the first positions, ends of pages, of chunks and of groups.
const LENS: [usize; 2] = [1100, 130];
const POSITIONS: [u32; 7] = [0, 129, 1099, 63, 64, 1023, 360];
const SEQUENCES: [u32; 7] = [1, 1, 0, 0, 1, 0, 0];

fn check(case: Case, tile: u32, world: &World) {
    let (attention, what) = (case.attention(), format!("{case:?}, tiles of {tile}"));
    let batch = case.batch(&POSITIONS, &SEQUENCES);
    let expected = batch.states(world, attention);
    let states = decode(world, attention, &batch, DecodeShape { heads: tile });
    // Where a row sees one group, its state is that of all keys.
    let (heads, groups, hd) = (case.heads as usize, groups_of(world) as usize, case.head_len as usize);
    for (number, expected) in
        expected.iter().enumerate().filter(|(number, _)| POSITIONS[number / heads] < 1024)
    {
        let at = number * groups;
        assert_eq!(words(&states[0])[at] as i32, expected.max_exponent, "{what}, head {number}");
        assert_eq!(words(&states[1])[at], expected.sum.to_bits(), "{what}, head {number}");
        compare(
            &floats(&states[2][4 * at * hd..][..4 * hd]),
            &expected.output,
            &format!("{what}, head {number}"),
        );
    }
    let form = form(POSITIONS.len(), heads * hd, None, false);
    let outputs = Outputs { f32: true, a16: Some(form) };
    let found = merge(world, attention, &batch, states, outputs);
    let expected = finished(&expected);
    compare(&floats(&found[0]), &expected, &what);
    check_regions(form, &found[1..], &expected, &what);
}

#[test]
fn heads_are_spread_over_a_device() {
    let of = |head_len, heads, kv_heads, states| {
        let case = Case { head_len, heads, kv_heads, ..Case::DEFAULT };
        DecodeShape::spread(case.attention(), states, 132).heads
    };
    // Qwen2.5-7B: 28 heads, 4 of them KV heads.
    assert_eq!([1, 8, 16, 32, 64].map(|states| of(128, 28, 4, states)), [1, 2, 4, 7, 7]);
    assert_eq!(of(256, 16, 1, 1000), 4);
    assert_eq!(of(64, 9, 9, 1), 1);
}

#[test]
fn decoding_equals_the_reference() {
    let case = Case::DEFAULT;
    let world = case.world();
    check(Case { legalized: true, ..case }, 3, &world);
    // Tiles that do not divide the heads; windows of one key, in a chunk, from its first key on, into another
    // group.
    check(Case { window: Some(100), ..case }, 2, &world);
    check(Case { window: Some(40), ..case }, 3, &world);
    check(Case { heads: 2, window: Some(64), soft_cap: Some(50.0), ..case }, 1, &world);
    check(Case { heads: 2, window: Some(1), ..case }, 1, &world);
    for head_len in [80, 96, 112, 128, 256] {
        let case = Case { head_len, heads: 2, kv_heads: 1, window: Some(1050), ..case };
        check(case, 2, &case.world());
    }
}

/// Tiles: rows that begin inside a chunk and pass into the next; not full and of another sequence; of one row.
fn check_prefill(case: Case, clusters: u32, world: &World) {
    let (attention, shape) = (case.attention(), PrefillShape { clusters });
    let rows_a_tile = shape.rows_a_tile(attention);
    assert!(rows_a_tile >= 2, "{case:?}");
    let (first, second) = (rows_a_tile, rows_a_tile / 2);
    let positions: Vec<u32> = (1060 - first..1060).chain(62..62 + second).chain([360]).collect();
    let last = first + second;
    let sequences: Vec<u32> = (0..=last).map(|row| u32::from((first..last).contains(&row))).collect();
    let batch = case.batch(&positions, &sequences);
    let found = prefill(world, attention, &batch, shape, &[0, first, first, second, last, 1]);
    let expected = finished(&batch.states(world, attention));
    compare(&found, &expected, &format!("{case:?}, {clusters} clusters"));
}

#[test]
fn prefill_equals_the_reference() {
    let case = Case::DEFAULT;
    let world = case.world();
    check_prefill(case, 1, &world);
    check_prefill(Case { window: Some(40), legalized: true, ..case }, 2, &world);
    check_prefill(Case { heads: 14, window: Some(64), soft_cap: Some(50.0), ..case }, 1, &world);
    for head_len in [80, 96, 112, 128, 256] {
        let case = Case { head_len, heads: 4, kv_heads: 1, window: Some(800), ..case };
        check_prefill(case, 1, &case.world());
    }
}

/// Everything with everything.
#[test]
fn both_equal_the_reference_in_every_form() {
    if std::env::var("UNISONIC_TIER").as_deref() != Ok("full") {
        println!("skipped: every form of attention (runs in tier full)");
        return;
    }
    for head_len in [16, 32, 64, 80, 96, 112, 128, 256] {
        let world = Case { head_len, ..Case::DEFAULT }.world();
        for (heads, tile) in [(2, 1), (6, 3), (8, 4), (10, 3)] {
            for window in [None, Some(1), Some(63), Some(64), Some(65), Some(1024), Some(1025)] {
                for soft_cap in [None, Some(50.0)] {
                    let case = Case { head_len, heads, window, soft_cap, ..Case::DEFAULT };
                    check(case, tile, &world);
                    check_prefill(case, tile, &world);
                }
            }
        }
    }
}
