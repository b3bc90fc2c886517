//! Samples of kernels over heads: norm, RoPE, Q16 of queries, K16 and V8 into the cache.

use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::{norm, rope as reference};
use unisonic_core::plan::RopeStyle;

use super::super::{
    GridKernel, HeadNorm, HeadShape, KvLayout, PrepareQuery, Rope, WriteKv, head_norm, prepare_query, rope,
    write_kv,
};
use super::buffers::Buffers;
use super::cache::{Cache, PageTable, Token, positions, sequences, tokens};
use super::data::{bytes, flags, rows, word_bytes};
use super::{DEVICES, Extent, Sample};

const HEAD_LENS: [usize; 8] = [64, 32, 80, 96, 112, 128, 256, 512];
/// Heads of a row: fewer than a workgroup has, as many, and more.
const HEADS: [usize; 5] = [3, 1, 5, 8, 14];
const CLUSTERS: [u32; 4] = [4, 1, 2, 3];
const EPS: [f32; 2] = [1e-6, pow2(-60)];

/// Rows as (sequence, position): of one sequence or more, in one word of the cache's values, at the ends of
/// pages.
const ROWS: [&[(u32, u32)]; 4] = [
    &[(1, 64), (1, 65), (1, 63), (0, 0), (1, 66)],
    &[(0, 0)],
    &[(0, 1023), (2, 5), (0, 1024)],
    &[(0, 127), (1, 127)],
];

/// Rotations of all of a head, of a part, of pairs that are no whole words, in both styles; and none.
const ROPES: usize = 6;

fn rope_of(choice: usize, head_len: usize) -> Option<Rope> {
    let len = head_len as u32;
    let half = |pairs| Rope { style: RopeStyle::HalfSplit, pairs };
    let interleaved = |pairs| Rope { style: RopeStyle::Interleaved, pairs };
    let ropes = [half(len / 2), half(len / 4), half(10), interleaved(len / 2), interleaved(5)];
    ropes.get(choice).copied()
}

/// The position table, its rows poisoned but for those of some positions.
struct Table {
    rope: Rope,
    rows: Vec<f32>,
}

impl Table {
    fn new(rope: Rope, positions: &[u32]) -> Self {
        let inverse = reference::inverse_frequencies(10_000.0, 2 * rope.pairs);
        let len = positions.iter().max().map_or(0, |&last| last as usize + 1);
        let mut table = Self { rope, rows: vec![f32::NAN; len * 2 * inverse.len()] };
        for &position in positions {
            let at = table.row(position);
            let (cosines, sines) = table.rows[at].split_at_mut(inverse.len());
            reference::table_row(&inverse, 1.0, position, cosines, sines);
        }
        table
    }

    fn row(&self, position: u32) -> std::ops::Range<usize> {
        let len = 2 * self.rope.pairs as usize;
        position as usize * len..(position as usize + 1) * len
    }

    fn rotate(&self, position: u32, head: &mut [f32]) {
        let (cosines, sines) = self.rows[self.row(position)].split_at(self.rope.pairs as usize);
        reference::rotate(self.rope.style, head, cosines, sines);
    }
}

/// Heads that are hard for norms and quantisers: zeros; what norms snap and quantisers drop; what K16 and
/// norms, what V8 too is not defined for.
fn hard_heads(count: usize, head_len: usize, seed: u64) -> Vec<f32> {
    let mut x = rows(count, head_len, seed);
    for (number, head) in x.chunks_mut(head_len).enumerate() {
        match number % 6 {
            1 => head.fill(-0.0),
            2 => head.iter_mut().for_each(|x| *x *= pow2(-44)),
            3 => head[head_len - 1] = pow2(56),
            4 => head[head_len / 2] = pow2(102),
            _ => {}
        }
    }
    x
}

/// What heads go through before they are used.
struct Before {
    norm: Option<(f32, Vec<f32>)>,
    table: Option<Table>,
}

impl Before {
    fn new(head_len: usize, norm_eps: Option<f32>, rope: Option<Rope>, positions: &[u32]) -> Self {
        let norm = norm_eps.map(|eps| (eps, rows(1, head_len, 2)));
        Self { norm, table: rope.map(|rope| Table::new(rope, positions)) }
    }

    /// The buffers `weight` and `rope`.
    fn buffers(&self) -> impl Iterator<Item = Vec<u8>> {
        let weight = self.norm.as_ref().map(|norm| bytes(&norm.1));
        weight.into_iter().chain(self.table.as_ref().map(|table| bytes(&table.rows)))
    }

    /// A head after norm and rotation, and whether it is in the norm's range.
    fn apply(&self, head: &[f32], position: u32) -> (Vec<f32>, bool) {
        let (mut out, mut in_range) = (head.to_vec(), true);
        if let Some((eps, weight)) = &self.norm {
            in_range = norm::rms_norm(head, weight, *eps, &mut out);
        }
        if let Some(table) = &self.table {
            table.rotate(position, &mut out);
        }
        (out, in_range)
    }

    /// All heads of rows at some positions.
    fn apply_all(&self, x: &[f32], head_len: usize, positions: &[u32]) -> (Vec<f32>, Vec<bool>) {
        let heads = x.len() / head_len / positions.len();
        let of_head = |(number, head)| self.apply(head, positions[number / heads]);
        let (out, in_range): (Vec<_>, Vec<_>) = x.chunks(head_len).enumerate().map(of_head).unzip();
        (out.concat(), in_range)
    }
}

/// Heads after a norm without weights, and whether they are in its range.
fn normed_plain(x: &[f32], head_len: usize, eps: f32) -> (Vec<f32>, Vec<bool>) {
    let of_head = |head: &[f32]| {
        let mut out = vec![0.0; head_len];
        let in_range = norm::rms_norm_plain(head, eps, &mut out);
        (out, in_range)
    };
    let (out, in_range): (Vec<_>, Vec<_>) = x.chunks(head_len).map(of_head).unzip();
    (out.concat(), in_range)
}

fn sample(template: GridKernel, what: String, rows: &[Token], buffers: Buffers, device: usize) -> Sample {
    let name = format!("{} of {what}, rows {rows:?}", template.kernel.name);
    Sample::new(name, template, rows.len() as u32, buffers, DEVICES[device])
}

/// Samples of [`head_norm`].
pub fn head_norm_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    let sizes = [HEAD_LENS.len(), HEADS.len(), EPS.len(), 2, ROWS.len(), CLUSTERS.len(), DEVICES.len()];
    let choices = extent.combinations_with_drawn(sizes, 1).into_iter();
    Box::new(choices.map(|[head_len, heads, eps, plain, rows, clusters, device]| {
        let (head_len, heads, eps) = (HEAD_LENS[head_len], HEADS[heads], EPS[eps]);
        let (rows, shape) = (tokens(ROWS[rows]), HeadShape { clusters: CLUSTERS[clusters] });
        let x = hard_heads(rows.len() * heads, head_len, 1);
        let norm = HeadNorm { heads: heads as u32, head_len: head_len as u32, eps, weighted: plain == 0 };
        let before = Before::new(head_len, norm.weighted.then_some(eps), None, &[]);
        let (out, in_range) = match norm.weighted {
            true => before.apply_all(&x, head_len, &positions(&rows)),
            false => normed_plain(&x, head_len, eps),
        };
        let buffers = Buffers::default().read(bytes(&x)).read_all(before.buffers());
        let buffers = buffers.write(bytes(&out)).write(word_bytes(&flags(&in_range)));
        sample(head_norm(norm, shape), format!("{norm:?}, {shape:?}"), &rows, buffers, device)
    }))
}

/// Samples of [`rope()`].
pub fn rope_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    let sizes = [HEAD_LENS.len(), ROPES - 1, HEADS.len(), ROWS.len(), CLUSTERS.len(), DEVICES.len()];
    let choices = extent.combinations_with_drawn(sizes, 1).into_iter();
    Box::new(choices.filter_map(|[head_len, style, heads, rows, clusters, device]| {
        let (head_len, heads) = (HEAD_LENS[head_len], HEADS[heads]);
        let style = rope_of(style, head_len)?;
        let (rows, shape) = (tokens(ROWS[rows]), HeadShape { clusters: CLUSTERS[clusters] });
        let (x, positions) = (hard_heads(rows.len() * heads, head_len, 1), positions(&rows));
        let before = Before::new(head_len, None, Some(style), &positions);
        let (out, _) = before.apply_all(&x, head_len, &positions);
        let buffers = Buffers::default().read(bytes(&x)).read_all(before.buffers());
        let buffers = buffers.read(word_bytes(&positions)).write(bytes(&out));
        let template = rope(heads as u32, head_len as u32, style, shape);
        Some(sample(template, format!("{heads}*{head_len}, {style:?}, {shape:?}"), &rows, buffers, device))
    }))
}

/// Samples of [`prepare_query`].
pub fn prepare_query_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    let sizes = [HEAD_LENS.len(), ROPES, 2, HEADS.len(), ROWS.len(), CLUSTERS.len(), DEVICES.len()];
    let choices = extent.combinations_with_drawn(sizes, 2).into_iter();
    Box::new(choices.map(|[head_len, rope, norm, heads, rows, clusters, device]| {
        let (head_len, heads) = (HEAD_LENS[head_len], HEADS[heads]);
        let (rope, norm_eps) = (rope_of(rope, head_len), (norm == 1).then_some(EPS[0]));
        let (rows, shape) = (tokens(ROWS[rows]), HeadShape { clusters: CLUSTERS[clusters] });
        let positions = positions(&rows);
        let x = hard_heads(rows.len() * heads, head_len, 1);
        let before = Before::new(head_len, norm_eps, rope, &positions);

        let (out, mut in_range) = before.apply_all(&x, head_len, &positions);
        let (mut high, mut low) = (vec![0; x.len()], vec![0; x.len()]);
        let mut scales = vec![0.0; in_range.len()];
        for (number, head) in out.chunks(head_len).enumerate() {
            let at = number * head_len..(number + 1) * head_len;
            let (high, low) = (&mut high[at.clone()], &mut low[at]);
            in_range[number] &= quantize_head_16(head, high, low, &mut scales[number]);
        }
        let buffers = Buffers::default().read(bytes(&x)).read_all(before.buffers());
        let buffers = buffers
            .read(word_bytes(&positions))
            .write_all([high, low].map(|plane| plane_bytes(&plane)))
            .write(bytes(&scales))
            .write(word_bytes(&flags(&in_range)));
        let query = PrepareQuery { heads: heads as u32, head_len: head_len as u32, norm_eps, rope };
        sample(prepare_query(query, shape), format!("{query:?}, {shape:?}"), &rows, buffers, device)
    }))
}

/// Bytes of a plane.
pub fn plane_bytes(plane: &[i8]) -> Vec<u8> {
    plane.iter().map(|&x| x as u8).collect()
}

/// Samples of [`write_kv`].
pub fn write_kv_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    let sizes = [HEAD_LENS.len(), ROPES, 3, HEADS.len(), ROWS.len(), CLUSTERS.len(), DEVICES.len()];
    let choices = extent.combinations_with_drawn(sizes, 2).into_iter();
    Box::new(choices.map(|[head_len, rope, norm, heads, rows, clusters, device]| {
        let (head_len, heads) = (HEAD_LENS[head_len], HEADS[heads]);
        let (rope, norm_eps) = (rope_of(rope, head_len), (norm > 0).then_some(EPS[0]));
        let value_eps = (norm == 2).then_some(EPS[0]);
        let (rows, shape) = (tokens(ROWS[rows]), HeadShape { clusters: CLUSTERS[clusters] });
        let layout = KvLayout { heads: heads as u32, head_len: head_len as u32 };
        let write = WriteKv { layout, norm_eps, rope, value_eps };
        let (buffers, params) = write_buffers(write, &rows);
        sample(write_kv(write, shape), format!("{write:?}, {shape:?}"), &rows, buffers, device)
            .with_params(params)
    }))
}

/// Buffers and parameters of [`write_kv`].
fn write_buffers(write: WriteKv, rows: &[Token]) -> (Buffers, Vec<u32>) {
    let (heads, head_len) = (write.layout.heads as usize, write.layout.head_len as usize);
    let [k, v] = [1, 4].map(|seed| hard_heads(rows.len() * heads, head_len, seed));
    let positions = positions(rows);
    let before = Before::new(head_len, write.norm_eps, write.rope, &positions);
    let pages = PageTable::new(rows.iter().copied());
    let poisoned = Cache::poisoned(write.layout, pages.page_count);

    let mut cache = poisoned.clone();
    let mut in_range = vec![];
    let heads_of_rows = k.chunks(heads * head_len).zip(v.chunks(heads * head_len));
    for (&row, (k, v)) in rows.iter().zip(heads_of_rows) {
        let (mut of_keys, mut of_values) = (vec![], vec![]);
        for (head, (k, v)) in k.chunks(head_len).zip(v.chunks(head_len)).enumerate() {
            let (key, fits) = before.apply(k, row.position);
            let (mut high, mut low, mut sk) = (vec![0; head_len], vec![0; head_len], 0.0);
            of_keys.push(quantize_head_16(&key, &mut high, &mut low, &mut sk) && fits);
            let (mut value, mut sv) = (vec![0; head_len], 0.0);
            let (mut v, fits) = match write.value_eps {
                Some(eps) => {
                    let (v, fits) = normed_plain(v, head_len, eps);
                    (v, fits == [true])
                }
                None => (v.to_vec(), true),
            };
            of_values.push(quantize_value_8(&mut v, &mut value, &mut sv) && fits);
            let slot = row.position as usize % 64;
            cache.write(pages.page(row), head, slot, &high, &low, sk, &value, sv);
        }
        in_range.extend(of_keys);
        in_range.extend(of_values);
    }
    let buffers = Buffers::default().read(bytes(&k)).read(bytes(&v)).read_all(before.buffers());
    let buffers = buffers
        .read_all([&positions, &sequences(rows), &pages.words].map(|words| word_bytes(words)))
        .update(poisoned.bytes, cache.bytes)
        .write(word_bytes(&flags(&in_range)));
    (buffers, vec![pages.pages_a_sequence])
}
