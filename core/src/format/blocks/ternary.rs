//! Superblocks of 256 elements in {-1, 0, 1}: TQ1_0, TQ2_0.

/// 48 bytes of five base-3 digits, 4 bytes of four, f16 d: `digit - 1`.
///
/// Digit k of a byte is `((byte*3^k mod 256)*3) >> 8`. Bytes 0..31 hold elements 0..159 (digit k of byte m is element
/// 32k + m), bytes 32..47 elements 160..239, bytes 48..51 elements 240..255.
pub(super) fn tq1_0(block: &[u8; 54], q: &mut [i8; 256]) {
    let (first, rest) = q.split_at_mut(160);
    let (second, third) = rest.split_at_mut(80);
    digits(&block[..32], first);
    digits(&block[32..48], second);
    digits(&block[48..52], third);
}

fn digits(bytes: &[u8], q: &mut [i8]) {
    let mut power = 1_u8;
    for q in q.chunks_exact_mut(bytes.len()) {
        for (q, &byte) in q.iter_mut().zip(bytes) {
            let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
            *q = digit as i8 - 1;
        }
        power = power.wrapping_mul(3);
    }
}

/// 64 bytes of two-bit elements, f16 d: `q - 1`. In each half of 128, element 32k + m lies in bits 2k of byte m.
pub(super) fn tq2_0(block: &[u8; 66], q: &mut [i8; 256]) {
    for (bytes, q) in block[..64].as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<128>().0) {
        for (k, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (q, &byte) in q.iter_mut().zip(bytes) {
                *q = ((byte >> (2 * k)) & 3) as i8 - 1;
            }
        }
    }
}
