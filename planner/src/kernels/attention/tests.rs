//! Attention over a cache of a few sequences against `core::numerics::attention`.

use unisonic_core::numerics::attention::{
    KvChunk, Q16, attend_chunk, default_kappa, finish, visible_in_chunk,
};
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::merge::Merger;

use super::super::kv::KvLayout;
use super::super::kv::tests::Cache;
use super::super::quantize::Outputs;
use super::super::quantize::tests::{check_regions, form, regions};
use super::super::tests::{bits, floats, launch_groups, random, word_bytes};
use super::{Attention, DecodeShape, PrefillShape};

/// Keys and values of a sequence for a KV head, quantised, chunk by chunk. Slots that were never written have poison.
struct HeadCache {
    high: Vec<i8>,
    low: Vec<i8>,
    key_scales: Vec<f32>,
    value: Vec<i8>,
    value_scales: Vec<f32>,
}

/// Sequences in a cache, on the host and as kernels see it.
pub struct World {
    pub cache: Cache,
    pub pages: Vec<u32>,
    pub pages_a_sequence: u32,
    sequences: Vec<Vec<HeadCache>>,
}

/// A number in [-1, 1).
fn uniform(word: u64) -> f32 {
    (word >> 40) as f32 * f32::from_bits(0x3400_0000) - 1.0
}

/// Factors of the key and of the value at a position. Of eight chunks, most have scores of like size; one has scores far apart, so
/// that most weights are dropped; in one a single key without a value is far above all others, whose values are near 2^-40.
fn scales(position: usize, word: u64) -> (f32, f32) {
    let (key, value) = match (position / 64 % 8, position % 64) {
        (5, 17) => (40.0, 0.0),
        (5, _) => (1.0, f32::from_bits(0x2C80_0000)),
        (3, _) => (40.0, 1.0),
        _ => (8.0, f32::from_bits((125 + (word >> 20) as u32 % 4) << 23)),
    };
    (if word.is_multiple_of(11) { 0.0 } else { key }, if word.is_multiple_of(13) { 0.0 } else { value })
}

const POISON: f32 = f32::from_bits(0xFFFF_FFFF);

impl World {
    /// Sequences of these lengths, their pages in a mixed order.
    pub fn new(layout: KvLayout, lens: &[usize], seed: u64) -> Self {
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
                    let (key_scale, value_scale) = scales(position, next());
                    let key: Vec<f32> = (0..hd).map(|_| uniform(next()) * key_scale).collect();
                    let mut value: Vec<f32> = (0..hd).map(|_| uniform(next()) * value_scale).collect();
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

    /// The output of a query head.
    fn attend(
        &self,
        attention: Attention,
        sequence: usize,
        kv_head: usize,
        position: u32,
        q: &Q16<'_>,
    ) -> Vec<f32> {
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
        let mut out = vec![0.0; hd];
        finish(&merger.finish().unwrap(), &mut out);
        out
    }
}

/// Q16 of the rows of a batch.
pub struct Queries {
    pub high: Vec<i8>,
    pub low: Vec<i8>,
    pub scales: Vec<f32>,
}

impl Queries {
    pub fn new(heads: usize, head_len: usize, rows_len: usize, seed: u64) -> Self {
        let count = heads * rows_len;
        let (mut high, mut low) = (vec![0; count * head_len], vec![0; count * head_len]);
        let mut scales = vec![0.0; count];
        let mut next = random(seed);
        let mut x: Vec<f32> = (0..count * head_len).map(|_| uniform(next())).collect();
        // The first head of the last row is zeros.
        x[(count - heads) * head_len..][..head_len].fill(0.0);
        for (number, x) in x.chunks(head_len).enumerate() {
            let at = number * head_len..(number + 1) * head_len;
            let (high, low) = (&mut high[at.clone()], &mut low[at]);
            assert!(quantize_head_16(x, high, low, &mut scales[number]));
        }
        Self { high, low, scales }
    }

    /// The buffers `high`, `low` and `scales`.
    pub fn buffers(&self) -> Vec<Vec<u8>> {
        let plane = |plane: &[i8]| plane.iter().map(|&x| x as u8).collect();
        vec![plane(&self.high), plane(&self.low), super::super::tests::bytes(&self.scales)]
    }
}

/// What the reference makes of all rows.
pub fn expected(
    world: &World,
    attention: Attention,
    queries: &Queries,
    positions: &[u32],
    sequences: &[u32],
) -> Vec<f32> {
    let (heads, hd) = (attention.heads as usize, attention.layout.head_len as usize);
    let mut out = vec![];
    for row in 0..positions.len() {
        for head in 0..heads {
            let number = row * heads + head;
            let at = number * hd..(number + 1) * hd;
            let q =
                Q16 { high: &queries.high[at.clone()], low: &queries.low[at], scale: queries.scales[number] };
            let kv_head = head / (heads / attention.layout.heads as usize);
            out.extend(world.attend(attention, sequences[row] as usize, kv_head, positions[row], &q));
        }
    }
    out
}

/// The two kernels one after the other.
fn decode(
    world: &World,
    attention: Attention,
    queries: &Queries,
    positions: &[u32],
    sequences: &[u32],
    shape: DecodeShape,
    outputs: Outputs,
) -> Vec<Vec<u8>> {
    let rows = positions.len();
    let states = rows * attention.heads as usize;
    let groups = (world.pages_a_sequence.div_ceil(16) + 1) as usize;
    let hd = attention.layout.head_len as usize;
    let template = super::attention_decode(attention, shape);
    let mut buffers = queries.buffers();
    buffers.extend([word_bytes(positions), word_bytes(sequences), word_bytes(&world.pages)]);
    buffers.push(world.cache.bytes.clone());
    let poison = |words: usize| vec![0xFF; 4 * words];
    buffers.extend([poison(states * groups), poison(states * groups), poison(states * groups * hd)]);
    let launched = rows as u32 * template.groups_a_row * groups as u32;
    let params = vec![world.pages_a_sequence, groups as u32];
    let found = launch_groups(&template.kernel, launched, params, buffers);

    let template = super::attention_merge(attention, outputs);
    let mut buffers = found[7..].to_vec();
    buffers.push(word_bytes(positions));
    buffers.extend(outputs.f32.then(|| poison(states * hd)));
    if let Some(form) = outputs.a16 {
        buffers.extend(regions(form, rows));
        buffers.push(poison(rows * template.flags_a_row as usize));
    }
    launch_groups(&template.kernel, rows as u32 * template.groups_a_row, vec![groups as u32], buffers)[4..]
        .to_vec()
}

/// The one kernel, over tiles of rows: first rows and how many.
fn prefill(
    world: &World,
    attention: Attention,
    queries: &Queries,
    positions: &[u32],
    sequences: &[u32],
    shape: PrefillShape,
    tiles: &[u32],
) -> Vec<f32> {
    let kernel = super::attention_prefill(attention, shape);
    let mut buffers = queries.buffers();
    buffers.extend([
        word_bytes(positions),
        word_bytes(tiles),
        word_bytes(sequences),
        word_bytes(&world.pages),
    ]);
    let len = positions.len() * (attention.heads * attention.layout.head_len) as usize;
    buffers.extend([world.cache.bytes.clone(), vec![0xFF; 4 * len]]);
    let groups = tiles.len() as u32 / 2 * attention.layout.heads;
    let found = launch_groups(&kernel, groups, vec![world.pages_a_sequence], buffers);
    floats(&found[8])
}

#[derive(Clone, Copy, Debug)]
struct Case {
    head_len: u32,
    heads: u32,
    kv_heads: u32,
    tile: u32,
    window: Option<u32>,
    soft_cap: Option<f32>,
}

/// Rows of two sequences: the first positions, ends of pages, of chunks and of groups.
const LENS: [usize; 2] = [1100, 130];
const POSITIONS: [u32; 7] = [0, 129, 1099, 360, 64, 1023, 63];
const SEQUENCES: [u32; 7] = [1, 1, 0, 0, 1, 0, 0];

fn check(case: Case, world: &World) {
    let layout = KvLayout { heads: case.kv_heads, head_len: case.head_len };
    let attention = Attention {
        layout,
        heads: case.heads,
        kappa: default_kappa(case.head_len),
        window: case.window,
        soft_cap: case.soft_cap,
    };
    let queries = Queries::new(case.heads as usize, case.head_len as usize, POSITIONS.len(), 9);
    let shape = DecodeShape { heads: case.tile };
    let form = form(POSITIONS.len(), (case.heads * case.head_len) as usize, None, false);
    let outputs = Outputs { f32: true, a16: Some(form) };
    let found = decode(world, attention, &queries, &POSITIONS, &SEQUENCES, shape, outputs);
    let expected = expected(world, attention, &queries, &POSITIONS, &SEQUENCES);
    assert_eq!(bits(&floats(&found[0])), bits(&expected), "{case:?}");
    check_regions(form, &found[1..], &expected, &format!("{case:?}"));
}

fn world(head_len: u32, kv_heads: u32) -> World {
    World::new(KvLayout { heads: kv_heads, head_len }, &LENS, 5)
}

#[test]
fn decoding_equals_the_reference() {
    let case = Case { head_len: 64, heads: 6, kv_heads: 2, tile: 3, window: None, soft_cap: None };
    let of_64 = world(64, 2);
    check(case, &of_64);
    // Tiles that do not divide the heads; windows that begin in a chunk, at one, in another group; a soft cap.
    check(Case { tile: 2, window: Some(100), ..case }, &of_64);
    check(Case { tile: 1, window: Some(64), soft_cap: Some(50.0), ..case }, &of_64);
    check(Case { heads: 2, tile: 1, window: Some(1), ..case }, &of_64);
    check(Case { window: Some(40), ..case }, &of_64);
    for head_len in [80, 96, 112, 128, 256] {
        let case = Case { head_len, heads: 2, kv_heads: 1, tile: 2, window: Some(1050), soft_cap: None };
        check(case, &world(head_len, 1));
    }
}

/// Rows that begin inside a chunk and pass into the next; a tile that is not full, and one of another sequence.
fn check_prefill(case: Case, clusters: u32, world: &World) {
    let layout = KvLayout { heads: case.kv_heads, head_len: case.head_len };
    let attention = Attention {
        layout,
        heads: case.heads,
        kappa: default_kappa(case.head_len),
        window: case.window,
        soft_cap: case.soft_cap,
    };
    let shape = PrefillShape { clusters };
    let rows_a_tile = shape.rows_a_tile(attention);
    assert!(rows_a_tile >= 2, "{case:?}");
    let (first, second) = (rows_a_tile, rows_a_tile / 2);
    let positions: Vec<u32> = (1060 - first..1060).chain(62..62 + second).collect();
    let sequences: Vec<u32> = (0..first + second).map(|row| u32::from(row >= first)).collect();
    let queries = Queries::new(case.heads as usize, case.head_len as usize, positions.len(), 9);
    let tiles = [0, first, first, second];
    let found = prefill(world, attention, &queries, &positions, &sequences, shape, &tiles);
    let expected = expected(world, attention, &queries, &positions, &sequences);
    let (found, expected) = (bits(&found), bits(&expected));
    let wrong = (0..found.len()).find(|&at| found[at] != expected[at]);
    assert_eq!(wrong, None, "{case:?}, {clusters} clusters: {:?}", wrong.map(|at| (found[at], expected[at])));
}

#[test]
fn prefill_equals_the_reference() {
    let case = Case { head_len: 64, heads: 6, kv_heads: 2, tile: 0, window: None, soft_cap: None };
    let of_64 = world(64, 2);
    check_prefill(case, 1, &of_64);
    check_prefill(Case { window: Some(40), ..case }, 2, &of_64);
    check_prefill(Case { heads: 14, window: Some(64), soft_cap: Some(50.0), ..case }, 1, &of_64);
    for head_len in [80, 96, 112, 128, 256] {
        let case = Case { head_len, heads: 4, kv_heads: 1, window: Some(70), ..case };
        check_prefill(case, 1, &world(head_len, 1));
    }
}

/// Everything with everything.
#[test]
fn both_equal_the_reference_in_every_form() {
    if std::env::var("UNISONIC_TIER").as_deref() != Ok("full") {
        return;
    }
    for head_len in [16, 32, 64, 80, 96, 112, 128, 256] {
        let world = world(head_len, 2);
        for (heads, tile) in [(2, 1), (6, 3), (8, 4), (10, 3)] {
            for window in [None, Some(1), Some(63), Some(64), Some(65), Some(1024), Some(1025)] {
                for soft_cap in [None, Some(50.0)] {
                    let case = Case { head_len, heads, kv_heads: 2, tile, window, soft_cap };
                    check(case, &world);
                    check_prefill(case, tile, &world);
                }
            }
        }
    }
}
