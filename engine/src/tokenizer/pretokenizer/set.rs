//! Sets of characters, as the pre-tokenizers' regular expressions write them.
//!
//! `\p{L}`, `\p{M}`, `\p{N}`, `\p{P}` and `\p{S}` are Unicode general categories, `\s` is `White_Space`. The categories
//! are those of Unicode 15.1, as in llama.cpp: the version of the `unicode-properties` crate is pinned, since a newer
//! one would cut characters that Unicode 16 assigned in other places, and so change ids.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Classes that every character has exactly one of, as bits.
mod class {
    pub const LOWER: u16 = 1;
    pub const UPPER: u16 = 1 << 1;
    pub const LETTER: u16 = 1 << 2;
    pub const DIGIT: u16 = 1 << 3;
    pub const NUMBER: u16 = 1 << 4;
    pub const MARK: u16 = 1 << 5;
    pub const PUNCTUATION: u16 = 1 << 6;
    pub const SYMBOL: u16 = 1 << 7;
    pub const BLANK: u16 = 1 << 8;
    pub const BREAK: u16 = 1 << 9;
    pub const SPACE: u16 = 1 << 10;
    pub const WIDE_SPACE: u16 = 1 << 11;
    pub const OTHER: u16 = 1 << 12;
}

/// A set of characters: whole classes, and ranges besides.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    classes: u16,
    ranges: &'static [(char, char)],
    inverted: bool,
}

/// `a-z`
pub const LOWER: Set = Set::of(class::LOWER);
/// `A-Z`
pub const UPPER: Set = Set::of(class::UPPER);
/// `\p{L}`
pub const LETTER: Set = LOWER.or(UPPER).or(Set::of(class::LETTER));
/// `0-9`
pub const DIGIT: Set = Set::of(class::DIGIT);
/// `\p{N}`
pub const NUMBER: Set = DIGIT.or(Set::of(class::NUMBER));
/// `\p{M}`
pub const MARK: Set = Set::of(class::MARK);
/// `\p{P}`
pub const PUNCTUATION: Set = Set::of(class::PUNCTUATION);
/// `\p{S}`
pub const SYMBOL: Set = Set::of(class::SYMBOL);
/// The ASCII space.
pub const BLANK: Set = Set::of(class::BLANK);
/// `[\r\n]`
pub const BREAK: Set = Set::of(class::BREAK);
/// `\s`
pub const SPACE: Set = BLANK.or(BREAK).or(Set::of(class::SPACE | class::WIDE_SPACE));
/// No character.
pub const NONE: Set = Set::of(0);

impl Set {
    const fn of(classes: u16) -> Self {
        Self { classes, ranges: &[], inverted: false }
    }

    /// The characters from first to last of each range.
    pub const fn ranges(ranges: &'static [(char, char)]) -> Self {
        Self { classes: 0, ranges, inverted: false }
    }

    /// The characters of both; only one of them may have ranges, and neither may be inverted.
    pub const fn or(self, other: Self) -> Self {
        assert!(!self.inverted && !other.inverted && (self.ranges.is_empty() || other.ranges.is_empty()));
        let ranges = if self.ranges.is_empty() { other.ranges } else { self.ranges };
        Self { classes: self.classes | other.classes, ranges, inverted: false }
    }

    /// All other characters: `[^…]`.
    pub const fn not(self) -> Self {
        Self { inverted: !self.inverted, ..self }
    }

    /// Whether a character is in the set. White space beyond ASCII is in no range: llama.cpp replaces it by a vertical
    /// tab before it looks.
    pub fn contains(self, c: char) -> bool {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        let class = class_of(c);
        let in_ranges = || self.ranges.iter().any(|&(first, last)| first <= c && c <= last);
        let found = self.classes & class != 0 || (class != class::WIDE_SPACE && in_ranges());
        found != self.inverted
    }
}

#[cfg(test)]
thread_local! {
    /// How often [`Set::contains`] ran on this thread.
    pub static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn class_of(c: char) -> u16 {
    match ASCII.get(c as usize) {
        Some(&class) => class,
        None if c.is_whitespace() => class::WIDE_SPACE,
        None => match c.general_category_group() {
            GeneralCategoryGroup::Letter => class::LETTER,
            GeneralCategoryGroup::Number => class::NUMBER,
            GeneralCategoryGroup::Mark => class::MARK,
            GeneralCategoryGroup::Punctuation => class::PUNCTUATION,
            GeneralCategoryGroup::Symbol => class::SYMBOL,
            GeneralCategoryGroup::Separator | GeneralCategoryGroup::Other => class::OTHER,
        },
    }
}

const ASCII: [u16; 128] = ascii();

const fn ascii() -> [u16; 128] {
    let mut table = [0; 128];
    let mut code = 0;
    while code < 128 {
        table[code] = match code as u8 {
            b'a'..=b'z' => class::LOWER,
            b'A'..=b'Z' => class::UPPER,
            b'0'..=b'9' => class::DIGIT,
            b' ' => class::BLANK,
            b'\r' | b'\n' => class::BREAK,
            b'\t' | 0x0b | 0x0c => class::SPACE,
            b'$' | b'+' | b'<'..=b'>' | b'^' | b'`' | b'|' | b'~' => class::SYMBOL,
            b'!'..=b'~' => class::PUNCTUATION,
            _ => class::OTHER,
        };
        code += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_classes_are_the_general_categories() {
        for c in '\0'..='\x7f' {
            let group = c.general_category_group();
            assert_eq!(LETTER.contains(c), group == GeneralCategoryGroup::Letter, "{c:?}");
            assert_eq!(NUMBER.contains(c), group == GeneralCategoryGroup::Number, "{c:?}");
            assert_eq!(PUNCTUATION.contains(c), group == GeneralCategoryGroup::Punctuation, "{c:?}");
            assert_eq!(SYMBOL.contains(c), group == GeneralCategoryGroup::Symbol, "{c:?}");
            assert_eq!(SPACE.contains(c), c.is_whitespace(), "{c:?}");
            assert_eq!(SPACE.not().contains(c), !c.is_whitespace(), "{c:?}");
        }
    }

    #[test]
    fn categories_are_those_of_unicode_15_1() {
        // U+2EBF0 is a letter since 15.1; U+1C89 is one since 16.0.
        assert!(LETTER.contains('\u{2ebf0}'));
        assert!(!LETTER.contains('\u{1c89}'));
        let groups = [LETTER, NUMBER, MARK, PUNCTUATION, SYMBOL];
        let counts = groups.map(|set| ('\0'..=char::MAX).filter(|&c| set.contains(c)).count());
        assert_eq!(counts, [136_726, 1831, 2450, 842, 7775]);
    }

    #[test]
    fn wide_space_is_in_no_range() {
        let wide = Set::ranges(&[('\u{800}', '\u{4e00}')]);
        assert!(wide.contains('、') && !wide.contains('\u{3000}') && SPACE.contains('\u{3000}'));
    }
}
