//! The rows of one run.

use super::{Limits, Plan};
use crate::numerics::range::{ACTIVATION_LIMIT, is_below};

/// Tokens in a KV page; also the attention chunk of docs/numerics.md, so that a page is a unit of arithmetic too.
pub const PAGE_TOKENS: u32 = 64;

/// Rows to run through a plan. Row `i` is token `tokens[i]` at absolute position `positions[i]` of the sequence whose
/// KV pages are `page_tables[sequences[i]]`: position p lives in slot `p % PAGE_TOKENS` of page
/// `page_table[p / PAGE_TOKENS]`.
///
/// Sequences may share pages that they only read; no two rows of a batch write the same slot.
///
/// All keys and values of the batch are written before any of its rows attends, so the rows of a sequence may come
/// in one batch or in many: the results are the same bits.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Token ids.
    pub tokens: &'a [u32],
    /// Absolute positions.
    pub positions: &'a [u32],
    /// Index into `page_tables` for each row.
    pub sequences: &'a [u32],
    /// Page numbers of each sequence.
    pub page_tables: &'a [&'a [u32]],
    /// Rows whose logits are wanted, ascending.
    pub outputs: &'a [u32],
    /// The rows of [`Plan::input`], one after the other; empty where the plan has none.
    pub values: &'a [f32],
}

/// A batch that cannot be run; a mistake of the caller, found before anything is computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BatchError {
    /// The per-row lists differ in length.
    #[error("batch lists differ in length: {tokens} tokens, {positions} positions, {sequences} sequences")]
    Lengths {
        /// Entries of `tokens`.
        tokens: usize,
        /// Entries of `positions`.
        positions: usize,
        /// Entries of `sequences`.
        sequences: usize,
    },
    /// More rows than the program was loaded for.
    #[error("batch of {rows} rows, but the program was loaded for at most {max_rows}")]
    TooManyRows {
        /// Rows in the batch.
        rows: usize,
        /// Limit given at load.
        max_rows: u32,
    },
    /// More output rows than the program was loaded for.
    #[error("batch with {outputs} output rows, but the program was loaded for at most {max_outputs}")]
    TooManyOutputs {
        /// Entries of `outputs`.
        outputs: usize,
        /// Limit given at load.
        max_outputs: u32,
    },
    /// A token id that the model does not have.
    #[error("row {row}: token id {token}, but the vocabulary has {vocab_len} tokens")]
    Token {
        /// Row.
        row: usize,
        /// Its token.
        token: u32,
        /// Vocabulary.
        vocab_len: u32,
    },
    /// A sequence without a page table, or a position past it.
    #[error("row {row}: no KV page for position {position} of sequence {sequence}")]
    NoPage {
        /// Row.
        row: usize,
        /// Its position.
        position: u32,
        /// Its sequence.
        sequence: u32,
    },
    /// A position past all pages of the program, which only a page table that names a page twice can reach.
    #[error(
        "row {row}: position {position}, but the program has {kv_pages} KV pages of {PAGE_TOKENS} positions"
    )]
    Position {
        /// Row.
        row: usize,
        /// Its position.
        position: u32,
        /// Pages given at load.
        kv_pages: u32,
    },
    /// A page number that the program does not have.
    #[error("row {row}: KV page {page}, but the program has {kv_pages}")]
    Page {
        /// Row.
        row: usize,
        /// Page number.
        page: u32,
        /// Pages given at load.
        kv_pages: u32,
    },
    /// Two rows would write the same slot of the KV cache.
    #[error(
        "two rows of the batch write slot {slot} of KV page {page}: equal positions, or a page that is shared"
    )]
    SharedSlot {
        /// Page number.
        page: u32,
        /// Slot in the page.
        slot: u32,
    },
    /// `outputs` is not ascending or names a row that does not exist.
    #[error("output list is not ascending rows of the batch (entry {entry} is {row})")]
    Outputs {
        /// Index into `outputs`.
        entry: usize,
        /// Its value.
        row: u32,
    },
    /// Values of the host that are not as many as its rows have.
    #[error("the batch gives {found} values, but {rows} rows of the plan's input have {expected}")]
    Values {
        /// Entries of `values`.
        found: usize,
        /// Rows of the batch.
        rows: usize,
        /// Entries that there should be.
        expected: usize,
    },
    /// A value of the host that the arithmetic is not defined for.
    #[error(
        "row {row}: value {index} is {value}, but values of the host are finite and below 2^64 in magnitude"
    )]
    Value {
        /// Row.
        row: usize,
        /// Index into the row.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A batch whose rows cannot be followed by more of the same sequences.
    #[error(
        "{rows} rows with {outputs} outputs of {sequences} sequences cannot run on: each row has to be an output and the \
         only one of its sequence"
    )]
    RunsOn {
        /// Rows.
        rows: usize,
        /// Entries of `outputs`.
        outputs: usize,
        /// Different entries of `sequences`.
        sequences: usize,
    },
}

impl Batch<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Checks everything that running relies on; every device calls it first.
    pub fn check(&self, plan: &Plan, limits: Limits) -> Result<(), BatchError> {
        let Limits { kv_pages, max_rows, max_outputs } = limits;
        let vocab_len = plan.vocab_len;
        let rows = self.rows();
        if self.positions.len() != rows || self.sequences.len() != rows {
            return Err(BatchError::Lengths {
                tokens: rows,
                positions: self.positions.len(),
                sequences: self.sequences.len(),
            });
        }
        if rows > max_rows as usize {
            return Err(BatchError::TooManyRows { rows, max_rows });
        }
        if self.outputs.len() > max_outputs as usize {
            return Err(BatchError::TooManyOutputs { outputs: self.outputs.len(), max_outputs });
        }
        for row in 0..rows {
            let (token, position, sequence) = (self.tokens[row], self.positions[row], self.sequences[row]);
            if token >= vocab_len {
                return Err(BatchError::Token { row, token, vocab_len });
            }
            let needed = position as usize / PAGE_TOKENS as usize + 1;
            let pages = self.page_tables.get(sequence as usize).and_then(|table| table.get(..needed));
            let Some(pages) = pages else {
                return Err(BatchError::NoPage { row, position, sequence });
            };
            if let Some(&page) = pages.iter().find(|&&page| page >= kv_pages) {
                return Err(BatchError::Page { row, page, kv_pages });
            }
            if position / PAGE_TOKENS >= kv_pages {
                return Err(BatchError::Position { row, position, kv_pages });
            }
        }
        self.check_values(plan)?;
        self.check_slots()?;
        for (entry, &row) in self.outputs.iter().enumerate() {
            let ascending = entry == 0 || self.outputs[entry - 1] < row;
            if !ascending || row as usize >= rows {
                return Err(BatchError::Outputs { entry, row });
            }
        }
        Ok(())
    }

    /// Checks also that it can be run `runs` times, each row at the position after the one before.
    pub fn check_runs(&self, runs: u32, plan: &Plan, limits: Limits) -> Result<(), BatchError> {
        self.check(plan, limits)?;
        if runs <= 1 {
            return Ok(());
        }
        let mut sequences = self.sequences.to_vec();
        sequences.sort_unstable();
        sequences.dedup();
        let (rows, outputs, sequences) = (self.rows(), self.outputs.len(), sequences.len());
        if outputs != rows || sequences != rows {
            return Err(BatchError::RunsOn { rows, outputs, sequences });
        }
        (1..runs).try_for_each(|run| {
            let later = |position: &u32| position.saturating_add(run);
            let positions: Vec<u32> = self.positions.iter().map(later).collect();
            Batch { positions: &positions, ..*self }.check(plan, limits)
        })
    }

    /// The plan's input has as many values as it needs, and all of them in range.
    fn check_values(&self, plan: &Plan) -> Result<(), BatchError> {
        let (rows, width) = (self.rows(), plan.input.map_or(0, |input| plan.row_width(input)));
        let (found, expected) = (self.values.len(), rows.saturating_mul(width));
        if found != expected {
            return Err(BatchError::Values { found, rows, expected });
        }
        match self.values.iter().position(|&value| !is_below(value, ACTIVATION_LIMIT)) {
            Some(at) => Err(BatchError::Value { row: at / width, index: at % width, value: self.values[at] }),
            None => Ok(()),
        }
    }

    /// Each row writes a slot of its own.
    fn check_slots(&self) -> Result<(), BatchError> {
        let slot = |row: usize| {
            let position = self.positions[row];
            let pages = self.page_tables[self.sequences[row] as usize];
            (pages[(position / PAGE_TOKENS) as usize], position % PAGE_TOKENS)
        };
        let mut slots: Vec<_> = (0..self.rows()).map(slot).collect();
        slots.sort_unstable();
        match slots.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(BatchError::SharedSlot { page: pair[0].0, slot: pair[0].1 }),
            None => Ok(()),
        }
    }
}
