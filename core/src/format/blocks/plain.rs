//! Blocks of 32 whose integers are their bits: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//!
//! Nibbles: byte j holds element j in its low half and element j + 16 in its high half.

/// f16 d, 16 bytes of nibbles: `q - 8`.
pub(super) fn q4_0(block: &[u8; 18], q: &mut [i8; 32]) {
    nibbles(tail(block), q);
    for q in q {
        *q -= 8;
    }
}

/// f16 d, f16 m, 16 bytes of nibbles: `q`.
pub(super) fn q4_1(block: &[u8; 20], q: &mut [i8; 32]) {
    nibbles(tail(block), q);
}

/// f16 d, 4 bytes of fifth bits, 16 bytes of nibbles: `q - 16`.
pub(super) fn q5_0(block: &[u8; 22], q: &mut [i8; 32]) {
    nibbles(tail(block), q);
    add_fifth_bits([block[2], block[3], block[4], block[5]], q);
    for q in q {
        *q -= 16;
    }
}

/// f16 d, f16 m, 4 bytes of fifth bits, 16 bytes of nibbles: `q`.
pub(super) fn q5_1(block: &[u8; 24], q: &mut [i8; 32]) {
    nibbles(tail(block), q);
    add_fifth_bits([block[4], block[5], block[6], block[7]], q);
}

/// f16 d, 32 signed bytes.
pub(super) fn q8_0(block: &[u8; 34], q: &mut [i8; 32]) {
    for (q, &byte) in q.iter_mut().zip(&block[2..]) {
        *q = byte as i8;
    }
}

/// The last 16 bytes of a block.
pub(super) fn tail<const N: usize>(block: &[u8; N]) -> &[u8; 16] {
    block.last_chunk().expect("blocks of 32 nibbles are longer than 16 bytes")
}

/// Element j from the low half of byte j, element j + 16 from its high half.
pub(super) fn nibbles(bytes: &[u8; 16], q: &mut [i8; 32]) {
    for (j, &byte) in bytes.iter().enumerate() {
        q[j] = (byte & 15) as i8;
        q[j + 16] = (byte >> 4) as i8;
    }
}

/// Bit j of the little-endian word is the fifth bit of element j.
fn add_fifth_bits(word: [u8; 4], q: &mut [i8; 32]) {
    for (j, q) in q.iter_mut().enumerate() {
        *q |= (((word[j / 8] >> (j % 8)) & 1) << 4) as i8;
    }
}
