//! The arithmetic inside a chunk, of which invocation l of a cluster of 32 has keys l and l + 32 as vectors of
//! two (`core::numerics::attention`). Everything is reached by the whole workgroup.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::numerics::float::{INV_16319, LOG2E, SNAP_LIMIT, pow2};

use super::super::elementary::{
    abs_bits, clamp, exp2_pair, is_below, like, not, recip, rne, scale_exponent, soft_cap,
};
use super::super::quantizer::split;
use super::super::reduce::{CLUSTER, cluster_max};
use super::Attention;

/// Softmax weights of a chunk, relative to 2^M.
pub struct ChunkWeights<'k> {
    /// M; without meaning where no key is visible.
    pub max: V<'k>,
    /// l.
    pub sum: V<'k>,
    /// p of the two keys, +0 where they are not visible.
    p: V<'k>,
}

/// `qs = (sq*128)*kappa`.
pub fn query_scale<'k>(k: &'k Build, scale: V<'k>, kappa: f32) -> V<'k> {
    (scale * k.f32(128.0)) * k.f32(kappa)
}

/// `x` of visible keys, else zero.
pub fn where_visible<'k>(visible: V<'k>, x: V<'k>) -> V<'k> {
    visible.select(x, x.constant(0))
}

/// t of integer scores S (`score`). `key_scales` is +0 for keys that are not visible.
pub fn score<'k>(
    k: &'k Build,
    attention: Attention,
    dots: V<'k>,
    key_scales: V<'k>,
    query_scales: V<'k>,
) -> V<'k> {
    let product = dots.to_f32() * (key_scales * query_scales);
    let t = match attention.soft_cap {
        Some(cap) => soft_cap(k, product, cap) * like(k, product, LOG2E),
        None => product,
    };
    clamp(k, t, -pow2(20), pow2(20))
}

/// p of keys with the exp2 pair (P, n): `e < -32 ? +0 : bitcast(Bits(P) + (e << 23))`, e = n - M; +0 where not
/// visible.
pub fn weight<'k>(visible: V<'k>, (p, n): (V<'k>, V<'k>), max: V<'k>) -> V<'k> {
    let below = n - max;
    let counts = visible & not(below.lt(below.constant(-32_i32 as u32)));
    where_visible(counts, scale_exponent(p, below))
}

/// How the u of a chunk become integers (P15), `a = amax(u)` (`value_weights`).
pub struct ValueSteps<'k> {
    /// `a < 2^-60`: all of them are 0.
    is_negligible: V<'k>,
    /// `recip(a)*16319`.
    steps: V<'k>,
    /// `a*f32(1/16319)`; +0 where a < 2^-60, and so all of o.
    pub step: V<'k>,
}

impl<'k> ValueSteps<'k> {
    /// Of a chunk, or of chunks in a vector.
    pub fn new(k: &'k Build, amax: V<'k>) -> Self {
        let is_negligible = is_below(k, amax, SNAP_LIMIT);
        let steps = recip(k, amax) * like(k, amax, 16319.0);
        let step = is_negligible.select(like(k, amax, 0.0), amax * like(k, amax, INV_16319));
        Self { is_negligible, steps, step }
    }

    /// Planes h and l of `w = rne(u*(recip(a)*16319))`, of a vector of as many words as `wide` makes of the
    /// steps.
    pub fn integers(&self, k: &'k Build, u: V<'k>, wide: impl Fn(V<'k>) -> V<'k>) -> (V<'k>, V<'k>) {
        let w = rne(k, u * wide(self.steps));
        split(wide(self.is_negligible).select(w.constant(0), w))
    }
}

/// Softmax weights from the integer scores S of two keys (`chunk_weights`). `key_scales` is +0 for keys that
/// are not visible.
pub fn chunk_weights<'k>(
    k: &'k Build,
    attention: Attention,
    dots: V<'k>,
    key_scales: V<'k>,
    query_scale: V<'k>,
    visible: V<'k>,
) -> ChunkWeights<'k> {
    let pair = exp2_pair(k, score(k, attention, dots, key_scales, k.vector([query_scale; 2])));
    let exponents = visible.select(pair.1, pair.1.constant(i32::MIN as u32));
    let max = cluster_max(exponents.part(0).max(exponents.part(1)), CLUSTER);
    let p = weight(visible, pair, k.vector([max; 2]));
    // h = 32 of the tree is in the invocation.
    let sum = (p.part(0) + p.part(1)).cluster_sum(CLUSTER);
    ChunkWeights { max, sum, p }
}

/// Integer weights of the values of a chunk.
pub struct ValueWeights<'k> {
    /// h and l of the first key, then of the second.
    pub planes: [V<'k>; 4],
    /// [`ValueSteps::step`].
    pub step: V<'k>,
}

/// `u_j = p_j*sv_j` as integers (`value_weights`). `value_scales` is +0 for keys that are not visible.
pub fn value_weights<'k>(k: &'k Build, weights: &ChunkWeights<'k>, value_scales: V<'k>) -> ValueWeights<'k> {
    let u = weights.p * value_scales;
    let bits = abs_bits(u);
    let amax = cluster_max(bits.part(0).max(bits.part(1)), CLUSTER).cast(Scalar::F32);
    let steps = ValueSteps::new(k, amax);
    let (high, low) = steps.integers(k, u, |x| k.vector([x; 2]));
    let planes = [high.part(0), low.part(0), high.part(1), low.part(1)];
    ValueWeights { planes, step: steps.step }
}

/// Four keys' weights as bytes of a word. Invocation `4q + r` of the cluster gets plane `r / 2` (h, l) of keys
/// `32*(r % 2) + 4q..`: word [`number_of_word`] of the chunk's 32.
pub fn word_of_weights<'k>(k: &'k Build, weights: &ValueWeights<'k>) -> V<'k> {
    let r = k.local_id() & 3;
    // Byte r of each invocation's word belongs to the word of invocation r of the four.
    let [h0, l0, h1, l1] = weights.planes;
    let mine = k.pack([h0, h1, l0, l1]).cast(Scalar::U32);
    let shift = r << 3;
    let words = [0, 1, 2, 3].map(|mask| {
        let word = if mask == 0 { mine } else { mine.shuffle_xor(8, mask) };
        ((word >> shift) & 0xFF) << ((r ^ mask) << 3)
    });
    ((words[0] | words[1]) | (words[2] | words[3])).cast(Scalar::I8x4)
}

/// Which of a chunk's words of weights [`word_of_weights`] gives an invocation: `16*plane + key/4`.
pub fn number_of_word(k: &Build) -> V<'_> {
    let lane = k.local_id() & (CLUSTER - 1);
    ((lane & 2) << 3) + ((lane & 1) << 3) + (lane >> 2)
}

/// Words of four keys, each with four dimensions, as words of four dimensions, each with four keys.
pub fn transpose<'k>(words: V<'k>) -> [V<'k>; 4] {
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| words.part(i).cast(Scalar::U32));
    let (ab_low, ab_high) = (a.permute(b, 0x5140), a.permute(b, 0x7362));
    let (cd_low, cd_high) = (c.permute(d, 0x5140), c.permute(d, 0x7362));
    [
        ab_low.permute(cd_low, 0x5410),
        ab_low.permute(cd_low, 0x7632),
        ab_high.permute(cd_high, 0x5410),
        ab_high.permute(cd_high, 0x7632),
    ]
    .map(|word| word.cast(Scalar::I8x4))
}
