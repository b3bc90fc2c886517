//! Bytes of a tensor that is held as words.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Mem, V};

/// A place in a tensor: a word of it, and bytes after that. Words and bytes are apart because a tensor may have
/// more than 2^32 bytes.
#[derive(Clone, Copy)]
pub struct Bytes<'k> {
    words: Mem<'k>,
    word: V<'k>,
    byte: V<'k>,
}

impl<'k> Bytes<'k> {
    /// The first byte of a row.
    pub fn of_row(words: Mem<'k>, row: V<'k>, row_len_bytes: u32) -> Self {
        // What is left of a row after its whole words: below 4*2^30 for 2^30 rows.
        let rest = row * (row_len_bytes % 4);
        Self { words, word: row * (row_len_bytes / 4) + (rest >> 2), byte: rest & 3 }
    }

    /// The place some bytes on.
    pub fn after(self, len_bytes: V<'k>) -> Self {
        Self { byte: self.byte + len_bytes, ..self }
    }

    /// The word around byte `at`, and the bits of it before that byte.
    fn around(self, at: V<'k>) -> (V<'k>, V<'k>) {
        let byte = self.byte + at;
        (self.words.load(self.word + (byte >> 2)), (byte & 3) << 3)
    }

    /// The word that begins at byte `at`, a multiple of 4 bytes of the tensor.
    pub fn word(self, at: V<'k>) -> V<'k> {
        self.around(at).0
    }

    /// The two bytes from `at` on, which lie at an even byte of the tensor.
    pub fn half(self, at: V<'k>) -> V<'k> {
        let (word, bits) = self.around(at);
        (word >> bits) & 0xFFFF
    }

    /// The byte at `at`.
    pub fn byte(self, at: V<'k>) -> V<'k> {
        let (word, bits) = self.around(at);
        (word >> bits) & 0xFF
    }
}

/// The low `bits` bits of a word as a signed integer.
pub fn sign_extend(word: V<'_>, bits: u32) -> V<'_> {
    (word.cast(Scalar::I32) << (32 - bits)) >> (32 - bits)
}
