//! What tables rely on.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::legal::Caps;
use unisonic_core::launch::{Lower, Shape, Wanted};
use unisonic_core::plan::Limits;

use super::*;
use crate::kernels::of_plan::{Template, plan_templates};
use crate::launches::Lowering;
use crate::models::samples;
use unisonic_core::launch::Hardware;

const LIMITS: Limits = Limits { kv_pages: 20, max_rows: 64, max_outputs: 8 };

fn shape(rows: u32) -> Shape {
    Shape { rows, outputs: rows.min(8), groups: 1 }
}

fn devices() -> [Hardware; 4] {
    let wide = Hardware { caps: Caps { subgroup: 64, ..Caps::NONE }, ..Hardware::LEAST };
    [Hardware::SM_86, Hardware::COOPERATIVE, Hardware::LEAST, wide]
}

/// One template for each site of the sample models.
fn templates(hardware: &Hardware) -> BTreeMap<Site, Template> {
    let plans = [samples::llama(), samples::gemma3()].map(|sample| sample.plan()).into_iter();
    let of_plan = |plan: unisonic_core::plan::Plan| {
        [1, 2, 8, 16, 64]
            .map(|rows| plan_templates(&plan, shape(rows), hardware).expect("templates").templates)
    };
    let all = plans.flat_map(of_plan).flatten();
    all.filter_map(|template| Some((site(&template)?, template))).collect()
}

/// Kernels of rows take the place of the rules' kernel: the same objects, parameters and flags.
#[test]
fn every_row_that_is_used_fits_its_place() {
    for hardware in devices() {
        let (mut used, mut of_rules) = (0, 0);
        for (site, template) in templates(&hardware) {
            let rules = template.kernel(&hardware);
            let names = |found: &crate::kernels::GridKernel| {
                let of_object =
                    |id| found.kernel.objects[unisonic_core::kir::kernel::ObjectId::index(id)].name.clone();
                let params = found.kernel.params.iter().map(|param| param.name.clone());
                addressed(&found.kernel).map(of_object).chain(params).collect::<Vec<_>>()
            };
            let all = rows(&template, &hardware);
            assert_eq!(all.first(), Some(&Row::Rules), "{site}");
            let texts: HashSet<String> = all.iter().map(ToString::to_string).collect();
            assert_eq!(texts.len(), all.len(), "{site}: rows have texts of their own");
            of_rules += 1;
            for row in texts {
                if let Some(found) = kernel(&template, &row, &hardware) {
                    used += 1;
                    assert_eq!(names(&found), names(&rules), "{site}: {row}");
                    assert_eq!(found.flags_a_row, rules.flags_a_row, "{site}: {row}");
                }
            }
        }
        assert!(used > 3 * of_rules, "there is something to choose: {used} rows of {of_rules} sites");
    }
}

#[test]
fn what_is_no_row_is_not_used() {
    let hardware = Hardware::LEAST;
    for (site, template) in templates(&hardware) {
        for row in [
            "",
            "split-k",
            "tiled clusters 4x1 groups 2 tiles 8 stages 2 resident 2",
            "decode clusters 3 heads 1",
        ] {
            assert_eq!(kernel(&template, row, &hardware), None, "{site}: {row}");
        }
    }
    let plan = Arc::new(samples::llama().plan());
    let launches = |tuning: Tuning| {
        let lowering = Lowering { tuning, ..Lowering::default() };
        lowering
            .lower(plan.clone(), LIMITS, hardware)
            .expect("lowered")
            .launches(shape(2), Wanted::Logits)
            .expect("launches")
    };
    let foreign: Table = templates(&hardware).into_keys().map(|site| (site, "no row".to_owned())).collect();
    assert!(!foreign.is_empty());
    assert_eq!(launches(Tuning::new(foreign)), launches(Tuning::default()));
}

#[test]
fn a_table_is_read_when_launches_are_made() {
    let (plan, hardware, tuning) = (Arc::new(samples::llama().plan()), Hardware::SM_86, Tuning::default());
    let lowering = Lowering { tuning: tuning.clone(), ..Lowering::default() };
    let lowered = lowering.lower(plan, LIMITS, hardware).expect("lowered");
    let launches = || lowered.launches(shape(1), Wanted::Logits).expect("launches");
    let rules = launches();

    tuning.watch(true);
    let apart = launches();
    let templates = tuning.watched();
    assert!(apart.launches.len() > rules.launches.len(), "launches that are watched stay apart");
    assert_eq!(apart.launches.len(), templates.len() + 1, "each has its template, but the flags'");
    for (launch, template) in apart.launches.iter().zip(&templates) {
        let kernel = &apart.kernels[launch.kernel as usize];
        assert_eq!(*kernel, template.kernel(&hardware).kernel, "{template:?}");
    }

    let other = |template: &Template| {
        let rows = rows(template, &hardware).into_iter().skip(1).map(|row| row.to_string());
        let differs = |row: &String| {
            kernel(template, row, &hardware)
                .is_some_and(|found| found.kernel != template.kernel(&hardware).kernel)
        };
        Some((site(template)?, rows.into_iter().find(differs)?))
    };
    tuning.set_table(templates.iter().filter_map(other).collect());
    tuning.watch(false);
    assert_eq!(tuning.watched(), []);
    assert_ne!(launches().kernels, rules.kernels);
    tuning.set_table(Table::new());
    assert_eq!(launches(), rules);
}
