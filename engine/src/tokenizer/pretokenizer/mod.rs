//! Cutting a text into pieces before byte-level BPE, which never merges across pieces.
//!
//! Start at `rows.rs`, which has one row for each pre-tokenizer; [`Pass`] and its rules say what the rows mean.

mod cased_letters;
mod rows;
mod rule;
mod set;

#[cfg(test)]
mod tests;

use rule::Pass;

/// What `tokenizer.ggml.pre` decides.
#[derive(Clone, Copy, Debug)]
pub struct Pre {
    passes: &'static [Pass],
    /// What tokens are spelled in.
    pub spelling: Spelling,
    /// A piece that is a token as a whole is that token, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether prompts begin with BOS.
    pub add_bos: AddBos,
}

/// Whether prompts begin with BOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddBos {
    /// Only if the file says so.
    No,
    /// Unless the file says not.
    Yes,
    /// Even if the file says not.
    Always,
}

/// What the tokens of a BPE vocabulary are spelled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Bytes, each written as one of 256 characters (`byte_symbols.rs`).
    Bytes,
    /// Characters, with `▁` for a space. What has no token is written as bytes `<0xXX>`, and a piece of line feeds that
    /// is a token as a whole is that token.
    Characters,
}

impl Pre {
    /// What a file without a name is cut by.
    pub const DEFAULT: Pre = rows::DEFAULT;
    /// What `tokenizer.ggml.model` = `gemma4` means.
    pub const GEMMA4: Pre = rows::GEMMA4;

    /// The rules of a name.
    pub fn from_name(name: &str) -> Option<Pre> {
        rows::ROWS.iter().find(|(names, _)| names.contains(&name)).map(|&(_, pre)| pre)
    }

    /// Every name that is known.
    pub fn names() -> impl Iterator<Item = &'static str> {
        rows::ROWS.iter().flat_map(|(names, _)| *names).copied()
    }

    /// Cuts a text into pieces, none of them empty; put together they are the text. Takes time in proportion to the
    /// text's length.
    pub fn pieces<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut pieces = Vec::new();
        pieces.extend(Some(text).filter(|text| !text.is_empty()));
        for pass in self.passes {
            let mut cut = Vec::with_capacity(pieces.len());
            for piece in pieces {
                pass.cut(piece, &mut cut);
            }
            pieces = cut;
        }
        pieces
    }
}
