//! A model that a handful of lines computes, lowered by hand: a token is worth the first number of its row of the table, and
//! logit v of a row is v plus the worth of all tokens of its sequence up to it.
//!
//! Step 0 breaks a range contract for token 9, step 1 for output rows at position 5.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod machine;

use std::sync::Arc;

use unisonic_core::kir::build::kernel;
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::launch::inputs::{Input, InputLayout};
use unisonic_core::launch::{
    Area, Checked, Hardware, Image, Launch, Launches, Lower, LowerError, Lowered, Memory, Place, Shape,
    Wanted, Workgroups,
};
use unisonic_core::plan::{
    Buffer, BufferId, BufferKind, Encoding, FloatSource, KvLayer, Limits, MemoryWeights, Op, Plan, Rows,
    Step, Weight, WeightId,
};

pub const VOCAB: u32 = 10;
const WIDTH: u32 = 32;
const WORKGROUP: u32 = 32;
const ROWS_A_TILE: u32 = 4;
const PAGE_LEN_BYTES: u64 = 4 * 64;

/// What a token is worth.
pub fn worth(token: u32) -> u32 {
    3 * token + 1
}

pub fn plan() -> Arc<Plan> {
    let f32_rows = |rows, width| Buffer::new(rows, BufferKind::F32 { width });
    let step = |label: &str, op| Step { label: label.into(), op };
    let (x, uncapped, logits) = (BufferId(0), BufferId(1), BufferId(2));
    Arc::new(Plan {
        architecture: "toy".into(),
        vocab_len: VOCAB,
        context_len: 4096,
        weights: vec![Weight {
            tensor: "table".into(),
            encoding: Encoding::W16(FloatSource::F32),
            rows: VOCAB,
            cols: WIDTH,
            part: None,
        }],
        buffers: vec![
            f32_rows(Rows::All, WIDTH),
            f32_rows(Rows::Outputs, VOCAB),
            f32_rows(Rows::Outputs, VOCAB),
        ],
        rope_tables: vec![],
        kv_layers: vec![KvLayer { heads: 1, head_len: 1 }],
        input: None,
        // Nobody looks at what they say.
        steps: vec![
            step("embed", Op::Embed { table: WeightId(0), scale: None, out: x }),
            step("cap", Op::SoftCap { x: uncapped, cap: 1.0, out: logits }),
        ],
        logits,
    })
}

pub fn weights() -> MemoryWeights {
    let values = (0..VOCAB).flat_map(|token| [worth(token); WIDTH as usize]);
    let bytes = values.flat_map(|value| (value as f32).to_le_bytes()).collect();
    MemoryWeights([("table".to_owned(), bytes)].into())
}

/// Lowers any plan to the toy.
pub struct ToyLower;

struct Toy {
    memory: Memory,
}

impl Lower for ToyLower {
    fn lower(&self, plan: Arc<Plan>, limits: Limits, _: Hardware) -> Result<Box<dyn Lowered>, LowerError> {
        if plan.architecture != "toy" {
            return Err(LowerError("it is no toy".to_owned()));
        }
        let Limits { kv_pages, max_rows, max_outputs } = limits;
        let largest = Shape { rows: max_rows, outputs: max_outputs, groups: kv_pages.div_ceil(16) };
        let inputs = InputLayout { shape: largest, rows_a_tile: ROWS_A_TILE, values_a_row: 0 };
        let memory = Memory {
            images: vec![Image::Bytes { weight: WeightId(0) }],
            page_len_bytes: vec![PAGE_LEN_BYTES],
            pages: kv_pages + max_rows.div_ceil(64),
            arena_len_bytes: 4 * u64::from(2 * max_rows + VOCAB * max_outputs) + 256,
            inputs_len_bytes: inputs.len_bytes(),
            largest,
        };
        Ok(Box::new(Toy { memory }))
    }
}

impl Lowered for Toy {
    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn launches(&self, shape: Shape, _: Wanted) -> Result<Launches, LowerError> {
        let Shape { rows, outputs, .. } = shape;
        let inputs = InputLayout { shape, rows_a_tile: ROWS_A_TILE, values_a_row: 0 };
        let input = |input| Place {
            area: Area::Inputs,
            offset_bytes: inputs.offset_bytes(input),
            len_bytes: 4 * u64::from(inputs.len(input)),
        };
        let arena = |offset_bytes: u64, words: u32| Place {
            area: Area::Arena,
            offset_bytes,
            len_bytes: 4 * u64::from(words),
        };
        let whole = |area, len_bytes| Place { area, offset_bytes: 0, len_bytes };
        let checked_steps = if outputs == 0 { 1 } else { 2 };
        let found = arena(0, checked_steps * rows);
        let logits = arena(found.len_bytes.next_multiple_of(256), VOCAB * outputs);
        let cache = whole(Area::Cache(0), PAGE_LEN_BYTES * u64::from(self.memory.pages));
        let table = whole(Area::Image(0), 4 * u64::from(VOCAB * WIDTH));
        let all = [Input::Tokens(Rows::All), Input::Positions(Rows::All), Input::Sequences(Rows::All)];
        let mut kernels = vec![write_kernel()];
        let mut launches = vec![Launch {
            step: 0,
            kernel: 0,
            places: [all.map(input).as_slice(), &[input(Input::Tiles(Rows::All)), input(Input::Pages)]]
                .concat()
                .into_iter()
                .chain([table, cache, found])
                .collect(),
            params: vec![shape.pages_a_sequence()],
            workgroups: Workgroups::PerTile(Rows::All, 1),
        }];
        let mut checked = vec![Checked { step: 0, rows: Rows::All }];
        if outputs > 0 {
            kernels.push(logits_kernel());
            let places = [Input::Positions(Rows::Outputs), Input::Sequences(Rows::Outputs), Input::Pages];
            launches.push(Launch {
                step: 1,
                kernel: 1,
                places: places.map(input).into_iter().chain([cache, logits, found]).collect(),
                params: vec![shape.pages_a_sequence(), rows],
                workgroups: Workgroups::Fixed(outputs),
            });
            checked.push(Checked { step: 1, rows: Rows::Outputs });
        }
        let logits = (outputs > 0).then_some(logits);
        Ok(Launches { kernels, launches, inputs, logits, picked: None, found, checked })
    }
}

/// A workgroup a tile: puts the worth of its tokens into their slots.
fn write_kernel() -> Kernel {
    kernel("write", WORKGROUP, |k| {
        let stride = k.param("pages_a_sequence", Scalar::U32);
        let [tokens, positions, sequences, tiles, pages] =
            ["tokens", "positions", "sequences", "tiles", "pages"].map(|name| k.read(name, Scalar::U32));
        let (table, cache) = (k.read("table", Scalar::F32), k.write("cache", Scalar::F32));
        let found = k.write("found", Scalar::U32);
        let [first, rows] = [0, 1].map(|i| tiles.load(k.group_id() * 2 + i));
        k.when(k.local_id().lt(rows), || {
            let row = first + k.local_id();
            let (token, position) = (tokens.load(row), positions.load(row));
            let page = pages.load(sequences.load(row) * stride + (position >> 6));
            cache.store(page * 64 + (position & 63), table.load(token * WIDTH));
            found.store(row, token.eq(k.u32(9)).select(k.u32(1), k.u32(0)));
        });
    })
}

/// A workgroup an output row, an invocation a logit.
fn logits_kernel() -> Kernel {
    kernel("logits", WORKGROUP, |k| {
        let [stride, rows] = ["pages_a_sequence", "rows"].map(|name| k.param(name, Scalar::U32));
        let [positions, sequences, pages] =
            ["positions", "sequences", "pages"].map(|name| k.read(name, Scalar::U32));
        let cache = k.read("cache", Scalar::F32);
        let (logits, found) = (k.write("logits", Scalar::F32), k.write("found", Scalar::U32));
        let (output, v) = (k.group_id(), k.local_id());
        let (position, list) = (positions.load(output), sequences.load(output) * stride);
        let first = v.cast(Scalar::I32).to_f32();
        let [sum] = k.fold(k.u32(0), position + 1, 1, [first], |at, [sum]| {
            let page = pages.load(list + (at >> 6));
            [sum + cache.load(page * 64 + (at & 63))]
        });
        k.when(v.lt(k.u32(VOCAB)), || logits.store(output * VOCAB + v, sum));
        k.when(v.eq(k.u32(0)), || {
            found.store(rows + output, position.eq(k.u32(5)).select(k.u32(1), k.u32(0)));
        });
    })
}
