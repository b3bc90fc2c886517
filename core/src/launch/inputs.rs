//! What the host writes before a run: the batch, filled up to the shape of the launches, as one block of words.
//!
//! | input | words | what |
//! |---|---|---|
//! | tokens | rows | token ids |
//! | positions | rows | absolute positions |
//! | sequences | rows | which list of `pages` |
//! | outputs | outputs | rows whose logits are wanted |
//! | tiles | 2·rows | first row and number of rows of each [`Tile`] |
//! | pages | rows·pages a sequence | page numbers of each sequence |
//!
//! **Filling up.** Rows that the batch does not have are token 0 at positions 0, 1, ... of a sequence of their own, in pages
//! behind those of the batch: they write what nobody reads, and no two the same slot. Output rows that it does not have
//! repeat row 0.

use std::collections::HashMap;

use super::{Memory, Shape};
use crate::kir::abi::ALIGN_BYTES;
use crate::plan::{Batch, PAGE_TOKENS};

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Token ids.
    Tokens,
    /// Positions.
    Positions,
    /// Sequences.
    Sequences,
    /// Output rows.
    Outputs,
    /// Tiles of rows.
    Tiles,
    /// Page numbers.
    Pages,
}

impl Input {
    /// In the order of the block.
    pub const ALL: [Input; 6] =
        [Input::Tokens, Input::Positions, Input::Sequences, Input::Outputs, Input::Tiles, Input::Pages];
}

/// Where inputs lie, for a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputLayout {
    /// The shape.
    pub shape: Shape,
    /// Most rows of a tile; 0 where no launch has tiles.
    pub rows_a_tile: u32,
}

/// Rows of the batch one after the other, of one sequence and at ascending positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// First row.
    pub row: u32,
    /// How many.
    pub rows: u32,
}

impl InputLayout {
    /// Words of an input.
    pub fn len(&self, input: Input) -> u32 {
        let Shape { rows, outputs, .. } = self.shape;
        match input {
            Input::Tokens | Input::Positions | Input::Sequences => rows,
            Input::Outputs => outputs,
            Input::Tiles => 2 * rows,
            Input::Pages => rows * self.shape.pages_a_sequence(),
        }
    }

    /// Where an input begins.
    pub fn offset_bytes(&self, input: Input) -> u64 {
        let before = Input::ALL.into_iter().take_while(|&other| other != input);
        before.map(|input| self.padded_len_bytes(input)).sum()
    }

    /// All inputs.
    pub fn len_bytes(&self) -> u64 {
        Input::ALL.into_iter().map(|input| self.padded_len_bytes(input)).sum()
    }

    fn padded_len_bytes(&self, input: Input) -> u64 {
        (4 * u64::from(self.len(input))).next_multiple_of(ALIGN_BYTES)
    }

    /// The block of a batch that fits the shape and has been checked, and how many tiles it has. `bytes` is replaced.
    ///
    /// # Panics
    /// If the batch does not fit: a bug of the caller.
    pub fn fill(&self, batch: &Batch<'_>, memory: &Memory, limit_pages: u32, bytes: &mut Vec<u8>) -> u32 {
        let filled = Filled::new(self.shape, batch, memory, limit_pages);
        let tiles = self.tiles(&filled);
        bytes.clear();
        bytes.resize(self.len_bytes() as usize, 0);
        for input in Input::ALL {
            let start = self.offset_bytes(input) as usize;
            let words = match input {
                Input::Tokens => &filled.tokens,
                Input::Positions => &filled.positions,
                Input::Sequences => &filled.sequences,
                Input::Outputs => &filled.outputs,
                Input::Tiles => &tiles.iter().flat_map(|tile| [tile.row, tile.rows]).collect(),
                Input::Pages => &filled.pages,
            };
            assert!(words.len() <= self.len(input) as usize, "{input:?}");
            for (to, word) in bytes[start..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
        }
        tiles.len() as u32
    }

    /// Tiles of the rows, those that see most first.
    fn tiles(&self, filled: &Filled) -> Vec<Tile> {
        if self.rows_a_tile == 0 {
            return vec![];
        }
        let mut tiles: Vec<Tile> = vec![];
        for row in 0..self.shape.rows {
            let follows = row > 0 && {
                let [before, at] = [row as usize - 1, row as usize];
                filled.sequences[before] == filled.sequences[at]
                    && filled.positions[before] < filled.positions[at]
            };
            match tiles.last_mut() {
                Some(tile) if follows && tile.rows < self.rows_a_tile => tile.rows += 1,
                _ => tiles.push(Tile { row, rows: 1 }),
            }
        }
        let last_position = |tile: &Tile| filled.positions[(tile.row + tile.rows - 1) as usize];
        tiles.sort_by_key(|tile| std::cmp::Reverse(last_position(tile)));
        tiles
    }
}

/// The lists of a batch, filled up.
struct Filled {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    sequences: Vec<u32>,
    outputs: Vec<u32>,
    pages: Vec<u32>,
}

impl Filled {
    fn new(shape: Shape, batch: &Batch<'_>, memory: &Memory, limit_pages: u32) -> Self {
        let missing = shape.rows - batch.rows() as u32;
        let stride = shape.pages_a_sequence() as usize;
        // Only sequences that have rows have a list, in the order of their first row.
        let mut list_of = HashMap::new();
        let (mut pages, mut sequences) = (vec![], vec![]);
        for (&sequence, &position) in batch.sequences.iter().zip(batch.positions) {
            let lists = list_of.len();
            let list = *list_of.entry(sequence).or_insert_with(|| {
                pages.resize((lists + 1) * stride, 0);
                lists
            });
            let of_sequence = batch.page_tables[sequence as usize];
            let needed = (position / PAGE_TOKENS) as usize + 1;
            pages[list * stride..][..needed].copy_from_slice(&of_sequence[..needed]);
            sequences.push(list as u32);
        }
        if missing > 0 {
            let spare = limit_pages..memory.pages;
            let own = list_of.len() as u32;
            pages.extend(spare.take(stride));
            sequences.extend((0..missing).map(|_| own));
        }
        let padding = |len: usize| std::iter::repeat_n(0, len);
        let lacking_outputs = shape.outputs as usize - batch.outputs.len();
        Self {
            tokens: batch.tokens.iter().copied().chain(padding(missing as usize)).collect(),
            positions: batch.positions.iter().copied().chain(0..missing).collect(),
            sequences,
            outputs: batch.outputs.iter().copied().chain(padding(lacking_outputs)).collect(),
            pages,
        }
    }
}
