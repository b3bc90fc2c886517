//! Graphs of the caller: a part of a model, or a model of one's own, loaded on a device and run over rows.
//!
//! A [`Graph`] may begin with token ids, with rows that the caller gives, or with both, and ends in one f32 row for each row
//! that is asked for. It is planned like a built-in model, by the same passes, and runs by the same kernels, so a model that
//! is cut into parts gives the bits of the whole: what one part gives is what the next one is given
//! (docs/decisions/0019-graphs-of-the-host.md).
//!
//! Start reading at [`GraphProgram::run`].

mod error;
mod tensors;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use unisonic_core::format::TensorInfo;
use unisonic_core::numerics::range::{LOGIT_LIMIT, is_below};
use unisonic_core::plan::{
    Batch, Device, DeviceInfo, Limits, Op as Step, PAGE_TOKENS, Plan, Program, Progress, RangeFlag,
    WeightSource,
};
use unisonic_planner::PlanOptions;
use unisonic_planner::graph::{Element, Graph, Op};

pub use error::GraphError;
pub use tensors::GraphTensors;

use crate::kv::{KvCache, PageTable, locked};
use crate::{DEFAULT_CONTEXT_LEN, EngineError};

/// How to load a graph. None of these can change a bit of any result.
#[derive(Clone)]
pub struct GraphOptions<'a> {
    /// Longest sequence, in rows; `None`: what the graph says, 8192 at most.
    pub context_len: Option<u32>,
    /// Sequences that can be at full length at a time.
    pub sequences: u32,
    /// Most rows that run at once: longer inputs are run in pieces.
    pub chunk_rows: u32,
    /// Switches of the planner.
    pub plan: PlanOptions<'a>,
}

impl Default for GraphOptions<'_> {
    fn default() -> Self {
        Self { context_len: None, sequences: 1, chunk_rows: 64, plan: PlanOptions::default() }
    }
}

/// The rows of a run: as many of each kind as the graph takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphRows<'a> {
    /// A token id for each row; none for a graph without tokens.
    pub tokens: &'a [u32],
    /// The values of each row, one row after the other; none for a graph without an input.
    pub values: &'a [f32],
}

/// A graph loaded on a device.
pub struct GraphProgram {
    program: Box<dyn Program>,
    cache: Arc<Mutex<KvCache>>,
    takes_tokens: bool,
    input_width: Option<u32>,
    has_state: bool,
    context_len: u32,
    chunk_rows: u32,
}

/// A sequence of rows with its KV pages, for one program alone.
#[derive(Debug)]
pub struct GraphSequence {
    len: usize,
    pages: PageTable,
}

impl GraphSequence {
    /// Rows that have been run.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no row has been run.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all rows past the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.pages.shrink(self.len.div_ceil(PAGE_TOKENS as usize));
    }
}

impl Drop for GraphSequence {
    fn drop(&mut self) {
        self.pages.shrink(0);
    }
}

impl GraphProgram {
    /// Plans a graph and loads it on the device, with tensors of a file or [`GraphTensors`]. `progress` is called from any thread, never twice at a time.
    pub fn load(
        graph: &Graph,
        tensors: &[TensorInfo],
        weights: &dyn WeightSource,
        device: &dyn Device,
        options: &GraphOptions<'_>,
        progress: &Progress<'_>,
    ) -> Result<Self, GraphError> {
        let plan = unisonic_planner::plan_graph(graph.clone(), tensors, weights, &options.plan)?;
        let context_len = context_len(graph, options)?;
        at_least_one("sequences", options.sequences)?;
        at_least_one("chunk_rows", options.chunk_rows)?;
        let chunk_rows = options.chunk_rows.min(context_len);
        let pages = context_len.div_ceil(PAGE_TOKENS).checked_mul(options.sequences);
        let kv_pages = pages.ok_or_else(|| EngineError::Option {
            option: "sequences",
            found: options.sequences.to_string(),
            expected: format!("few enough that {context_len} rows for each fit 2^32 pages"),
        })?;
        let has_state = plan.steps.iter().any(|step| sees_position(&step.op));
        let limits = Limits { kv_pages, max_rows: chunk_rows, max_outputs: chunk_rows };
        let program = device.load(Arc::new(plan), weights, limits, progress)?;
        let input = graph.nodes.iter().find(|node| node.op == Op::Input).map(|node| node.results[0]);
        let input_width = input.and_then(|input| match graph.ty(input).element {
            Element::F32 { width } => Some(width),
            _ => None,
        });
        let takes_tokens = graph.nodes.iter().any(|node| node.op == Op::Tokens);
        let cache = Arc::new(Mutex::new(KvCache::new(kv_pages)));
        Ok(Self { program, cache, takes_tokens, input_width, has_state, context_len, chunk_rows })
    }

    /// The plan that runs.
    pub fn plan(&self) -> &Plan {
        self.program.plan()
    }

    /// The device that it runs on.
    pub fn device(&self) -> &DeviceInfo {
        self.program.device()
    }

    /// Whether the graph takes a token id a row.
    pub fn takes_tokens(&self) -> bool {
        self.takes_tokens
    }

    /// Values of a row that the graph takes; none if it takes no rows of values.
    pub fn input_width(&self) -> Option<u32> {
        self.input_width
    }

    /// Values of a row that it gives.
    pub fn output_width(&self) -> usize {
        self.plan().output_width()
    }

    /// Longest sequence, in rows.
    pub fn context_len(&self) -> u32 {
        self.context_len
    }

    /// Whether what comes of a row depends on its position or on rows before it. If not, a sequence stays empty, and any
    /// number of rows can be run.
    pub fn has_state(&self) -> bool {
        self.has_state
    }

    /// An empty sequence.
    pub fn sequence(&self) -> GraphSequence {
        GraphSequence { len: 0, pages: PageTable::new(Arc::clone(&self.cache), None) }
    }

    /// Appends rows to a sequence, in pieces, and hands over what the graph makes of each row from index `first_output` on:
    /// `sink(index, values)`, in order.
    ///
    /// After an error the sequence holds the rows before the one that failed, or before its piece.
    pub fn run(
        &mut self,
        sequence: &mut GraphSequence,
        rows: GraphRows<'_>,
        first_output: usize,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), GraphError> {
        let count = self.count(&rows)?;
        if !sequence.pages.is_of(&self.cache) {
            return Err(EngineError::ForeignSession.into());
        }
        if self.has_state && sequence.len + count > self.context_len as usize {
            return Err(EngineError::ContextOverflow {
                needed: sequence.len + count,
                context_len: self.context_len,
                trained_len: self.plan().context_len,
            }
            .into());
        }
        let mut start = 0;
        while start < count {
            let end = count.min(start + self.chunk_rows as usize);
            self.run_piece(sequence, &rows, start..end, first_output, sink)?;
            start = end;
        }
        Ok(())
    }

    /// How many rows there are.
    fn count(&self, rows: &GraphRows<'_>) -> Result<usize, GraphError> {
        let width = self.input_width.map_or(0, |width| width as usize);
        let of_values = rows.values.len().checked_div(width).unwrap_or(0);
        let count = if self.takes_tokens { rows.tokens.len() } else { of_values };
        let expected_tokens = if self.takes_tokens { count } else { 0 };
        if rows.tokens.len() == expected_tokens && Some(rows.values.len()) == count.checked_mul(width) {
            return Ok(count);
        }
        let expected = match (self.takes_tokens, self.input_width) {
            (true, None) => "token ids and no values".to_owned(),
            (true, Some(width)) => format!("a token id and {width} values for each row"),
            (false, Some(width)) => format!("{width} values for each row and no token ids"),
            (false, None) => "nothing".to_owned(),
        };
        Err(GraphError::Rows { expected, tokens: rows.tokens.len(), values: rows.values.len() })
    }

    fn run_piece(
        &mut self,
        sequence: &mut GraphSequence,
        rows: &GraphRows<'_>,
        piece: Range<usize>,
        first_output: usize,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), GraphError> {
        let count = piece.len();
        let base = if self.has_state { sequence.len } else { 0 };
        let pages = (base + count).div_ceil(PAGE_TOKENS as usize);
        sequence.pages.grow(pages).map_err(|(needed, free)| EngineError::OutOfPages {
            needed,
            free,
            total: locked(&self.cache).page_use().total,
        })?;
        let positions: Vec<u32> = (base..base + count).map(|position| position as u32).collect();
        let zeros = vec![0; count];
        let outputs: Vec<u32> = (piece.start.max(first_output).min(piece.end)..piece.end)
            .map(|row| (row - piece.start) as u32)
            .collect();
        // What nothing in the graph reads, the plan does not ask for.
        let width = self.program.plan().input.and(self.input_width).map_or(0, |width| width as usize);
        let batch = Batch {
            tokens: if self.takes_tokens { &rows.tokens[piece.clone()] } else { &zeros },
            positions: &positions,
            sequences: &zeros,
            page_tables: &[sequence.pages.pages()],
            outputs: &outputs,
            values: if width > 0 { &rows.values[piece.start * width..piece.end * width] } else { &[] },
        };
        let flag = self.program.run(&batch)?.first().copied();
        let good = flag.map_or(count, |flag| flag.row as usize);
        if self.has_state {
            sequence.len = base + good;
        }
        for (output, &row) in outputs.iter().enumerate().take_while(|&(_, &row)| (row as usize) < good) {
            let values = self.program.logits(output);
            if !values.iter().all(|&value| is_below(value, LOGIT_LIMIT)) {
                return Err(self.range_error(positions[row as usize], "output").into());
            }
            sink(piece.start + row as usize, values);
        }
        match flag {
            Some(RangeFlag { row, step }) => {
                let label = &self.plan().steps[step as usize].label;
                Err(self.range_error(positions[row as usize], label).into())
            }
            None => Ok(()),
        }
    }

    fn range_error(&self, position: u32, step: &str) -> EngineError {
        EngineError::Range { position, step: step.to_owned(), profile: self.device().profile.clone() }
    }
}

/// Whether an operation asks where a row is in its sequence, or what is before it.
fn sees_position(op: &Step) -> bool {
    match op {
        Step::EmbedPositions { .. } | Step::Rope { .. } | Step::WriteKv { .. } | Step::Attention { .. } => {
            true
        }
        Step::PrepareQuery { rope, .. } => rope.is_some(),
        _ => false,
    }
}

fn at_least_one(option: &'static str, value: u32) -> Result<(), EngineError> {
    match value {
        0 => Err(EngineError::Option { option, found: "0".into(), expected: "at least 1".into() }),
        _ => Ok(()),
    }
}

fn context_len(graph: &Graph, options: &GraphOptions<'_>) -> Result<u32, EngineError> {
    match options.context_len {
        None => Ok(graph.context_len.min(DEFAULT_CONTEXT_LEN)),
        Some(len) if (1..=graph.context_len).contains(&len) => Ok(len),
        Some(len) => Err(EngineError::Option {
            option: "context length",
            found: len.to_string(),
            expected: format!("1 to {}, the context of the graph", graph.context_len),
        }),
    }
}
