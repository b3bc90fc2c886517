//! `bench --ablate`: what each optimisation that has a switch is worth, by switching it off.
//!
//! Rounds are interleaved as those of `bench` are: each loads and measures every variant once, beginning with
//! another variant. A variant is the model with one switch off, with none and with all. [`show`] has the
//! outputs.

mod show;

use unisonic_core::format::GgufFile;
use unisonic_core::plan::{BufferId, BufferKind, DeviceError, DeviceInfo, Op, Plan};
use unisonic_devices::{DeviceName, FEATURES};
use unisonic_engine::{Engine, EngineError};
use unisonic_planner::launches::LAUNCH_PASSES;
use unisonic_planner::passes::PASSES;

use super::capacity;
use super::measure::{self, Bench, Test};
use crate::cli::LoadArgs;
use crate::model::{self, Capacity};
use crate::output::progress_bar;
pub use show::{json, svg, table};

/// What is switched off in a variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Switches {
    /// For people.
    name: String,
    passes: Vec<String>,
    features: Vec<String>,
}

/// A variant and what was found.
pub struct Variant {
    /// The switch that is off; `none` and `all` are no switches.
    pub name: String,
    /// Launches of a decoded token; steps of the plan on a device without launches.
    pub launches: usize,
    /// Bytes that they move.
    pub bytes: u64,
    /// Digest of the logits of a greedy continuation, where the model has one.
    pub logits_sha256: Option<String>,
    /// For each test the seconds of each round.
    pub seconds: Vec<Vec<f64>>,
}

/// What was measured.
pub struct Ablation {
    /// The model's name or architecture.
    pub model: String,
    /// What it ran on.
    pub device: DeviceInfo,
    /// What was run.
    pub tests: Vec<Test>,
    /// The first has nothing off, the last everything.
    pub variants: Vec<Variant>,
}

impl Ablation {
    /// Whether all variants gave the same logits; none if the model is too short to tell.
    pub fn is_equal(&self) -> Option<bool> {
        let first = self.variants.first()?.logits_sha256.as_ref()?;
        Some(self.variants.iter().all(|variant| variant.logits_sha256.as_ref() == Some(first)))
    }
}

/// The switches of a device.
fn switches(load: &LoadArgs, has_launches: bool, has_table: bool) -> Vec<Switches> {
    let passes = PASSES.iter().filter(|pass| !pass.required).map(|pass| pass.name);
    let launch_passes = LAUNCH_PASSES.iter().filter(|_| has_launches).map(|pass| pass.name);
    let is_cuda = matches!(load.device, DeviceName::Cuda(_));
    let applies = |name: &&str| match *name {
        "dependent-launches" | "prefetch" => is_cuda,
        "tuning-table" => has_table,
        _ => has_launches,
    };
    let features = FEATURES.iter().map(|feature| feature.name).filter(applies);
    let of_pass = |name: &str| Switches { name: name.into(), passes: vec![name.into()], features: vec![] };
    let of_feature = |name: &str| Switches { name: name.into(), passes: vec![], features: vec![name.into()] };
    let each: Vec<Switches> =
        passes.chain(launch_passes).map(of_pass).chain(features.map(of_feature)).collect();
    let is_off = |one: &Switches| {
        one.passes.iter().all(|name| load.passes_off.contains(name))
            && one.features.iter().all(|name| load.features_off.contains(name))
    };
    let each: Vec<Switches> = each.into_iter().filter(|one| !is_off(one)).collect();
    let all = Switches {
        name: "all".into(),
        passes: each.iter().flat_map(|one| one.passes.clone()).collect(),
        features: each.iter().flat_map(|one| one.features.clone()).collect(),
    };
    let none = Switches { name: "none".into(), ..Switches::default() };
    [none].into_iter().chain(each).chain([all]).collect()
}

/// Measures.
pub fn run(
    file: &GgufFile,
    path: &std::path::Path,
    load: &LoadArgs,
    tests: &[Test],
    rounds: u32,
) -> anyhow::Result<Ablation> {
    let (device, tuning) = model::open_device(load)?;
    let switches = switches(load, device.hardware().is_some(), !tuning.table().is_empty());
    let info = device.info();
    drop(device);
    let trained = capacity::trained_len(file);
    let capacity = capacity::capacity(tests, load.context, trained)?;
    let count = switches.len();
    let bar = progress_bar("measuring variants", (rounds as usize * count) as u64);
    let mut variants: Vec<Option<Variant>> = switches.iter().map(|_| None).collect();
    for round in 0..rounds as usize {
        for index in (0..count).map(|step| (round + step) % count) {
            let mut engine = load_variant(file, path, load, &capacity, &switches[index])?;
            let variant = &mut variants[index];
            if variant.is_none() {
                *variant = Some(first(&mut engine, &switches[index], tests, capacity::has_digest(trained))?);
            }
            let mut bench = Bench::new(&mut engine, tests, &|_| {})?;
            // One to warm up.
            bench.round(0, &|| {})?;
            let seconds = bench.round(round, &|| {})?;
            for (all, one) in variant.iter_mut().flat_map(|variant| &mut variant.seconds).zip(seconds) {
                all.push(one);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let metadata = file.metadata();
    let name = metadata.string("general.name").ok().flatten();
    let name = name.or(metadata.string("general.architecture").ok().flatten()).unwrap_or_default();
    Ok(Ablation {
        model: name.to_owned(),
        device: info,
        tests: tests.to_vec(),
        variants: variants.into_iter().flatten().collect(),
    })
}

fn load_variant(
    file: &GgufFile,
    path: &std::path::Path,
    load: &LoadArgs,
    capacity: &Capacity,
    off: &Switches,
) -> anyhow::Result<Engine> {
    let mut load = load.clone();
    load.passes_off.extend(off.passes.iter().cloned());
    load.features_off.extend(off.features.iter().cloned());
    model::load(file, path, &load, capacity)
}

/// What does not change from round to round.
fn first(
    engine: &mut Engine,
    off: &Switches,
    tests: &[Test],
    has_digest: bool,
) -> Result<Variant, EngineError> {
    let continuation = has_digest.then(|| measure::continuation(engine, &|| {})).transpose()?;
    let mut session = engine.session();
    let (launches, bytes) = match engine.profile(&mut session, &[0], 0, 1) {
        Ok(run) => (run.launches.len(), run.launches.iter().map(|launch| launch.bytes).sum()),
        Err(EngineError::Device(DeviceError::NoClock { .. })) => {
            (engine.plan().steps.len(), moved_bytes(engine.plan()))
        }
        Err(error) => return Err(error),
    };
    Ok(Variant {
        name: off.name.clone(),
        launches,
        bytes,
        logits_sha256: continuation.map(|continuation| continuation.logits_sha256),
        seconds: vec![vec![]; tests.len()],
    })
}

/// Bytes that the steps of a plan move for a token that nothing stands before: weights, keys and values, and
/// each row of an activation that a step reads or writes.
fn moved_bytes(plan: &Plan) -> u64 {
    let row = |buffer: BufferId| match plan.buffers[buffer.index()].kind {
        BufferKind::F32 { width } => 4 * u64::from(width),
        BufferKind::A16 { width } => 2 * u64::from(width) + 4 * u64::from(width.div_ceil(256)),
        BufferKind::Q16 { heads, head_len } => u64::from(heads) * (2 * u64::from(head_len) + 4),
    };
    let of_op = |op: &Op| -> u64 {
        let quantized = match *op {
            Op::RmsNorm { quantized, .. } | Op::Gate { quantized, .. } => quantized,
            _ => None,
        };
        let written = op.result().into_iter().chain(quantized.filter(|&buffer| op.result() != Some(buffer)));
        op.operands().into_iter().chain(written).map(row).sum()
    };
    plan.bytes_read_per_token(0) + plan.steps.iter().map(|step| of_op(&step.op)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn names(line: &[&str], has_launches: bool, has_table: bool) -> Vec<String> {
        let line = Line::parse_from([&["x"], line].concat());
        switches(&line.load, has_launches, has_table).into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn a_device_has_the_switches_that_do_something() {
        let cpu = names(&[], false, false);
        assert_eq!((cpu[0].as_str(), cpu.last().map(String::as_str)), ("none", Some("all")));
        let optional = PASSES.iter().filter(|pass| !pass.required).count();
        assert_eq!(cpu.len(), optional + 2);
        let vulkan = names(&["--device", "vulkan"], true, false);
        assert_eq!(vulkan.len(), cpu.len() + LAUNCH_PASSES.len() + 1, "device-picks");
        let cuda = names(&["--device", "cuda"], true, true);
        assert_eq!(cuda.len(), vulkan.len() + 3, "dependent-launches, prefetch and tuning-table");
        let fewer = names(&["--pass", "fuse-residual=off"], false, false);
        assert_eq!(fewer.len(), cpu.len() - 1, "what is off is off in all of them");
    }

    #[test]
    fn all_is_every_switch_at_once() {
        let line = Line::parse_from(["x", "--device", "cuda"]);
        let switches = switches(&line.load, true, true);
        let all = switches.last().map(|all| all.passes.len() + all.features.len());
        assert_eq!(all, Some(switches.len() - 2));
    }
}
