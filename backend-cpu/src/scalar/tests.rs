//! The program around the arithmetic: range flags, rows beside each other, batches that cannot run.

use std::sync::Arc;

use unisonic_core::plan::*;

use super::*;

const WIDTH: u32 = 32;
const VOCAB: u32 = 3;

/// One tensor: an embedding table whose row 1 is large.
fn table() -> MemoryWeights {
    let value = |i: u32| match i / WIDTH {
        1 => 16_777_216.0_f32,
        row => (row + i % 7) as f32 * 0.125,
    };
    let bytes = (0..VOCAB * WIDTH).flat_map(|i| value(i).to_le_bytes()).collect();
    MemoryWeights([("table".to_owned(), bytes)].into())
}

/// Embedding times 2^41, quantised, times the same table: token 1 passes 2^64 in the quantiser.
fn plan() -> Plan {
    let table = WeightId(0);
    let f32_rows = |rows, width| Buffer::new(rows, BufferKind::F32 { width });
    let step = |label: &str, op| Step { label: label.into(), op };
    let (x, chosen, quantized, logits) = (BufferId(0), BufferId(1), BufferId(2), BufferId(3));
    Plan {
        architecture: "test".into(),
        vocab_len: VOCAB,
        context_len: 64,
        weights: vec![Weight {
            tensor: "table".into(),
            encoding: Encoding::W16(FloatSource::F32),
            rows: VOCAB,
            cols: WIDTH,
            part: None,
        }],
        buffers: vec![
            f32_rows(Rows::All, WIDTH),
            f32_rows(Rows::Outputs, WIDTH),
            Buffer::new(Rows::Outputs, BufferKind::A16 { width: WIDTH }),
            f32_rows(Rows::Outputs, VOCAB),
        ],
        rope_tables: vec![],
        kv_layers: vec![],
        input: None,
        steps: vec![
            step("embed", Op::Embed { table, scale: Some((1_u64 << 41) as f32), out: x }),
            step("select", Op::SelectOutputs { x, out: chosen }),
            step("quantize", Op::Quantize { x: chosen, out: quantized }),
            step(
                "head",
                Op::Linear { x: quantized, weight: table, bias: None, add: None, out: logits, head: false },
            ),
        ],
        logits,
    }
}

fn load() -> Box<dyn Program> {
    load_plan(plan())
}

fn load_plan(plan: Plan) -> Box<dyn Program> {
    let limits = Limits { kv_pages: 1, max_rows: 4, max_outputs: 4 };
    ScalarDevice::new(Arithmetic::U1).load(Arc::new(plan), &table(), limits, &|_| {}).unwrap()
}

fn batch<'a>(tokens: &'a [u32], outputs: &'a [u32]) -> Batch<'a> {
    const POSITIONS: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
    const SEQUENCES: [u32; 8] = [0; 8];
    let rows = tokens.len();
    Batch {
        tokens,
        positions: &POSITIONS[..rows],
        sequences: &SEQUENCES[..rows],
        page_tables: &[&[0]],
        outputs,
        values: &[],
    }
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_row_out_of_range_is_flagged_with_its_step_and_its_neighbours_keep_their_bits() {
    let mut program = load();
    assert_eq!(program.run(&batch(&[2], &[0])).unwrap(), []);
    let alone = bits(program.logits(0));
    assert!(alone.iter().any(|&x| x != 0));
    let flags = program.run(&batch(&[0, 1, 2], &[1, 2])).unwrap();
    assert_eq!(flags, [RangeFlag { row: 1, step: 2 }], "the output row is named by its row in the batch");
    assert_eq!(bits(program.logits(1)), alone);
}

#[test]
fn logits_of_the_head_are_flagged_from_2_to_the_64() {
    let mut plan = plan();
    let Some(Step { op: Op::Linear { head, .. }, .. }) = plan.steps.last_mut() else {
        panic!("the head is last")
    };
    *head = true;
    // Token 2 times the large row of the table: about 32 * 2^41 * 2^24.
    assert_eq!(load_plan(plan).run(&batch(&[2], &[0])).unwrap(), [RangeFlag { row: 0, step: 3 }]);
}

#[test]
fn flags_do_not_outlive_their_batch() {
    let mut program = load();
    assert_eq!(program.run(&batch(&[1], &[0])).unwrap().len(), 1);
    assert_eq!(program.run(&batch(&[0], &[0])).unwrap(), []);
}

#[test]
fn batches_that_cannot_run_are_refused() {
    let mut program = load();
    let mut refused = |tokens: &[u32], outputs: &[u32]| match program.run(&batch(tokens, outputs)) {
        Err(DeviceError::Batch(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[3], &[]), BatchError::Token { row: 0, token: 3, vocab_len: 3 });
    assert_eq!(refused(&[0; 5], &[]), BatchError::TooManyRows { rows: 5, max_rows: 4 });
    assert_eq!(refused(&[0], &[1]), BatchError::Outputs { entry: 0, row: 1 });
    assert_eq!(refused(&[0, 0], &[1, 0]), BatchError::Outputs { entry: 1, row: 0 });
    let beyond = Batch { positions: &[64], ..batch(&[0], &[]) };
    assert!(program.run(&beyond).unwrap_err().to_string().contains("no KV page for position 64"));
    let no_such_page = Batch { page_tables: &[&[1]], ..batch(&[0], &[]) };
    assert!(program.run(&no_such_page).unwrap_err().to_string().contains("KV page 1, but the program has 1"));
}

#[test]
fn a_weight_of_another_length_is_an_error_that_names_it() {
    let mut short = table();
    short.0.values_mut().for_each(|bytes| bytes.truncate(380));
    let limits = Limits { kv_pages: 1, max_rows: 1, max_outputs: 1 };
    let device = ScalarDevice::new(Arithmetic::U1);
    let error = device.load(Arc::new(plan()), &short, limits, &|_| {}).err().unwrap().to_string();
    assert!(
        error.starts_with("tensor `table`: 380 bytes, but 384 were expected for 3 rows of 32"),
        "{error}"
    );
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn the_rounding_mode_of_the_host_is_invisible() {
    let devices: [&dyn Device; 2] = [&ScalarDevice::new(Arithmetic::U1), &crate::native::CpuDevice::new()];
    for device in devices {
        let logits = || {
            let limits = Limits { kv_pages: 1, max_rows: 4, max_outputs: 4 };
            let mut program = device.load(Arc::new(plan()), &table(), limits, &|_| {}).unwrap();
            program.run(&batch(&[0, 2], &[0, 1])).unwrap();
            [bits(program.logits(0)), bits(program.logits(1))]
        };
        assert_eq!(crate::float_state::tests::rounding_down(logits), logits(), "{}", device.info().name);
    }
}

#[test]
#[should_panic(expected = "output row 1, but the last run had 1")]
fn logits_of_an_output_that_was_not_asked_for_are_a_bug_of_the_caller() {
    let mut program = load();
    program.run(&batch(&[0, 2], &[1])).unwrap();
    program.logits(1);
}

#[test]
fn two_rows_never_write_one_slot() {
    let mut program = load();
    let twice = Batch { positions: &[5, 5], ..batch(&[0, 0], &[]) };
    assert!(program.run(&twice).unwrap_err().to_string().contains("write slot 5 of KV page 0"));
}

#[test]
fn a_wrong_plan_is_refused() {
    type Spoil = fn(&mut Plan);
    let spoils: [(Spoil, &str); 5] = [
        (|plan| plan.buffers[0].kind = BufferKind::F32 { width: 48 }, "embed"),
        (|plan| plan.buffers[2].kind = BufferKind::A16 { width: 16 }, "quantize"),
        (|plan| plan.weights[0].cols = 64, "embed"),
        (|plan| plan.steps[1].op = Op::SelectOutputs { x: BufferId(9), out: BufferId(1) }, "no buffer 9"),
        (|plan| plan.logits = BufferId(0), "logits"),
    ];
    let limits = Limits { kv_pages: 1, max_rows: 1, max_outputs: 1 };
    for (spoil, named) in spoils {
        let mut plan = plan();
        spoil(&mut plan);
        let error =
            ScalarDevice::new(Arithmetic::U1).load(Arc::new(plan), &table(), limits, &|_| {}).err().unwrap();
        assert!(error.to_string().contains(named), "{error}");
    }
}
