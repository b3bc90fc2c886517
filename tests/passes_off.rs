//! Every switch of the planner, alone, all at once and in random company: the logits stay the same, on the
//! CPU and on Vulkan. `tests/equal_bits.rs` has longer sequences and the oracle.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;

use common::Tier;
use unisonic_core::numerics::philox::random_word;
use unisonic_devices::{DeviceName, OpenOptions};
use unisonic_engine::{Engine, EngineOptions};
use unisonic_planner::PlanOptions;
use unisonic_planner::launches::{LAUNCH_PASSES, LaunchPasses};
use unisonic_planner::passes::PASSES;

/// Tokens of a prompt, and those that follow one by one: across the sliding window of 16, in a chunk with
/// room to fill up.
const OF_CPU: [usize; 2] = [21, 2];
/// A software device compiles for seconds for each number of rows: there is one.
const OF_VULKAN: [usize; 2] = [5, 0];

/// All switches.
fn optional() -> Vec<String> {
    let of_graph = PASSES.iter().filter(|pass| !pass.required).map(|pass| pass.name);
    of_graph.chain(LAUNCH_PASSES.iter().map(|pass| pass.name)).map(str::to_owned).collect()
}

/// Each alone, all, and so many random subsets.
fn subsets(random: u32) -> Vec<Vec<String>> {
    let optional = optional();
    assert!(optional.len() > 8, "{optional:?}");
    let alone = optional.iter().map(|name| vec![name.clone()]);
    let of_word = |word: u32| {
        let is_in = |&(number, _): &(usize, &String)| word >> number & 1 == 1;
        optional.iter().enumerate().filter(is_in).map(|(_, name)| name.clone()).collect()
    };
    let random = (0..random).map(|number| of_word(random_word(7, number, 0, 0)));
    alone.chain([optional.clone()]).chain(random).collect()
}

fn logits(device: DeviceName, model: &Path, off: &[String], lens: [usize; 2]) -> Vec<Vec<u32>> {
    let options = OpenOptions { launch_passes: LaunchPasses::without(off), ..OpenOptions::default() };
    let device = unisonic_devices::open(device, options).unwrap();
    let plan = PlanOptions { passes_off: off.to_vec(), ..PlanOptions::default() };
    let options =
        EngineOptions { plan, context_len: Some(64), chunk_rows: 24, max_outputs: 24, ..common::options() };
    let mut engine: Engine = common::load_with(&*device, model, &options);
    let [prompt, decoded] = lens;
    let ids = common::some_ids(prompt + decoded, engine.plan().vocab_len);
    let mut session = engine.session();
    let mut rows = common::extend(&mut engine, &mut session, &ids[..prompt]);
    for id in &ids[prompt..] {
        rows.extend(common::extend(&mut engine, &mut session, &[*id]));
    }
    rows.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
}

fn switches_change_no_bit(device: DeviceName, model: &Path, subsets: &[Vec<String>], lens: [usize; 2]) {
    let right = logits(DeviceName::Cpu, model, &[], lens);
    assert_eq!(right.len(), lens.iter().sum::<usize>());
    for off in subsets {
        let found = logits(device, model, off, lens);
        assert!(found == right, "{}: {device} without {}", model.display(), off.join(", "));
    }
}

fn models() -> Vec<std::path::PathBuf> {
    let quants = ["Q4_0", "Q6_K"].map(common::quant);
    quants.into_iter().chain(common::ARCHITECTURES.into_iter().filter_map(common::fixture)).collect()
}

#[test]
fn on_the_cpu() {
    let subsets = subsets(50);
    models().iter().for_each(|model| switches_change_no_bit(DeviceName::Cpu, model, &subsets, OF_CPU));
}

/// Whether there is a device; what is left out is said.
fn has_vulkan(what: &str) -> bool {
    let opened = unisonic_devices::open(DeviceName::Vulkan(0), OpenOptions::default());
    opened.map_err(|error| common::skipped(what, &error.to_string())).is_ok()
}

/// Every subset, each on another model: a driver's compiler takes seconds for each of them. In two parts, for two processors.
fn on_vulkan_in_turn(part: usize) {
    if common::runs_in(Tier::Ci, "switches of passes on Vulkan") && has_vulkan("switches of passes on Vulkan")
    {
        let (models, device) = (models(), DeviceName::Vulkan(0));
        let turns = models.iter().cycle().zip(subsets(50));
        for (model, off) in turns.skip(part).step_by(2) {
            switches_change_no_bit(device, model, &[off], OF_VULKAN);
        }
    }
}

#[test]
fn on_vulkan_in_turn_the_even() {
    on_vulkan_in_turn(0);
}

#[test]
fn on_vulkan_in_turn_the_odd() {
    on_vulkan_in_turn(1);
}

#[test]
fn on_vulkan() {
    let what = "every subset of the switches of passes on Vulkan with every model, instead of each with one";
    if common::runs_in(Tier::Full, what) && has_vulkan(what) {
        let (subsets, device) = (subsets(50), DeviceName::Vulkan(0));
        models().iter().for_each(|model| switches_change_no_bit(device, model, &subsets, OF_VULKAN));
    }
}

#[test]
fn on_vulkan_with_everything_off() {
    if has_vulkan("Vulkan with all switches of passes off") {
        let (model, device) = (common::quant("Q4_0"), DeviceName::Vulkan(0));
        switches_change_no_bit(device, &model, &[optional()], OF_VULKAN);
    }
}

/// A model in three parts, each a graph that is given what the one before it made.
#[test]
fn parts_on_vulkan_are_the_whole() {
    if has_vulkan("a model in parts on Vulkan") {
        let model = common::quant("Q4_0");
        let right = logits(DeviceName::Cpu, &model, &[], OF_VULKAN);
        let device = unisonic_devices::open(DeviceName::Vulkan(0), OpenOptions::default()).unwrap();
        let ids = common::some_ids(right.len(), right[0].len() as u32);
        let found = common::pieces::logits(&*device, &model, &ids, [24; 3]);
        let found: Vec<Vec<u32>> =
            found.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect();
        assert!(found == right);
    }
}
