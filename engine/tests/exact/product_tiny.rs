//! The [`product`](super::product) on the native CPU with a tiny model.

use std::collections::BTreeSet;

use unisonic_cpu::native::CpuDevice;
use unisonic_engine::EngineOptions;
use unisonic_engine::draft::StepCosts;

use super::common::{cpu, drawn_by_grammar, ids, load, options, quick, say};
use super::product::{Product, pairwise};

fn product() -> Product<'static> {
    let draft_options = EngineOptions { sequences: 70, context_len: Some(256), ..options() };
    let mut draft = load(&CpuDevice::new().with_threads(1), "Q8_0", &draft_options);
    draft.set_costs(StepCosts::known([1e-6; 7]));
    Product::new(&cpu, &cpu, draft, ids(51, 90, 30), &|start| Box::new(drawn_by_grammar(start)))
}

#[test]
fn the_cases_hold_all_pairs() {
    let cases = pairwise();
    assert!((20..30).contains(&cases.len()), "{}", cases.len());
}

#[test]
fn every_pair_of_choices_gives_the_same_answer() {
    let (product, cases) = (product(), pairwise());
    let run = if quick() { cases.len().min(8) } else { cases.len() };
    if run < cases.len() {
        say(&format!(
            "skipped: {} of {} cases of the product (run in tier ci)",
            cases.len() - run,
            cases.len()
        ));
    }
    cases[..run].iter().for_each(|&case| product.check(case));
}

/// Samplers differ, or the product would show nothing.
#[test]
fn the_samplers_choose_differently() {
    let product = product();
    let answers: BTreeSet<&[u32]> = product.right().iter().map(|right| &right.ids[..]).collect();
    assert_eq!(answers.len(), product.right().len());
}
