//! Which launches of plans run side by side.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

/// What the planner's tests plan, which is no part of its library.
#[allow(dead_code, missing_docs, reason = "each test program uses its part")]
#[path = "../../planner/src/models/samples.rs"]
mod samples;

use std::sync::Arc;

use unisonic_core::kir::abi::addressed;
use unisonic_core::launch::{Area, Hardware, Launches, Lower, Shape, Wanted};
use unisonic_core::plan::{Limits, Plan};
use unisonic_gpu::hazards::{Access, Hazards};
use unisonic_planner::launches::{LaunchPasses, Lowering};
// The samples plan themselves with these.
use unisonic_planner::{PlanOptions, plan};

/// Labels of the steps of launches, a new group for each that waits.
fn groups(plan: &Plan, launches: &Launches) -> Vec<Vec<String>> {
    let mut hazards = Hazards::default();
    let mut groups: Vec<Vec<String>> = vec![vec![]];
    for launch in &launches.launches {
        let kernel = &launches.kernels[launch.kernel as usize];
        let accesses = addressed(kernel).zip(&launch.places).map(|(object, place)| {
            // Areas one after the other, each as long as anything.
            let area = match place.area {
                Area::Image(index) => u64::from(index),
                Area::Cache(layer) => (1 << 8) + u64::from(layer),
                Area::Arena => 1 << 10,
                Area::Inputs => (1 << 10) + 1,
            };
            let start = (area << 40) + place.offset_bytes;
            let writes = kernel.objects[object.index()].space.is_writable();
            Access { start, end: start + place.len_bytes, writes }
        });
        if hazards.needs_barrier(accesses) {
            groups.push(vec![]);
        }
        let label = plan.steps[launch.step as usize].label.clone();
        if let Some(group) = groups.last_mut() {
            group.push(label);
        }
    }
    groups
}

/// Products of one input run side by side in the plans of every architecture.
#[test]
fn products_of_one_input_run_side_by_side() {
    for sample in samples::all() {
        let plan = Arc::new(sample.plan());
        let limits = Limits { kv_pages: 4, max_rows: 4, max_outputs: 1 };
        // Else they are one launch.
        let passes = LaunchPasses { join: false, ..LaunchPasses::default() };
        let lowering = Lowering { passes, ..Lowering::default() };
        let lowered = lowering.lower(plan.clone(), limits, Hardware::SM_86).unwrap();
        let launches = lowered.launches(Shape { rows: 1, outputs: 1, groups: 1 }, Wanted::Logits).unwrap();
        let groups = groups(&plan, &launches);
        let together = |labels: &[&str]| {
            groups.iter().any(|group| labels.iter().all(|label| group.iter().any(|step| step == label)))
        };
        // Not every architecture has each.
        let exists =
            |labels: &&[&str]| labels.iter().all(|label| plan.steps.iter().any(|step| step.label == *label));
        let sets = [
            &["blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"][..],
            &["blk.0.attention.kv", "blk.0.attention.query"],
            &["blk.0.ffn_gate", "blk.0.ffn_up"],
            &["blk.0.ffn_gate_exps", "blk.0.ffn_up_exps"],
        ];
        let sets: Vec<_> = sets.into_iter().filter(exists).collect();
        assert!(sets.len() >= 2, "{}: {sets:?}", sample.name);
        for labels in sets {
            assert!(together(labels), "{}: {labels:?} in {groups:#?}", sample.name);
        }
        assert!(!together(&["blk.0.ffn_up", "blk.0.ffn_act"]), "{}", sample.name);
    }
}
