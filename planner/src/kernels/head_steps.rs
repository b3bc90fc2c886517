//! Kernels over heads: a cluster of 32 invocations has a head.

use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::numerics::range::{ACTIVATION_LIMIT, HEAD_LIMIT};

use super::GridKernel;
use super::heads::{Head, HeadNormIn, Rope, RopeIn, amax, rotate_value};
use super::kv::{KEYS, KvLayout, PageTable};
use super::quantizer::{Bits, Quantizer, pack, split};
use super::reduce::CLUSTER;

/// Workgroups over heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadShape {
    /// Clusters of 32 invocations, each with a head.
    pub clusters: u32,
}

impl Default for HeadShape {
    fn default() -> Self {
        Self { clusters: 4 }
    }
}

impl HeadShape {
    /// Workgroups of so many heads.
    fn groups(self, heads: u32) -> u32 {
        heads.div_ceil(self.clusters)
    }
}

/// Where a cluster is.
#[derive(Clone, Copy)]
struct At<'k> {
    k: &'k Build,
    row: V<'k>,
    /// Head of the row; the last one again where `exists` is false.
    head: V<'k>,
    /// Whether there is such a head; else nothing is stored.
    exists: V<'k>,
    /// Invocation of the cluster.
    lane: V<'k>,
}

impl<'k> At<'k> {
    /// Of workgroup `group` of the row's heads.
    fn new(k: &'k Build, shape: HeadShape, row: V<'k>, group: V<'k>, heads: u32) -> Self {
        let head = group * shape.clusters + k.local_id() / CLUSTER;
        let (exists, lane) = (head.lt(k.u32(heads)), k.local_id() & (CLUSTER - 1));
        Self { k, row, head: head.min(k.u32(heads - 1)), exists, lane }
    }

    /// Stores a value once for the head.
    fn store_once(&self, to: Mem<'k>, index: V<'k>, value: V<'k>) {
        self.k.when(self.exists & self.lane.eq(self.k.u32(0)), || to.store(index, value));
    }
}

/// The objects of an optional norm and an optional rotation, declared in this order: `weight` (f32, a head),
/// `rope` (f32, rows of the position table).
struct HeadInputs<'k> {
    norm: Option<HeadNormIn<'k>>,
    rope: Option<(Rope, Mem<'k>)>,
}

impl<'k> HeadInputs<'k> {
    fn declare(k: &'k Build, eps: Option<f32>, rope: Option<Rope>) -> Self {
        let norm = eps.map(|eps| HeadNormIn { weight: Some(k.read("weight", Scalar::F32)), eps });
        let rope = rope.map(|rope| (rope, k.read("rope", Scalar::F32)));
        Self { norm, rope }
    }

    fn rope_in(&self, position: V<'k>) -> Option<RopeIn<'k>> {
        self.rope.map(|(rope, table)| RopeIn { rope, table, position })
    }
}

/// A norm of heads as a step of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadNorm {
    /// Heads of a row.
    pub heads: u32,
    /// Values a head.
    pub head_len: u32,
    /// Added to the mean square.
    pub eps: f32,
    /// Whether it has weights.
    pub weighted: bool,
}

/// RMSNorm of each head (`core::numerics::norm::rms_norm`, `rms_norm_plain`). Buffers: `x`, rows of `heads*head_len` f32;
/// `weight`, if it has weights; `out` like x; `flags`, a word a head. Reads x twice, the second time from a cache, and
/// writes 4 bytes an element; 10 operations.
pub fn head_norm(norm: HeadNorm, shape: HeadShape) -> GridKernel {
    let HeadNorm { heads, head_len, eps, weighted } = norm;
    let workgroups_a_row = shape.groups(heads);
    let kernel: Kernel = kernel("head_norm", shape.clusters * CLUSTER, |k| {
        let x = k.read("x", Scalar::F32);
        let norm = Some(HeadNormIn { weight: weighted.then(|| k.read("weight", Scalar::F32)), eps });
        let (out, flags) = (k.write("out", Scalar::F32), k.write("flags", Scalar::U32));
        let group = k.group_id();
        let at = At::new(k, shape, group / workgroups_a_row, group % workgroups_a_row, heads);
        let number = at.row * heads + at.head;
        let head = Head::new(k, x, number * head_len, head_len, norm);
        for word in head.values(None) {
            k.when(at.exists & word.exists, || {
                out.store(number * head_len + (word.number << 2), word.four);
            });
        }
        at.store_once(flags, number, head.in_range().select(k.u32(0), k.u32(1)));
    });
    GridKernel::rows(kernel, workgroups_a_row).with_flags(heads)
}

/// RoPE of each head (`core::numerics::rope::rotate`). Buffers: `x`, rows of `heads*head_len` f32; `rope`, rows
/// of the position table: `pairs` cosines, then as many sines; `positions`, a u32 a row: its row of the table;
/// `out` like x. Reads x twice, the second time from a cache, and writes 4 bytes an element; 3 operations.
pub fn rope(heads: u32, head_len: u32, rope: Rope, shape: HeadShape) -> GridKernel {
    let workgroups_a_row = shape.groups(heads);
    let kernel: Kernel = kernel("rope", shape.clusters * CLUSTER, |k| {
        let x = k.read("x", Scalar::F32);
        let inputs = HeadInputs::declare(k, None, Some(rope));
        let positions = k.read("positions", Scalar::U32);
        let out = k.write("out", Scalar::F32);
        let group = k.group_id();
        let at = At::new(k, shape, group / workgroups_a_row, group % workgroups_a_row, heads);
        let first = (at.row * heads + at.head) * head_len;
        let head = Head::new(k, x, first, head_len, None);
        for word in head.values(inputs.rope_in(positions.load(at.row))) {
            k.when(at.exists & word.exists, || out.store(first + (word.number << 2), word.four));
        }
    });
    GridKernel::rows(kernel, workgroups_a_row)
}

/// What becomes of the heads of queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrepareQuery {
    /// Query heads of a row.
    pub heads: u32,
    /// Values a head.
    pub head_len: u32,
    /// Epsilon of the norm over a head, if there is one.
    pub norm_eps: Option<f32>,
    /// The rotation, if there is one.
    pub rope: Option<Rope>,
}

/// Q16 of each head after its norm and RoPE (`core::numerics::kv::quantize_head_16`).
///
/// Buffers: `q`, rows of `heads*head_len` f32; `weight` with a norm; `rope` (as for [`rope()`]) with a
/// rotation; `positions`, a u32 a row; `high` and `low`, i8x4, `[row][head][head_len/4]`; `scales`, f32,
/// `[row][head]`; `flags`, a word a head. Reads 4 bytes an element, with norm and RoPE more from a cache, and
/// writes 2; about 30 operations.
pub fn prepare_query(query: PrepareQuery, shape: HeadShape) -> GridKernel {
    let PrepareQuery { heads, head_len, norm_eps, rope } = query;
    let workgroups_a_row = shape.groups(heads);
    let kernel: Kernel = kernel("prepare_query", shape.clusters * CLUSTER, |k| {
        let q = k.read("q", Scalar::F32);
        let inputs = HeadInputs::declare(k, norm_eps, rope);
        let positions = k.read("positions", Scalar::U32);
        let (high, low) = (k.write("high", Scalar::I8x4), k.write("low", Scalar::I8x4));
        let (scales, flags) = (k.write("scales", Scalar::F32), k.write("flags", Scalar::U32));
        let group = k.group_id();
        let at = At::new(k, shape, group / workgroups_a_row, group % workgroups_a_row, heads);
        let number = at.row * heads + at.head;
        let head = Head::new(k, q, number * head_len, head_len, inputs.norm);
        let quantized = Sixteen::new(k, &head, inputs.rope_in(positions.load(at.row)));
        for word in &quantized.words {
            k.when(at.exists & word.exists, || {
                let index = number * (head_len / 4) + word.number;
                high.store(index, word.high);
                low.store(index, word.low);
            });
        }
        at.store_once(scales, number, quantized.scale);
        at.store_once(flags, number, quantized.in_range.select(k.u32(0), k.u32(1)));
    });
    GridKernel::rows(kernel, workgroups_a_row).with_flags(heads)
}

/// K16 or Q16 of a head.
struct Sixteen<'k> {
    words: Vec<SixteenWord<'k>>,
    scale: V<'k>,
    /// Whether the head is in the range of its norm and of the quantiser.
    in_range: V<'k>,
}

/// Both planes of four elements of a head.
struct SixteenWord<'k> {
    number: V<'k>,
    exists: V<'k>,
    high: V<'k>,
    low: V<'k>,
}

impl<'k> Sixteen<'k> {
    fn new(k: &'k Build, head: &Head<'k>, rope: Option<RopeIn<'k>>) -> Self {
        let values = head.values(rope);
        let quantizer = Quantizer::new(k, Bits::Sixteen, amax(k, &values), HEAD_LIMIT);
        let words = values.into_iter().map(|word| {
            let (high, low) = split(quantizer.integers(k, word.four));
            let (high, low) = (pack(k, high), pack(k, low));
            SixteenWord { number: word.number, exists: word.exists, high, low }
        });
        let words = words.collect();
        Self { words, scale: quantizer.scale, in_range: quantizer.in_range & head.in_range() }
    }
}

/// What becomes of keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteKv {
    /// The cache.
    pub layout: KvLayout,
    /// Epsilon of the norm over a key head, if there is one.
    pub norm_eps: Option<f32>,
    /// The rotation of keys, if there is one.
    pub rope: Option<Rope>,
    /// Epsilon of the norm over a value head, which has no weights, if there is one.
    pub value_eps: Option<f32>,
}

/// K16 of each key head after its norm and RoPE, and V8 of each value head after its norm, into the row's slot of the cache
/// (`core::numerics::kv`).
///
/// Buffers: `k` and `v`, rows of `heads*head_len` f32; `weight` with a norm; `rope` (as for [`rope()`]) with a
/// rotation; `positions`, a u32 a row; `sequences`, a u32 a row, and `pages`, the page numbers of each
/// sequence; `cache` ([`KvLayout`]); `flags`, a word a key head, then a word a value head. Parameter:
/// `pages_a_sequence`. Reads 8 bytes an element, with norm and RoPE more from a cache, and writes 3; about 35
/// operations.
pub fn write_kv(write: WriteKv, shape: HeadShape) -> GridKernel {
    let WriteKv { layout, norm_eps, rope, value_eps } = write;
    let KvLayout { heads, head_len } = layout;
    let of_keys = shape.groups(heads);
    let workgroups_a_row = 2 * of_keys;
    let kernel: Kernel = kernel("write_kv", shape.clusters * CLUSTER, |k| {
        let (keys, values) = (k.read("k", Scalar::F32), k.read("v", Scalar::F32));
        let inputs = HeadInputs::declare(k, norm_eps, rope);
        let positions = k.read("positions", Scalar::U32);
        let pages = PageTable::declare(k);
        let (cache, flags) = (k.write("cache", Scalar::I8x4), k.write("flags", Scalar::U32));
        let group = k.group_id();
        let (row, part) = (group / workgroups_a_row, group % workgroups_a_row);
        let at = At::new(k, shape, row, part % of_keys, heads);
        let position = positions.load(row);
        let block = layout.block(pages.of(row).page(position / KEYS), at.head);
        let slot = Slot { at, layout, cache, block, slot: position % KEYS };
        let first = (row * heads + at.head) * head_len;
        let [in_range] = k.choose(
            part.lt(k.u32(of_keys)),
            || {
                let head = Head::new(k, keys, first, head_len, inputs.norm);
                [slot.write_key(&Sixteen::new(k, &head, inputs.rope_in(position)))]
            },
            || {
                let norm = value_eps.map(|eps| HeadNormIn { weight: None, eps });
                [slot.write_value(&Head::new(k, values, first, head_len, norm))]
            },
        );
        let flag = row * (2 * heads) + part / of_keys * heads + at.head;
        at.store_once(flags, flag, in_range.select(k.u32(0), k.u32(1)));
    });
    GridKernel::rows(kernel, workgroups_a_row).with_flags(2 * heads)
}

/// A slot of a block of the cache.
struct Slot<'k> {
    at: At<'k>,
    layout: KvLayout,
    cache: Mem<'k>,
    block: V<'k>,
    slot: V<'k>,
}

impl<'k> Slot<'k> {
    /// Stores K16; returns whether the head is in range.
    fn write_key(&self, key: &Sixteen<'k>) -> V<'k> {
        let (k, layout) = (self.at.k, self.layout);
        for word in &key.words {
            k.when(self.at.exists & word.exists, || {
                let index = self.block + layout.key_word(self.slot, word.number);
                self.cache.store(index, word.high);
                self.cache.store(index + layout.key_low(), word.low);
            });
        }
        let scale = self.block + self.slot + layout.key_scales();
        self.at.store_once(self.cache, scale, key.scale.cast(Scalar::I8x4));
        key.in_range
    }

    /// Stores V8 of a head (`core::numerics::kv::quantize_value_8`); returns whether it is in range.
    fn write_value(&self, head: &Head<'k>) -> V<'k> {
        let (k, layout) = (self.at.k, self.layout);
        let mut words = head.values(None);
        rotate_value(k, layout.head_len, &mut words);
        let quantizer = Quantizer::new(k, Bits::Eight, amax(k, &words), ACTIVATION_LIMIT);
        for word in &words {
            k.when(self.at.exists & word.exists, || {
                let index = self.block + layout.value_word(self.slot, word.number) + layout.values();
                self.cache.store(index, pack(k, quantizer.integers(k, word.four)));
            });
        }
        let scale = self.block + self.slot + layout.value_scales();
        self.at.store_once(self.cache, scale, quantizer.scale.cast(Scalar::I8x4));
        quantizer.in_range & head.in_range()
    }
}
