//! The 256 characters that stand for bytes in byte-level BPE vocabularies (GPT-2's `bytes_to_unicode`).
//!
//! A byte that prints in Latin-1 is its own character; the 68 others are U+0100, U+0101, … in ascending order.

/// Character of each byte.
pub const SYMBOLS: [char; 256] = symbols();

/// Byte of each character from U+0000 to U+0143.
const BYTES: [Option<u8>; 324] = bytes();

/// The byte that a character stands for.
pub fn byte_of_symbol(symbol: char) -> Option<u8> {
    BYTES.get(symbol as usize).copied().flatten()
}

const fn symbols() -> [char; 256] {
    let mut table = ['\0'; 256];
    let mut shifted = 0x100;
    let mut byte = 0;
    while byte < 256 {
        let prints = matches!(byte as u8, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if prints { byte as u32 } else { shifted };
        shifted += !prints as u32;
        table[byte] = match char::from_u32(code) {
            Some(symbol) => symbol,
            None => panic!("codes up to U+0143 are characters"),
        };
        byte += 1;
    }
    table
}

const fn bytes() -> [Option<u8>; 324] {
    let mut table = [None; 324];
    let mut byte = 0;
    while byte < 256 {
        table[SYMBOLS[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_symbols() {
        let known = [(b' ', 'Ġ'), (b'\n', 'Ċ'), (b'a', 'a'), (0xad, 'Ń'), (0xff, 'ÿ'), (0, 'Ā')];
        for (byte, symbol) in known {
            assert_eq!(SYMBOLS[byte as usize], symbol);
        }
        for byte in 0..=255u8 {
            assert_eq!(byte_of_symbol(SYMBOLS[byte as usize]), Some(byte));
        }
        assert_eq!(byte_of_symbol('▁'), None);
        assert_eq!(byte_of_symbol('\n'), None);
    }
}
