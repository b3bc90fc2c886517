//! A device over a machine, with a toy model whose answers are known.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod toy;

use std::sync::{Arc, Mutex, MutexGuard};

use toy::machine::{Watch, Watched};
use toy::{ToyLower, VOCAB, worth};
use unisonic_core::plan::{
    Batch, BatchError, Device, DeviceError, Limits, LoadProgress, Plan, Program, RangeFlag,
};
use unisonic_gpu::device::GpuDevice;
use unisonic_gpu::machine::MachineError;

const LIMITS: Limits = Limits { kv_pages: 20, max_rows: 8, max_outputs: 4 };

/// A device, and what its machine sees.
struct Setup {
    device: GpuDevice<Watched>,
    watch: Arc<Mutex<Watch>>,
}

impl Setup {
    fn new(free_bytes: Option<u64>) -> Self {
        let watch = Arc::new(Mutex::new(Watch { free_bytes, ..Watch::default() }));
        Self { device: GpuDevice::new(Watched(Arc::clone(&watch)), Arc::new(ToyLower)), watch }
    }

    fn load(&self) -> Result<Box<dyn Program>, DeviceError> {
        self.device.load(toy::plan(), &toy::weights(), LIMITS, &|_| {})
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap()
    }
}

/// Sequences of tokens and the pages they lie in; rows are appended to them.
#[derive(Default)]
struct Host {
    tokens: Vec<Vec<u32>>,
    pages: Vec<Vec<u32>>,
}

impl Host {
    fn new(pages: &[&[u32]]) -> Self {
        let pages: Vec<_> = pages.iter().map(|pages| pages.to_vec()).collect();
        Self { tokens: vec![vec![]; pages.len()], pages }
    }

    /// Runs rows of (sequence, token) and compares the logits of the output rows; the flags.
    fn run(&mut self, program: &mut dyn Program, rows: &[(u32, u32)], outputs: &[u32]) -> Vec<RangeFlag> {
        let (sequences, tokens): (Vec<u32>, Vec<u32>) = rows.iter().copied().unzip();
        let mut positions = vec![];
        let mut sums = vec![];
        for &(sequence, token) in rows {
            let of_sequence = &mut self.tokens[sequence as usize];
            positions.push(of_sequence.len() as u32);
            of_sequence.push(token);
            sums.push(of_sequence.iter().map(|&token| worth(token)).sum::<u32>());
        }
        let page_tables: Vec<&[u32]> = self.pages.iter().map(Vec::as_slice).collect();
        let batch = Batch {
            tokens: &tokens,
            positions: &positions,
            sequences: &sequences,
            page_tables: &page_tables,
            outputs,
            values: &[],
        };
        let flags = program.run(&batch).unwrap();
        for (output, &row) in outputs.iter().enumerate() {
            let expected: Vec<f32> = (0..VOCAB).map(|v| (v + sums[row as usize]) as f32).collect();
            let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(program.logits(output)), bits(&expected), "row {row} of {rows:?}");
        }
        flags
    }
}

#[test]
fn batches_of_all_shapes_give_their_logits() {
    let setup = Setup::new(None);
    let mut program = setup.load().unwrap();
    let mut host = Host::new(&[&[3, 19], &[0], &[7]]);
    // A prompt in two parts, then several sequences by turns, one row, and rows of sequences that are mixed.
    host.run(&mut *program, &[(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)], &[]);
    host.run(&mut *program, &[(0, 6), (0, 7), (0, 8)], &[2]);
    host.run(&mut *program, &[(1, 1), (2, 5), (0, 2)], &[0, 1, 2]);
    host.run(&mut *program, &[(2, 8)], &[0]);
    host.run(&mut *program, &[(1, 1), (2, 5), (1, 2), (2, 4), (1, 3), (0, 1), (2, 1)], &[0, 2, 3, 6]);
    host.run(&mut *program, &[(0, 0); 8], &[7]);
    for _ in 0..7 {
        host.run(&mut *program, &[(0, 1); 8], &[0, 6]);
    }
    assert!(host.tokens[0].len() > 64, "the second page too");
}

#[test]
fn compiling_tells_how_far_it_is() {
    let told = Arc::new(Mutex::new(vec![]));
    let listener = Arc::clone(&told);
    let setup = Setup::new(None);
    let watch = Arc::clone(&setup.watch);
    let device = setup.device.on_compile(Arc::new(move |progress| {
        assert_eq!(watch.lock().unwrap().compiled.len(), progress.done);
        listener.lock().unwrap().push((progress.done, progress.total));
    }));
    let mut program = device.load(toy::plan(), &toy::weights(), LIMITS, &|_| {}).unwrap();
    let mut host = Host::new(&[&[3, 19]]);
    host.run(&mut *program, &[(0, 1)], &[0]);
    let total = setup.watch.lock().unwrap().compiled.len();
    assert!(total > 0);
    let expected: Vec<_> = (0..=total).map(|done| (done, total)).collect();
    assert_eq!(*told.lock().unwrap(), expected);
    // They are there.
    host.run(&mut *program, &[(0, 2)], &[0]);
    assert_eq!(*told.lock().unwrap(), expected);
}

/// Past 1024 positions there are twice as many groups.
#[test]
fn long_sequences_get_launches_of_their_own() {
    let setup = Setup::new(None);
    let mut program = setup.load().unwrap();
    let pages: Vec<u32> = (0..20).rev().collect();
    let mut host = Host::new(&[&pages]);
    for at in 0..128 {
        host.run(&mut *program, &[(0, at % 9); 8], &[]);
    }
    assert_eq!(setup.watch().recorded, 1);
    host.run(&mut *program, &[(0, 2); 8], &[0, 7]);
    host.run(&mut *program, &[(0, 2)], &[0]);
    let watch = setup.watch();
    assert_eq!((watch.recorded, watch.runs), (3, 130));
}

#[test]
fn a_shape_is_recorded_once_and_kernels_are_compiled_once() {
    let setup = Setup::new(None);
    let mut program = setup.load().unwrap();
    assert_eq!(setup.watch().recorded, 0, "nothing before it is needed");
    let allocated_bytes = setup.watch().allocated_bytes;
    let mut host = Host::new(&[&[0, 1]]);
    for _ in 0..3 {
        host.run(&mut *program, &[(0, 1)], &[]);
        host.run(&mut *program, &[(0, 1)], &[0]);
        host.run(&mut *program, &[(0, 1); 5], &[4]);
        host.run(&mut *program, &[(0, 1); 7], &[4]);
    }
    let watch = setup.watch();
    assert_eq!((watch.recorded, watch.runs), (3, 12));
    assert_eq!(watch.compiled, ["write", "logits"]);
    assert_eq!(watch.allocated_bytes, allocated_bytes, "runs allocate nothing");
}

#[test]
fn few_recordings_are_kept_and_none_outlives_its_program() {
    let setup = Setup::new(None);
    let limits = Limits { kv_pages: 20, max_rows: 200, max_outputs: 200 };
    let mut program = setup.device.load(toy::plan(), &toy::weights(), limits, &|_| {}).unwrap();
    let pages: Vec<u32> = (0..20).collect();
    let shapes = [1, 2, 4, 8, 16, 32, 64];
    let mut run = |rows: usize, outputs: usize| {
        let outputs: Vec<u32> = (0..outputs as u32).collect();
        Host::new(&[&pages]).run(&mut *program, &vec![(0, 1); rows], &outputs);
    };
    run(1, 0);
    for rows in shapes {
        shapes.iter().filter(|&&outputs| outputs <= rows).for_each(|&outputs| run(rows, outputs));
        run(1, 0);
    }
    let recorded_and_alive = || {
        let watch = setup.watch();
        (watch.recorded, watch.alive)
    };
    assert_eq!(recorded_and_alive(), (29, 24));
    run(1, 0);
    assert_eq!(setup.watch().recorded, 29, "what is used often stays");
    run(2, 1);
    assert_eq!(setup.watch().recorded, 30, "what was used longest ago is gone");
    drop(program);
    assert_eq!(setup.watch().alive, 0);
}

#[test]
fn rows_out_of_range_are_flagged_by_their_first_step() {
    let setup = Setup::new(None);
    let mut program = setup.load().unwrap();
    let mut host = Host::new(&[&[0], &[1]]);
    let flags = |found: &[RangeFlag]| found.iter().map(|flag| (flag.row, flag.step)).collect::<Vec<_>>();
    let found = host.run(&mut *program, &[(0, 1), (0, 9), (1, 2), (0, 3), (0, 0)], &[1, 4]);
    assert_eq!(flags(&found), [(1, 0)]);
    // Positions 5 of both: that of sequence 0 is no output row, and the other one is wrong twice.
    let found = host.run(&mut *program, &[(1, 1), (1, 1), (0, 3), (0, 9), (1, 1), (1, 1), (1, 9)], &[0, 6]);
    assert_eq!(flags(&found), [(3, 0), (6, 0)]);
    let mut host = Host::new(&[&[2]]);
    let found = host.run(&mut *program, &[(0, 1); 7], &[4, 5, 6]);
    assert_eq!(flags(&found), [(5, 1)]);
    assert_eq!(host.run(&mut *program, &[(0, 1)], &[0]), [], "flags do not outlive their batch");
}

#[test]
fn an_empty_batch_runs_nothing() {
    let setup = Setup::new(None);
    let mut program = setup.load().unwrap();
    let empty =
        Batch { tokens: &[], positions: &[], sequences: &[], page_tables: &[], outputs: &[], values: &[] };
    assert_eq!(program.run(&empty).unwrap(), []);
    assert_eq!(setup.watch().runs, 0);
}

#[test]
fn batches_that_cannot_run_are_refused() {
    let setup = Setup::new(None);
    let mut program = setup.load().unwrap();
    let pages = [0; 30];
    let beyond = Batch {
        tokens: &[0],
        positions: &[20 * 64],
        sequences: &[0],
        page_tables: &[&pages],
        outputs: &[0],
        values: &[],
    };
    match program.run(&beyond) {
        Err(DeviceError::Batch(BatchError::Position { row: 0, position: 1280, kv_pages: 20 })) => (),
        other => panic!("{other:?}"),
    }
    assert!(program.run(&Batch { positions: &[20 * 64 - 1], ..beyond }).is_ok());
}

#[test]
fn a_plan_that_does_not_fit_allocates_nothing() {
    let allocated_bytes = |free_bytes| {
        let setup = Setup::new(Some(free_bytes));
        let error = setup.load().err().map(|error| error.to_string());
        let allocated_bytes = setup.watch().allocated_bytes;
        (error, allocated_bytes)
    };
    let (error, needed_bytes) = allocated_bytes(1 << 30);
    assert_eq!(error, None);
    // The toy pads nothing.
    assert_eq!(allocated_bytes(needed_bytes), (None, needed_bytes));
    let (error, allocated) = allocated_bytes(needed_bytes - 1);
    let error = error.unwrap();
    assert_eq!(allocated, 0);
    assert!(error.starts_with("watched: the model, its KV cache and its buffers need"), "{error}");
    assert!(error.ends_with("a context of at most 1216 tokens would fit"), "{error}");
}

#[test]
fn a_lost_device_says_so_for_ever() {
    let setup = Setup::new(None);
    let mut program = setup.load().unwrap();
    let mut other = setup.load().unwrap();
    let mut host = Host::new(&[&[0]]);
    host.run(&mut *program, &[(0, 1)], &[0]);
    let batch = Batch {
        tokens: &[1],
        positions: &[1],
        sequences: &[0],
        page_tables: &[&[0]],
        outputs: &[0],
        values: &[],
    };
    // Another try may succeed.
    let call = || "cuGraphLaunch".to_owned();
    setup.watch().fail = Some(MachineError::Driver { call: call(), reason: "busy".into() });
    match program.run(&batch) {
        Err(DeviceError::Machine { lost: false, message, .. }) => {
            assert_eq!(message, "cuGraphLaunch failed: busy");
        }
        other => panic!("{other:?}"),
    }
    program.run(&batch).unwrap();
    setup.watch().fail = Some(MachineError::Lost { call: call(), reason: "an illegal address".into() });
    let runs = setup.watch().runs;
    for program in [&mut program, &mut other] {
        match program.run(&batch) {
            Err(DeviceError::Machine { lost: true, device, message }) => {
                assert_eq!(device, "watched");
                assert!(message.starts_with("the device was lost in cuGraphLaunch: an illegal"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(setup.watch().runs, runs + 1, "the driver is asked no more");
    assert!(matches!(setup.load(), Err(DeviceError::Machine { lost: true, .. })));
    let logits = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.logits(0).to_vec()));
    assert!(logits.is_err(), "there are no logits after a run that failed");
}

#[test]
fn loading_tells_its_progress_and_its_errors() {
    let setup = Setup::new(None);
    let progress = Mutex::new(vec![]);
    let report = |now: LoadProgress| progress.lock().unwrap().push((now.loaded_bytes, now.total_bytes));
    setup.device.load(toy::plan(), &toy::weights(), LIMITS, &report).unwrap();
    let total_bytes = u64::from(VOCAB) * 128;
    assert_eq!(*progress.lock().unwrap(), [(0, total_bytes), (total_bytes, total_bytes)]);

    let mut damaged = toy::weights();
    damaged.0.get_mut("table").unwrap()[128..132].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = setup.device.load(toy::plan(), &damaged, LIMITS, &|_| {}).err().unwrap().to_string();
    assert!(error.starts_with("tensor `table`, row 1,"), "{error}");

    let other = Arc::new(Plan { architecture: "mamba".into(), ..(*toy::plan()).clone() });
    let error = setup.device.load(other, &toy::weights(), LIMITS, &|_| {}).err().unwrap().to_string();
    assert_eq!(error, "watched: this model has no GPU kernels: it is no toy; use another device");
}
