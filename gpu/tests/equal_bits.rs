//! Plans of every architecture on a GPU device over the kernel interpreter, against the oracle: equal logits
//! bits and equal flags, batch after batch, so that the keys and values of each batch are what later ones
//! read.
//!
//! Batches leave rows, outputs and groups of their shapes to be filled up, and mix sequences.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

/// What the planner's tests plan, which is no part of its library.
#[allow(dead_code, missing_docs, reason = "each test program uses its part")]
#[path = "../../planner/src/models/samples.rs"]
mod samples;

use std::sync::Arc;

use samples::Sample;
use unisonic_core::format::GgmlType;
use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::launch::{Hardware, MAX_RUNS};
use unisonic_core::numerics::sampling::most_likely;
use unisonic_core::plan::{
    Batch, BatchError, Device, DeviceError, Encoding, FloatSource, Limits, MemoryWeights, Picks, Plan,
    Program, RangeFlag, Weight,
};
use unisonic_cpu::scalar::{Arithmetic, ScalarDevice};
use unisonic_gpu::device::GpuDevice;
use unisonic_gpu::interpreter::InterpreterMachine;
use unisonic_planner::kernels::samples::data;
use unisonic_planner::launches::{LAUNCH_PASSES, LaunchPasses, Lowering};
use unisonic_planner::passes::PASSES;
// The samples plan themselves with these.
use unisonic_planner::{PlanOptions, plan};

const LIMITS: Limits = Limits { kv_pages: 5, max_rows: 70, max_outputs: 4 };
/// The first sequence has two pages and not in their order; page 1 is nobody's.
const PAGES: [&[u32]; 3] = [&[3, 0], &[4], &[2]];

const TWO_TO_THE_60: f32 = (1_u64 << 60) as f32;

/// Random weights that keep activations around 1, so that every key has its part in the attention.
fn weights(plan: &Plan) -> MemoryWeights {
    let tensors =
        plan.weights.iter().zip(1..).map(|(weight, seed)| (weight.tensor.clone(), bytes(weight, seed)));
    MemoryWeights(tensors.collect())
}

fn bytes(weight: &Weight, seed: u64) -> Vec<u8> {
    let mut random = data::random(seed);
    // The whole tensor.
    let count = weight.part.map_or(weight.rows as usize * weight.cols as usize, |part| part.len as usize);
    match weight.encoding {
        Encoding::Block(format) => {
            // Where d and, if any, dmin lie, and about how large they are for weights of 2^-4.
            let (at, exponent) = match format {
                BlockFormat::Q2_K => (80..84, 6),
                BlockFormat::Q4_K | BlockFormat::Q5_K => (0..4, 2),
                BlockFormat::Q6_K => (208..210, 0),
                other => panic!("no sample has {}", other.name()),
            };
            let mut bytes = data::blocks(format, count / format.elems(), seed);
            for block in bytes.chunks_exact_mut(format.len_bytes()) {
                for half in block[at.clone()].as_chunks_mut::<2>().0 {
                    *half = (random() as u16 & 0x07FF | exponent << 10).to_le_bytes();
                }
            }
            bytes
        }
        // 2^-5 to 2^-1, of both signs.
        Encoding::W16(FloatSource::F16) => {
            (0..count).flat_map(|_| (random() as u16 & 0x8FFF | 0x2800).to_le_bytes()).collect()
        }
        Encoding::F32(FloatSource::F32) => {
            (0..count).flat_map(|_| (0.5 + (random() % 256) as f32 / 256.0).to_le_bytes()).collect()
        }
        // Scores that are not far apart.
        Encoding::Router(FloatSource::F32) => {
            (0..count).flat_map(|_| ((random() % 512) as f32 / 4096.0 - 0.0625).to_le_bytes()).collect()
        }
        other => panic!("no sample has {other:?}"),
    }
}

/// Sequences of a test, on the oracle and on another device.
struct Pair {
    name: String,
    oracle: Box<dyn Program>,
    other: Box<dyn Program>,
    /// How long each sequence is.
    lens: [u32; 3],
    batches: u32,
}

impl Pair {
    fn load(name: &str, plan: Plan, weights: &MemoryWeights, hardware: Hardware) -> Self {
        Self::with_passes(name, plan, weights, hardware, LaunchPasses::default())
    }

    fn with_passes(
        name: &str,
        plan: Plan,
        weights: &MemoryWeights,
        hardware: Hardware,
        passes: LaunchPasses,
    ) -> Self {
        let plan = Arc::new(plan);
        let oracle = ScalarDevice::new(Arithmetic::U1);
        let other = GpuDevice::new(
            InterpreterMachine { hardware },
            Arc::new(Lowering { passes, ..Lowering::default() }),
        );
        let load = |device: &dyn Device| {
            device
                .load(Arc::clone(&plan), weights, LIMITS, &|_| {})
                .unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let name = format!("{name} on {hardware:?}");
        Self { name, oracle: load(&oracle), other: load(&other), lens: [0; 3], batches: 0 }
    }

    /// Runs the next rows of sequences, each with the token if there is one, and compares; the flags.
    fn run(&mut self, rows: &[(u32, Option<u32>)], outputs: &[u32]) -> Vec<RangeFlag> {
        self.batches += 1;
        let vocab_len = self.oracle.plan().vocab_len;
        let mut random = data::random(u64::from(self.batches));
        let sequences: Vec<u32> = rows.iter().map(|row| row.0).collect();
        let tokens: Vec<u32> = rows
            .iter()
            .map(|row| row.1.unwrap_or_else(|| (random() % u64::from(vocab_len)) as u32))
            .collect();
        let mut next = |sequence: u32| {
            let len = &mut self.lens[sequence as usize];
            *len += 1;
            *len - 1
        };
        let positions: Vec<u32> = sequences.iter().map(|&sequence| next(sequence)).collect();
        let batch = Batch {
            tokens: &tokens,
            positions: &positions,
            sequences: &sequences,
            page_tables: &PAGES,
            outputs,
            values: &[],
        };
        let what = format!("{}, batch {}", self.name, self.batches);
        let expected = self.oracle.run(&batch).unwrap();
        let found = self.other.run(&batch).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(found, expected, "{what}");
        for (output, &row) in outputs.iter().enumerate() {
            // A flagged row has no meaning.
            if expected.iter().all(|flag| flag.row != row) {
                let [found, expected] =
                    [&self.other, &self.oracle].map(|program| data::bits(program.logits(output)));
                assert!(found == expected, "{what}: logits of row {row}");
                assert!(expected.iter().any(|&bits| bits << 1 != 0), "{what}: logits that say nothing");
            }
        }
        expected
    }

    /// A row of each of some sequences, and the most likely tokens after it one after the other without the host.
    fn picks(&mut self, sequences: &[u32], runs: u32) {
        self.batches += 1;
        let what = format!("{}, batch {}", self.name, self.batches);
        let outputs: Vec<u32> = (0..sequences.len() as u32).collect();
        let first = vec![5; sequences.len()];
        let start: Vec<u32> = sequences.iter().map(|&sequence| self.lens[sequence as usize]).collect();
        let batch = Batch {
            tokens: &first,
            positions: &start,
            sequences,
            page_tables: &PAGES,
            outputs: &outputs,
            values: &[],
        };
        let found = self.other.pick(&batch, runs).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut expected = vec![];
        let mut tokens = first.clone();
        for run in 0..runs {
            let positions: Vec<u32> = start.iter().map(|start| start + run).collect();
            let batch = Batch { tokens: &tokens, positions: &positions, ..batch };
            assert_eq!(self.oracle.run(&batch).unwrap(), []);
            let best = |output: usize| most_likely(self.oracle.logits(output)).unwrap();
            tokens = (0..sequences.len()).map(best).collect();
            expected.extend_from_slice(&tokens);
        }
        assert_eq!(found, Some(Picks { tokens: expected, flags: vec![] }), "{what}");
        sequences.iter().for_each(|&sequence| self.lens[sequence as usize] += runs);
    }

    /// Rows of random tokens, which nothing flags.
    fn rows(&mut self, sequences: &[u32], outputs: &[u32]) {
        let rows: Vec<_> = sequences.iter().map(|&sequence| (sequence, None)).collect();
        assert_eq!(self.run(&rows, outputs), []);
    }
}

/// A prompt, generating, and three sequences by turns.
fn equals_the_oracle(sample: &Sample, hardware: Hardware) {
    let plan = sample.plan();
    let weights = weights(&plan);
    equal_batches(Pair::load(sample.name, plan, &weights, hardware));
}

fn equal_batches(mut pair: Pair) {
    // Past gemma's window, too.
    pair.rows(&[0; 18], &[]);
    pair.rows(&[0; 3], &[0, 1, 2]);
    pair.rows(&[0], &[0]);
    pair.rows(&[1, 1, 0, 2, 1], &[1, 3, 4]);
    pair.rows(&[2, 0, 1], &[2]);
    pair.rows(&[1], &[]);
    pair.picks(&[0], 3);
    // A row and an output that fill up.
    pair.picks(&[2, 0, 1], 2);
    pair.rows(&[0, 1, 2], &[0, 1, 2]);
}

/// A test for each architecture, so that they run side by side.
macro_rules! architectures {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            for hardware in [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE] {
                equals_the_oracle(&samples::$name(), hardware);
            }
        })*

        #[test]
        fn every_architecture_is_tested() {
            let tested = [$(samples::$name()),*].map(|sample| sample.name);
            assert_eq!(samples::all().iter().map(|sample| sample.name).collect::<Vec<_>>(), tested);
        }
    };
}

architectures! {
    llama,
    llama_rope_freqs,
    llama_yarn,
    llama_moe,
    qwen2,
    qwen2moe,
    qwen3,
    qwen3moe,
    gemma2,
    gemma3,
    gemma4,
    phi3,
    gpt2,
}

/// Weights with 16 and with 8 integer minima read the same activations, as in files of Q2_K.
#[test]
fn formats_with_other_minima_side_by_side() {
    let mut sample = samples::llama();
    for (tensor, ty) in [
        ("blk.0.attn_q", GgmlType::Q2_K),
        ("blk.0.attn_k", GgmlType::Q2_K),
        ("blk.0.attn_v", GgmlType::Q4_K),
        ("blk.0.attn_output", GgmlType::Q5_K),
        ("blk.0.ffn_gate", GgmlType::Q2_K),
        ("blk.0.ffn_up", GgmlType::Q5_K),
        ("blk.0.ffn_down", GgmlType::Q2_K),
        ("blk.1.attn_q", GgmlType::Q2_K),
        ("blk.1.attn_k", GgmlType::Q4_K),
        ("blk.1.attn_v", GgmlType::Q5_K),
        ("blk.1.attn_output", GgmlType::Q2_K),
        ("blk.1.ffn_gate", GgmlType::Q4_K),
        ("blk.1.ffn_up", GgmlType::Q2_K),
        ("blk.1.ffn_down", GgmlType::Q5_K),
    ] {
        sample = sample.change(&format!("{tensor}.weight"), |tensor| tensor.ty = ty);
    }
    for hardware in [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE] {
        equals_the_oracle(&sample, hardware);
        let plan = sample.plan();
        let weights = weights(&plan);
        let mut pair = Pair::load("tiles of rows", plan, &weights, hardware);
        pair.rows(&[0; 33], &[0, 32]);
    }
}

/// Without each pass over launches, without all, and without random ones of all passes.
#[test]
fn switches_are_invisible() {
    let of_launches: Vec<String> = LAUNCH_PASSES.iter().map(|pass| pass.name.to_owned()).collect();
    let of_graphs = PASSES.iter().filter(|pass| !pass.required).map(|pass| pass.name.to_owned());
    let all: Vec<String> = of_launches.iter().cloned().chain(of_graphs).collect();
    let mut subsets: Vec<Vec<String>> = of_launches.iter().map(|name| vec![name.clone()]).collect();
    subsets.extend([of_launches, all.clone()]);
    let mut random = data::random(11);
    subsets.extend((0..6).map(|_| all.iter().filter(|_| random().is_multiple_of(2)).cloned().collect()));
    let samples = [samples::qwen2(), samples::gemma3(), samples::llama()];
    for (number, off) in subsets.iter().enumerate() {
        let sample = &samples[number % samples.len()];
        let hardware = [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE][number % 3];
        let plan = sample.plan_without(off);
        let weights = weights(&plan);
        let name = format!("{} without {}", sample.name, off.join(", "));
        equal_batches(Pair::with_passes(&name, plan, &weights, hardware, LaunchPasses::without(off)));
    }
}

#[test]
fn a_sequence_of_two_pages() {
    let plan = samples::llama().plan();
    let weights = weights(&plan);
    let mut pair = Pair::load("llama", plan, &weights, Hardware::SM_86);
    pair.rows(&[0; 67], &[0, 63, 64, 66]);
    pair.rows(&[0, 1], &[0, 1]);
}

/// Tokens that are picked in the second page, after the first of which in the first; and rows of one sequence.
#[test]
fn picking_goes_on_in_the_next_page() {
    let plan = samples::llama().plan();
    let weights = weights(&plan);
    let mut pair = Pair::load("llama", plan, &weights, Hardware::SM_86);
    pair.rows(&[0; 62], &[]);
    pair.picks(&[0, 1], MAX_RUNS);
    pair.rows(&[0], &[0]);
    let [tokens, positions, sequences] = [vec![3, 1, 4], vec![79, 80, 81], vec![0; 3]];
    let batch = Batch {
        tokens: &tokens,
        positions: &positions,
        sequences: &sequences,
        page_tables: &PAGES,
        outputs: &[0, 2],
        values: &[],
    };
    assert!(matches!(pair.other.pick(&batch, 2), Err(DeviceError::Batch(BatchError::RunsOn { .. }))));
    pair.oracle.run(&batch).unwrap();
    let expected = [0, 1].map(|output| most_likely(pair.oracle.logits(output)).unwrap()).to_vec();
    let found = pair.other.pick(&batch, 1).unwrap();
    assert_eq!(found, Some(Picks { tokens: expected, flags: vec![] }));
    // Past the pages of the sequence.
    let batch = Batch {
        tokens: &[3],
        positions: &[126],
        sequences: &[0],
        page_tables: &PAGES,
        outputs: &[0],
        values: &[],
    };
    assert!(matches!(pair.other.pick(&batch, 3), Err(DeviceError::Batch(BatchError::NoPage { .. }))));
    assert!(pair.other.pick(&batch, 2).unwrap().is_some());
}

/// Writes values over those of a tensor.
fn put(weights: &mut MemoryWeights, tensor: &str, offset_bytes: usize, bytes: &[u8]) {
    weights.0.get_mut(tensor).unwrap()[offset_bytes..][..bytes.len()].copy_from_slice(bytes);
}

/// Token 7 alone has element 0, which the first norm makes too large.
#[test]
fn rows_out_of_range_leave_their_neighbours_alone() {
    let plan = samples::llama().plan();
    let mut weights = weights(&plan);
    for token in 0..samples::VOCAB as usize {
        put(&mut weights, "token_embd.weight", token * 512, &[0; 2]);
    }
    let mut one_hot = [0; 512];
    one_hot[1] = 0x3C;
    put(&mut weights, "token_embd.weight", 7 * 512, &one_hot);
    put(&mut weights, "blk.0.attn_norm.weight", 0, &TWO_TO_THE_60.to_le_bytes());
    for hardware in [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE] {
        let mut pair = Pair::load("one token too large", plan.clone(), &weights, hardware);
        let flags =
            pair.run(&[(0, Some(3)), (1, Some(7)), (0, Some(4)), (2, Some(7)), (0, Some(5))], &[0, 3, 4]);
        let rows: Vec<_> = flags.iter().map(|flag| flag.row).collect();
        assert_eq!(rows, [1, 3]);
        pair.rows(&[0], &[0]);
    }
}

/// Token 0 is too large, and as all logits are equal it is always the most likely.
#[test]
fn picking_ends_before_a_row_out_of_range() {
    let plan = samples::llama().plan();
    let mut weights = weights(&plan);
    for token in 1..samples::VOCAB as usize {
        put(&mut weights, "token_embd.weight", token * 512, &[0; 2]);
    }
    let mut one_hot = [0; 512];
    one_hot[1] = 0x3C;
    put(&mut weights, "token_embd.weight", 0, &one_hot);
    put(&mut weights, "blk.0.attn_norm.weight", 0, &TWO_TO_THE_60.to_le_bytes());
    weights.0.get_mut("output.weight").unwrap().fill(0);
    let mut pair = Pair::load("token 0 too large", plan, &weights, Hardware::SM_86);
    let batch = |tokens, positions| Batch {
        tokens,
        positions,
        sequences: &[0, 1],
        page_tables: &PAGES,
        outputs: &[0, 1],
        values: &[],
    };
    let found = pair.other.pick(&batch(&[3, 4], &[0, 0]), 4).unwrap();
    assert_eq!(found, Some(Picks { tokens: vec![0, 0], flags: vec![] }));
    let found = pair.other.pick(&batch(&[3, 0], &[1, 1]), 4).unwrap().unwrap();
    let rows: Vec<u32> = found.flags.iter().map(|flag| flag.row).collect();
    assert_eq!((found.tokens[0], rows), (0, vec![1]));
}

/// Only output rows reach the head.
#[test]
fn output_rows_out_of_range_are_named_by_their_rows() {
    let plan = samples::llama().plan();
    let mut weights = weights(&plan);
    let large = TWO_TO_THE_60.to_le_bytes().repeat(samples::EMBEDDING as usize);
    put(&mut weights, "output_norm.weight", 0, &large);
    for scale in weights.0.get_mut("output.weight").unwrap().chunks_exact_mut(210) {
        scale[208..].copy_from_slice(&[0, 0x44]);
    }
    for hardware in [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE] {
        let mut pair = Pair::load("logits too large", plan.clone(), &weights, hardware);
        let flags =
            pair.run(&[(0, Some(3)), (1, Some(8)), (0, Some(4)), (2, Some(9)), (0, Some(5))], &[1, 4]);
        let rows: Vec<_> = flags.iter().map(|flag| flag.row).collect();
        assert_eq!(rows, [1, 4]);
    }
}
