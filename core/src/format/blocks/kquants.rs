//! Superblocks of 256 with integer scales of sub-blocks: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.

/// Two bits an element, in two halves of 128: element 32j + l of a half lies in bits 2j of byte l.
fn two_bit_planes(bytes: &[u8; 64], q: &mut [i8; 256]) {
    for (bytes, q) in bytes.as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<128>().0) {
        for (j, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (q, &byte) in q.iter_mut().zip(bytes) {
                *q = ((byte >> (2 * j)) & 3) as i8;
            }
        }
    }
}

/// Nibbles in four runs of 64: byte l of run j holds elements 64j + l (low half) and 64j + 32 + l (high half).
fn nibble_runs(bytes: &[u8; 128], q: &mut [i8; 256]) {
    for (bytes, q) in bytes.as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<64>().0) {
        for (l, &byte) in bytes.iter().enumerate() {
            q[l] = (byte & 15) as i8;
            q[l + 32] = (byte >> 4) as i8;
        }
    }
}

/// The N bytes of a block from byte `at`.
fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("the part lies inside the block")
}

/// 16 bytes of scales, 64 bytes of two-bit elements, f16 d, f16 dmin: `q` in 0..3.
pub(super) fn q2_k(block: &[u8; 84], q: &mut [i8; 256]) {
    two_bit_planes(part(block, 16), q);
}

/// (sc, mn) of the 16 sub-blocks: the low and high half of byte j.
pub(super) fn q2_k_scales(block: &[u8]) -> ([i8; 16], [i8; 16]) {
    let bytes: &[u8; 16] = part(block, 0);
    (bytes.map(|byte| (byte & 15) as i8), bytes.map(|byte| (byte >> 4) as i8))
}

/// 32 bytes of third bits, 64 bytes of two-bit elements, 12 bytes of scales, f16 d: `q` in -4..3.
///
/// Bit 4n + j of third-bit byte l belongs to element 128n + 32j + l; where it is clear, 4 is taken off.
pub(super) fn q3_k(block: &[u8; 110], q: &mut [i8; 256]) {
    two_bit_planes(part(block, 32), q);
    let third_bits: &[u8; 32] = part(block, 0);
    for (bit, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (q, &byte) in q.iter_mut().zip(third_bits) {
            *q -= ((!byte >> bit) & 1) as i8 * 4;
        }
    }
}

/// `sc - 32` of the 16 sub-blocks, sc six bits: four low bits in bytes 0..7 (two an eighth), two high bits in bytes
/// 8..11.
pub(super) fn q3_k_scales(block: &[u8; 110]) -> [i8; 16] {
    let bytes: &[u8; 12] = part(block, 96);
    std::array::from_fn(|j| {
        let low = if j < 8 { bytes[j] & 15 } else { bytes[j - 8] >> 4 };
        let high = (bytes[8 + j % 4] >> (2 * (j / 4))) & 3;
        (low | (high << 4)) as i8 - 32
    })
}

/// f16 d, f16 dmin, 12 bytes of scales, 128 bytes of nibbles: `q` in 0..15.
pub(super) fn q4_k(block: &[u8; 144], q: &mut [i8; 256]) {
    nibble_runs(part(block, 16), q);
}

/// (sc, mn) of the 8 sub-blocks of Q4_K and Q5_K, six bits each, packed into bytes 4..15 of a block.
pub(super) fn q4_k_scales(block: &[u8]) -> ([i8; 8], [i8; 8]) {
    let bytes: &[u8; 12] = part(block, 4);
    let scale = |j: usize| {
        if j < 4 { bytes[j] & 63 } else { (bytes[j + 4] & 15) | ((bytes[j - 4] >> 6) << 4) }
    };
    let minimum = |j: usize| {
        if j < 4 { bytes[j + 4] & 63 } else { (bytes[j + 4] >> 4) | ((bytes[j] >> 6) << 4) }
    };
    (std::array::from_fn(|j| scale(j) as i8), std::array::from_fn(|j| minimum(j) as i8))
}

/// f16 d, f16 dmin, 12 bytes of scales, 32 bytes of fifth bits, 128 bytes of nibbles: `q` in 0..31.
///
/// Bit b of fifth-bit byte l belongs to element 32b + l.
pub(super) fn q5_k(block: &[u8; 176], q: &mut [i8; 256]) {
    nibble_runs(part(block, 48), q);
    let fifth_bits: &[u8; 32] = part(block, 16);
    for (bit, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (q, &byte) in q.iter_mut().zip(fifth_bits) {
            *q |= (((byte >> bit) & 1) << 4) as i8;
        }
    }
}

/// 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, f16 d: `q - 32`.
///
/// In each half of 128 elements, 64 bytes a and 32 bytes h: elements l, 32 + l, 64 + l, 96 + l take the low half of
/// a[l], the low half of a[32 + l], the high half of a[l], the high half of a[32 + l], and bits 0, 2, 4, 6 of h[l].
pub(super) fn q6_k(block: &[u8; 210], q: &mut [i8; 256]) {
    let low: &[u8; 128] = part(block, 0);
    let high: &[u8; 64] = part(block, 128);
    let halves = low.as_chunks::<64>().0.iter().zip(high.as_chunks::<32>().0);
    for ((low, high), q) in halves.zip(q.as_chunks_mut::<128>().0) {
        for (quarter, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low: &[u8; 32] = part(low, 32 * (quarter % 2));
            for ((q, &low), &high) in q.iter_mut().zip(low).zip(high) {
                let four = (low >> (4 * (quarter / 2))) & 15;
                let two = (high >> (2 * quarter)) & 3;
                *q = (four | (two << 4)) as i8 - 32;
            }
        }
    }
}

/// The 16 signed scales.
pub(super) fn q6_k_scales(block: &[u8; 210]) -> [i8; 16] {
    part::<16>(block, 192).map(|byte| byte as i8)
}
