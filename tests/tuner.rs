//! The tuner: what it measures, what it never measures again, and that no table changes a bit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::Tier;
use unisonic_core::launch::{Hardware, Launch, Launches, Lower, Lowered, Shape, Wanted};
use unisonic_core::numerics::philox::random_word;
use unisonic_core::plan::{
    Batch, Device, DeviceError, DeviceInfo, LaunchProfile, Limits, Plan, Program, Progress, RangeFlag,
    RunProfile, WeightSource,
};
use unisonic_devices::OpenOptions;
use unisonic_engine::tune::{TableDevice, TuneOptions, TuneReport, TuningTable, tune};
use unisonic_engine::{Clock, Engine, EngineOptions};
use unisonic_gpu::device::GpuDevice;
use unisonic_gpu::interpreter::InterpreterMachine;
use unisonic_planner::kernels::of_plan::plan_templates;
use unisonic_planner::launches::{LaunchPasses, Lowering};
use unisonic_planner::tune::{Table, Tuning, kernel, rows, site};

const HARDWARE: Hardware = Hardware::LEAST;

/// The interpreter with a clock by which a kernel takes what its text says, always the same.
struct Clocked {
    inner: GpuDevice<InterpreterMachine>,
    lowering: Lowering,
    /// Whole steps take longer where launches have other forms than the rules'.
    is_slower_together: bool,
    /// Steps that were timed.
    timed: Arc<AtomicU64>,
}

impl Clocked {
    fn new() -> Self {
        // What is joined has a text of its own, and so would take anything.
        let passes = LaunchPasses { join: false, ..LaunchPasses::default() };
        let lowering = Lowering { passes, ..Lowering::default() };
        let inner = GpuDevice::new(InterpreterMachine { hardware: HARDWARE }, Arc::new(lowering.clone()));
        Self { inner, lowering, is_slower_together: false, timed: Arc::default() }
    }
}

struct ClockedProgram {
    inner: Box<dyn Program>,
    lowered: Box<dyn Lowered>,
    tuning: Option<Tuning>,
    timed: Arc<AtomicU64>,
}

impl Device for Clocked {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn hardware(&self) -> Option<Hardware> {
        self.inner.hardware()
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: &dyn WeightSource,
        limits: Limits,
        progress: &Progress<'_>,
    ) -> Result<Box<dyn Program>, DeviceError> {
        Ok(Box::new(ClockedProgram {
            lowered: self.lowering.lower(plan.clone(), limits, HARDWARE).unwrap(),
            inner: self.inner.load(plan, weights, limits, progress)?,
            tuning: self.is_slower_together.then(|| self.lowering.tuning.clone()),
            timed: self.timed.clone(),
        }))
    }
}

/// Nanoseconds of a launch of each kernel, by its text.
fn kernel_ns(launches: &Launches) -> Vec<u64> {
    let of_kernel = |kernel: &unisonic_core::kir::Kernel| {
        let mut hasher = DefaultHasher::new();
        kernel.to_string().hash(&mut hasher);
        1000 + hasher.finish() % 9000
    };
    launches.kernels.iter().map(of_kernel).collect()
}

impl Program for ClockedProgram {
    fn plan(&self) -> &Plan {
        self.inner.plan()
    }

    fn device(&self) -> &DeviceInfo {
        self.inner.device()
    }

    fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<RangeFlag>, DeviceError> {
        self.inner.run(batch)
    }

    fn logits(&self, output: usize) -> &[f32] {
        self.inner.logits(output)
    }

    fn profile(&mut self, batch: &Batch<'_>, repetitions: u32) -> Result<RunProfile, DeviceError> {
        self.timed.fetch_add(u64::from(repetitions > 0), Ordering::Relaxed);
        let shape = Shape { rows: batch.rows() as u32, outputs: batch.outputs.len() as u32, groups: 1 };
        let launches = self.lowered.launches(shape, Wanted::Logits).unwrap();
        let kernel_ns = kernel_ns(&launches);
        let ns = |launch: &Launch| kernel_ns[launch.kernel as usize];
        let of_launch = |launch: &Launch| LaunchProfile {
            kernel: launches.kernels[launch.kernel as usize].name.clone(),
            step: launch.step,
            workgroups: 1,
            bytes: 0,
            macs: 0,
            ns: vec![ns(launch); repetitions as usize],
        };
        let changed = |tuning: &Tuning| tuning.table().values().filter(|row| *row != "rules").count() as u64;
        let together = self.tuning.as_ref().map_or(0, changed) * 1_000_000;
        let whole = launches.launches.iter().map(ns).sum::<u64>() + together;
        Ok(RunProfile {
            launches: launches.launches.iter().map(of_launch).collect(),
            whole_ns: vec![whole; repetitions as usize],
            empty_ns: vec![0; repetitions as usize],
        })
    }
}

/// Tunes the tiny llama for steps of some rows. The clock of the host shows a second more each time it is
/// looked at.
fn tuned(device: &Clocked, table: &mut TuningTable, budget_s: u64, step_rows: &[u32]) -> TuneReport {
    let mut engine = common::load_with(device, &common::quant("Q4_0"), &EngineOptions::default());
    let options =
        TuneOptions { budget: Duration::from_secs(budget_s), repetitions: 2, step_rows: step_rows.to_vec() };
    let seconds = AtomicU64::new(0);
    let clock: Clock = Arc::new(move || Duration::from_secs(seconds.fetch_add(1, Ordering::Relaxed)));
    let mut last = (0, 0);
    let report =
        tune(&mut engine, (&device.lowering.tuning, &HARDWARE), table, &options, &clock, &mut |progress| {
            last = (progress.done, progress.total)
        });
    assert_eq!(last.0, last.1, "progress reaches its end");
    report.unwrap()
}

fn empty(device: &Clocked) -> TuningTable {
    TuningTable::new(TableDevice::of(device))
}

#[test]
fn what_was_measured_is_not_measured_again() {
    let device = Clocked::new();
    let mut table = empty(&device);
    let first = tuned(&device, &mut table, 1_000_000, &[1, 4, 1]);
    assert_eq!((first.known, first.unfinished, first.left_out.len()), (0, 0, 0));
    assert_eq!(first.steps.iter().map(|step| step.rows).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(first.measured, table.kernels.len());
    assert!(
        table.kernels.values().any(|measured| measured.row != "rules" && measured.ns < measured.rules_ns)
    );
    assert!(first.steps.iter().all(|step| step.changed > 0 && step.tuned_ns < step.rules_ns));
    let timed = device.timed.load(Ordering::Relaxed);
    assert!(timed > 4);

    // The same device in the next process, with what was exported, or kept.
    let next = Clocked::new();
    let mut imported = TuningTable::parse(&table.to_text(), &TableDevice::of(&next)).unwrap();
    let second = tuned(&next, &mut imported, 1_000_000, &[1, 4]);
    assert_eq!((second.measured, second.known), (0, first.measured));
    assert_eq!(next.timed.load(Ordering::Relaxed), 0, "nothing is timed that is known");
    assert_eq!(imported, table);
    assert_eq!(*next.lowering.tuning.table(), table.rows(), "what is known is used");
}

#[test]
fn a_budget_ends_it_and_the_next_goes_on() {
    let device = Clocked::new();
    let mut table = empty(&device);
    let first = tuned(&device, &mut table, 4, &[1]);
    assert!(first.unfinished > 0 && first.measured > 0, "{first:?}");
    assert!(table.kernels.values().any(|measured| 1 < measured.tried && measured.tried < measured.of));
    let second = tuned(&device, &mut table, 1_000_000, &[1]);
    assert!(second.unfinished == 0 && second.measured > 0, "{second:?}");
    assert!(table.kernels.values().all(|measured| measured.tried == measured.of));

    let mut nothing = empty(&device);
    let none = tuned(&device, &mut nothing, 0, &[1]);
    assert_eq!((none.measured, none.left_out, nothing.kernels.len()), (0, vec![1], 0));
}

#[test]
fn rows_that_slow_the_whole_step_down_are_not_taken() {
    let device = Clocked { is_slower_together: true, ..Clocked::new() };
    let mut table = empty(&device);
    let report = tuned(&device, &mut table, 1_000_000, &[1]);
    assert!(report.measured > 0 && report.steps.iter().all(|step| step.changed == 0));
    assert!(table.kernels.values().all(|measured| measured.row == "rules"));
}

/// For each kernel of a plan, one of its rows.
fn random_table(plan: &Plan, hardware: &Hardware, seed: u64) -> Table {
    let mut table = Table::new();
    for rows_of_step in [1, 2, 4, 8, 16, 32, 64] {
        for outputs in [1, rows_of_step] {
            let shape = Shape { rows: rows_of_step, outputs, groups: 1 };
            for template in plan_templates(plan, shape, hardware).unwrap().templates {
                let Some(site) = site(&template) else { continue };
                let all = rows(&template, hardware).into_iter().map(|row| row.to_string());
                let all: Vec<String> = all.filter(|row| kernel(&template, row, hardware).is_some()).collect();
                let word = random_word(seed, table.len() as u32, 0, 0) as usize;
                table.entry(site).or_insert_with(|| all[word % all.len()].clone());
            }
        }
    }
    table
}

/// Logits of a chunk of a prompt and of a token after it.
fn logits(engine: &mut Engine, chunk: usize) -> Vec<Vec<u32>> {
    let ids = common::some_ids(chunk + 1, engine.plan().vocab_len);
    let mut session = engine.session();
    let mut rows = common::extend(engine, &mut session, &ids[..chunk]);
    for id in &ids[chunk..] {
        rows.extend(common::extend(engine, &mut session, &[*id]));
    }
    rows.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
}

/// Random tables on a device that is made for each, against the oracle.
fn tables_change_no_bit(model: &Path, open: &dyn Fn(Tuning) -> Box<dyn Device>, chunk: usize, seeds: u64) {
    let options = EngineOptions { chunk_rows: chunk as u32, ..common::options() };
    let right = logits(&mut common::load_on("cpu-scalar", model, &options), chunk);
    for seed in 0..seeds {
        let tuning = Tuning::default();
        let device = open(tuning.clone());
        let hardware = device.hardware().unwrap();
        let mut engine = common::load_with(&*device, model, &options);
        let table = random_table(engine.plan(), &hardware, seed);
        let changed = table.values().filter(|row| *row != "rules").count();
        assert!(2 * changed > table.len(), "{changed} of {} kernels have another form", table.len());
        tuning.set_table(table);
        assert!(
            logits(&mut engine, chunk) == right,
            "{} on {} with random table {seed}",
            model.display(),
            device.info().name
        );
    }
}

fn interpreter(hardware: Hardware) -> impl Fn(Tuning) -> Box<dyn Device> {
    move |tuning| {
        let lowering = Lowering { tuning, ..Lowering::default() };
        Box::new(GpuDevice::new(InterpreterMachine { hardware }, Arc::new(lowering)))
    }
}

#[test]
fn random_tables_change_no_bit_in_the_interpreter() {
    let devices = [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE];
    let seeds = if common::runs_in(Tier::Full, "five random tuning tables instead of one") { 5 } else { 1 };
    // From 16 rows on there are tiles to choose from, on devices with matrix instructions.
    for (hardware, (ty, chunk)) in devices.into_iter().zip([("Q4_0", 16), ("Q6_K", 4), ("Q4_K", 16)]) {
        tables_change_no_bit(&common::quant(ty), &interpreter(hardware), chunk, seeds);
    }
}

#[test]
fn random_tables_change_no_bit_on_vulkan() {
    let open = |tuning| {
        let options = OpenOptions { tuning, ..OpenOptions::default() };
        unisonic_devices::open("vulkan".parse().unwrap(), options)
    };
    if let Err(error) = open(Tuning::default()) {
        return common::skipped("random tuning tables on Vulkan", &error.to_string());
    }
    let seeds =
        if common::runs_in(Tier::Full, "ten random tuning tables on Vulkan instead of one") { 10 } else { 1 };
    tables_change_no_bit(&common::quant("Q4_0"), &|tuning| open(tuning).unwrap(), 8, seeds);
}

/// What a chat gave, and how long each turn took to its first token.
struct Chat {
    /// Logits of the first token of each turn.
    logits: Vec<Vec<u32>>,
    ids: Vec<u32>,
    /// Milliseconds without what earlier turns left in the cache, and with it.
    first_token_ms: Vec<[f64; 2]>,
}

/// Ten turns of a chat: a question of some tokens, an answer of four.
fn chat(engine: &mut Engine) -> Chat {
    let mut chat = Chat { logits: vec![], ids: vec![], first_token_ms: vec![] };
    let argmax = |logits: &[f32]| {
        let best = logits.iter().enumerate().max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)));
        best.map_or(0, |(id, _)| id as u32)
    };
    for turn in 0..10 {
        chat.ids.extend(common::some_ids(9 + turn, engine.plan().vocab_len));
        let timed = |engine: &mut Engine, is_warm: bool| {
            let started = std::time::Instant::now();
            let mut session =
                if is_warm { engine.session_for(b"", &chat.ids).unwrap() } else { engine.session() };
            let rest = chat.ids[session.tokens().len()..].to_vec();
            let mut last = vec![];
            engine.extend(&mut session, &rest, rest.len() - 1, &mut |_, z| last = z.to_vec()).unwrap();
            (session, last, started.elapsed().as_secs_f64() * 1e3)
        };
        let (_, cold, cold_ms) = timed(engine, false);
        let (mut session, mut logits, warm_ms) = timed(engine, true);
        let bits = |logits: &[f32]| logits.iter().map(|z| z.to_bits()).collect::<Vec<_>>();
        assert!(bits(&cold) == bits(&logits), "turn {turn}: with earlier turns in the cache and without");
        chat.logits.push(bits(&cold));
        chat.first_token_ms.push([cold_ms, warm_ms]);
        for _ in 0..4 {
            let id = argmax(&logits);
            chat.ids.push(id);
            logits = common::extend(engine, &mut session, &[id]).remove(0);
        }
    }
    chat
}

fn print(device: &str, chat: &Chat) {
    let turns = chat.first_token_ms.iter().map(|[cold, warm]| format!("{cold:.1}/{warm:.1}"));
    println!("{device}: first token, ms cold/warm: {}", turns.collect::<Vec<_>>().join(" "));
}

/// Ten turns by the rules, with a table that was measured here, and with that table exported and imported
/// elsewhere: the same answers, on each device, and nothing is measured twice.
#[test]
fn ten_turns_are_the_same_with_a_table_from_elsewhere() {
    if !common::runs_in(Tier::Full, "a chat of ten turns with a tuning table on Vulkan") {
        return;
    }
    let model = common::quant("Q4_0");
    let options = EngineOptions { chunk_rows: 16, context_len: Some(256), sequences: 2, ..common::options() };
    let right = chat(&mut common::load_on("cpu", &model, &options));
    print("cpu", &right);
    // The CPU device has no rows: its table is empty, and goes the same way.
    let cpu = unisonic_devices::open("cpu".parse().unwrap(), OpenOptions::default()).unwrap();
    assert_eq!(cpu.hardware(), None);
    let none = TuningTable::new(TableDevice::of(&*cpu));
    assert_eq!(TuningTable::parse(&none.to_text(), &TableDevice::of(&*cpu)), Ok(none));

    let open = |tuning: &Tuning| {
        let options = OpenOptions { tuning: tuning.clone(), ..OpenOptions::default() };
        unisonic_devices::open("vulkan".parse().unwrap(), options)
    };
    let tuning = Tuning::default();
    let device = match open(&tuning) {
        Ok(device) => device,
        Err(error) => return common::skipped("ten turns with a tuning table on Vulkan", &error.to_string()),
    };
    let of = TableDevice::of(&*device);
    let hardware = device.hardware().unwrap();
    let started = std::time::Instant::now();
    let clock: Clock = Arc::new(move || started.elapsed());
    // Steps of one row and of two: enough for tables, and few kernels to compile.
    let tune_options =
        TuneOptions { budget: Duration::from_secs(600), repetitions: 1, step_rows: vec![1, 2] };
    let tune_with = |engine: &mut Engine, tuning: &Tuning, table: &mut TuningTable| {
        tune(engine, (tuning, &hardware), table, &tune_options, &clock, &mut |_| {}).unwrap()
    };
    let mut engine = common::load_with(&*device, &model, &options);
    let by_rules = chat(&mut engine);
    print("vulkan, by the rules", &by_rules);
    let mut table = TuningTable::new(of.clone());
    let report = tune_with(&mut engine, &tuning, &mut table);
    assert!(report.measured > 0 && report.unfinished == 0, "{report:?}");

    let elsewhere = Tuning::default();
    let device = open(&elsewhere).unwrap();
    let mut engine = common::load_with(&*device, &model, &options);
    let mut imported = TuningTable::parse(&table.to_text(), &TableDevice::of(&*device)).unwrap();
    let again = tune_with(&mut engine, &elsewhere, &mut imported);
    assert_eq!((again.measured, again.known), (0, report.measured), "nothing is measured again");
    let tuned = chat(&mut engine);
    print("vulkan, with the table", &tuned);
    for (name, found) in [("by the rules", &by_rules), ("with the table", &tuned)] {
        assert!(found.ids == right.ids && found.logits == right.logits, "Vulkan {name} differs from the CPU");
    }
}
