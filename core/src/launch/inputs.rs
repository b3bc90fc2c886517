//! What the host writes before a run: the batch, filled up to the shape of the launches, as one block of words.
//!
//! | input | words | what |
//! |---|---|---|
//! | tokens | rows | token ids |
//! | positions | rows | absolute positions |
//! | sequences | rows | which list of `pages` |
//! | tiles | 2·rows | first row and number of rows of each [`Tile`] |
//! | outputs | outputs | rows whose logits are wanted |
//! | pages | rows·pages a sequence | page numbers of each sequence |
//! | runs | outputs | 0: how many runs have gone before this one with the same block |
//! | values | rows·width | the rows of [`Plan::input`](crate::plan::Plan::input), f32; none where there is none |
//!
//! The first four are there twice: for all rows, and for the output rows alone, for steps that compute only those.
//!
//! **Running on.** Where output row `i` is row `i` and each row has a sequence of its own, launches for
//! [`Wanted::Tokens`](super::Wanted) leave the block of the next run behind: the token that they picked, the position after.
//!
//! **Filling up.** Rows that the batch does not have are token 0 at positions 0, 1, ... of a sequence of their own, in pages
//! behind those of the batch: they write what nobody reads, and no two the same slot. Output rows that it does not have
//! repeat row 0.

use std::collections::HashMap;

use super::{Memory, Shape};
use crate::kir::abi::ALIGN_BYTES;
use crate::numerics::embedding::host_row;
use crate::plan::{Batch, PAGE_TOKENS, Rows};

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Token ids.
    Tokens(Rows),
    /// Positions.
    Positions(Rows),
    /// Sequences.
    Sequences(Rows),
    /// Tiles of rows.
    Tiles(Rows),
    /// Output rows.
    Outputs,
    /// Page numbers.
    Pages,
    /// Runs before this one.
    Runs,
    /// Values of the host.
    Values,
}

impl Input {
    /// In the order of the block.
    pub const ALL: [Input; 12] = [
        Input::Tokens(Rows::All),
        Input::Positions(Rows::All),
        Input::Sequences(Rows::All),
        Input::Tiles(Rows::All),
        Input::Tokens(Rows::Outputs),
        Input::Positions(Rows::Outputs),
        Input::Sequences(Rows::Outputs),
        Input::Tiles(Rows::Outputs),
        Input::Outputs,
        Input::Pages,
        Input::Runs,
        Input::Values,
    ];
}

/// Where inputs lie, for a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputLayout {
    /// The shape.
    pub shape: Shape,
    /// Most rows of a tile; 0 where no launch has tiles.
    pub rows_a_tile: u32,
    /// Values that the host gives for a row; 0 where it gives none.
    pub values_a_row: u32,
}

/// Tiles of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TileCounts {
    /// Of all rows.
    pub all: u32,
    /// Of the output rows.
    pub outputs: u32,
}

impl TileCounts {
    /// Those of some rows.
    pub fn of(self, rows: Rows) -> u32 {
        match rows {
            Rows::All => self.all,
            Rows::Outputs => self.outputs,
        }
    }
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
        let shape = self.shape;
        match input {
            Input::Tokens(of) | Input::Positions(of) | Input::Sequences(of) => shape.count(of),
            Input::Tiles(of) => 2 * shape.count(of),
            Input::Outputs | Input::Runs => shape.outputs,
            Input::Pages => shape.rows * shape.pages_a_sequence(),
            Input::Values => shape.rows * self.values_a_row,
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

    /// The block of a batch that fits the shape and has been checked for `runs`, and how many tiles it has. `bytes` is
    /// replaced.
    ///
    /// # Panics
    /// If the batch does not fit: a bug of the caller.
    pub fn fill(
        &self,
        batch: &Batch<'_>,
        runs: u32,
        memory: &Memory,
        limit_pages: u32,
        bytes: &mut Vec<u8>,
    ) -> TileCounts {
        let filled = Filled::new(self.shape, batch, runs, memory, limit_pages);
        let of_outputs = filled.outputs();
        let tiles = [&filled, &of_outputs].map(|filled| self.tiles(filled));
        let [all_tiles, output_tiles] =
            [0, 1].map(|i| tiles[i].iter().flat_map(|tile| [tile.row, tile.rows]).collect::<Vec<u32>>());
        bytes.clear();
        bytes.resize(self.len_bytes() as usize, 0);
        for input in Input::ALL {
            let of = |rows| if rows == Rows::All { &filled } else { &of_outputs };
            let words = match input {
                Input::Tokens(rows) => &of(rows).tokens,
                Input::Positions(rows) => &of(rows).positions,
                Input::Sequences(rows) => &of(rows).sequences,
                Input::Tiles(Rows::All) => &all_tiles,
                Input::Tiles(Rows::Outputs) => &output_tiles,
                Input::Outputs => &filled.outputs,
                Input::Pages => &filled.pages,
                // The block is full of zeros; values are no words.
                Input::Runs | Input::Values => &vec![],
            };
            assert!(words.len() <= self.len(input) as usize, "{input:?}");
            let start = self.offset_bytes(input) as usize;
            for (to, word) in bytes[start..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
        }
        self.fill_values(batch.values, bytes);
        TileCounts { all: tiles[0].len() as u32, outputs: tiles[1].len() as u32 }
    }

    /// What the host gives, as it enters the arithmetic. Rows that only fill up are zeros.
    fn fill_values(&self, values: &[f32], bytes: &mut [u8]) {
        let start = self.offset_bytes(Input::Values) as usize;
        let mut row = vec![0.0; self.values_a_row as usize];
        let rows = values.chunks_exact(row.len().max(1));
        for (to, from) in bytes[start..].chunks_exact_mut(4 * row.len().max(1)).zip(rows) {
            host_row(from, &mut row);
            to.as_chunks_mut::<4>().0.iter_mut().zip(&row).for_each(|(to, x)| *to = x.to_le_bytes());
        }
    }

    /// Tiles of rows, those that see most first.
    fn tiles(&self, filled: &Filled) -> Vec<Tile> {
        if self.rows_a_tile == 0 {
            return vec![];
        }
        let mut tiles: Vec<Tile> = vec![];
        for (row, (&sequence, &position)) in filled.sequences.iter().zip(&filled.positions).enumerate() {
            let follows =
                row > 0 && filled.sequences[row - 1] == sequence && filled.positions[row - 1] < position;
            match tiles.last_mut() {
                Some(tile) if follows && tile.rows < self.rows_a_tile => tile.rows += 1,
                _ => tiles.push(Tile { row: row as u32, rows: 1 }),
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
    /// The output rows alone.
    fn outputs(&self) -> Self {
        let pick = |list: &[u32]| self.outputs.iter().map(|&row| list[row as usize]).collect();
        Self {
            tokens: pick(&self.tokens),
            positions: pick(&self.positions),
            sequences: pick(&self.sequences),
            outputs: vec![],
            pages: vec![],
        }
    }

    fn new(shape: Shape, batch: &Batch<'_>, runs: u32, memory: &Memory, limit_pages: u32) -> Self {
        let last = runs.max(1) - 1;
        let missing = shape.rows - batch.rows() as u32;
        let stride = shape.pages_a_sequence() as usize;
        // Only sequences that have rows have a list, in the order of their first row; and how much of it is there.
        let mut list_of: HashMap<u32, (usize, usize)> = HashMap::new();
        let (mut pages, mut sequences) = (vec![], Vec::with_capacity(shape.rows as usize));
        for (&sequence, &position) in batch.sequences.iter().zip(batch.positions) {
            let lists = list_of.len();
            let (list, len) = list_of.entry(sequence).or_insert_with(|| {
                pages.resize((lists + 1) * stride, 0);
                (lists, 0)
            });
            let needed = position_page(position + last) + 1;
            if *len < needed {
                let to = &mut pages[*list * stride..][..stride];
                to[*len..needed].copy_from_slice(&batch.page_tables[sequence as usize][*len..needed]);
                *len = needed;
            }
            sequences.push(*list as u32);
        }
        if missing > 0 {
            // Those that repeat output row 0 run on with it.
            let needed = position_page(missing - 1 + last) + 1;
            let spare = memory.pages - limit_pages;
            assert!(needed <= stride.min(spare as usize), "{needed} pages for rows that only fill up");
            pages.extend((limit_pages..memory.pages).take(needed));
            sequences.extend((0..missing).map(|_| list_of.len() as u32));
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

/// Where a position's page is in the list of its sequence.
fn position_page(position: u32) -> usize {
    (position / PAGE_TOKENS) as usize
}

#[cfg(test)]
#[path = "inputs_tests.rs"]
mod tests;
