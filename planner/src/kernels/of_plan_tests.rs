//! The kernels of the sample models.

use std::collections::HashSet;

use unisonic_core::format::GgmlType;
use unisonic_core::kir::verify;

use super::super::fit::tests::devices;
use super::*;
use crate::models::samples;

const Q2_K: WeightFormat = WeightFormat::Block(BlockFormat::Q2_K);
const Q4_K: WeightFormat = WeightFormat::Block(BlockFormat::Q4_K);
const Q6_K: WeightFormat = WeightFormat::Block(BlockFormat::Q6_K);

#[test]
fn the_kernels_of_every_architecture_fit_every_device() {
    let mut templates: Vec<(Hardware, Template)> = vec![];
    let mut known = HashSet::new();
    for sample in samples::all() {
        let plan = sample.plan();
        for (number, hardware) in devices().into_iter().enumerate() {
            // Devices take turns.
            for rows in [1, 2, 4, 8, 16, 32, 64, 512].into_iter().skip(number % 4).step_by(4) {
                let found = plan_templates(&plan, shape(rows), &hardware).expect(sample.name);
                assert_eq!(found.of_step.len(), plan.steps.len());
                let new = found.templates.into_iter().filter(|t| known.insert(format!("{t:?} {hardware:?}")));
                templates.extend(new.map(|template| (hardware, template)));
            }
        }
    }
    for (hardware, template) in templates {
        let kernel = template.kernel(&hardware).kernel;
        assert_eq!(verify(&kernel), [], "{template:?}, {hardware:?}");
        assert_eq!(misfit(&kernel, &hardware), None, "{template:?}, {hardware:?}");
    }
}

/// What reads an activation finds what it needs of it, and nothing else is written.
#[test]
fn activations_have_the_digits_of_their_readers() {
    let plan = samples::llama().plan();
    assert_eq!(norms(&plan), [Regions::read_by(&[Q4_K]), Regions::read_by(&[Q6_K])]);

    let both = samples::llama()
        .change("blk.0.attn_q.weight", |tensor| tensor.ty = GgmlType::Q2_K)
        .change("blk.1.ffn_up.weight", |tensor| tensor.ty = GgmlType::Q2_K)
        .change("blk.1.ffn_gate.weight", |tensor| tensor.ty = GgmlType::Q2_K);
    let expected = [&[Q2_K, Q4_K][..], &[Q4_K], &[Q2_K], &[Q6_K]].map(Regions::read_by);
    assert_eq!(norms(&both.plan()), expected);
}

/// The regions of the norms with A16, each once.
fn norms(plan: &Plan) -> Vec<Regions> {
    let found = plan_templates(plan, shape(1), &Hardware::SM_86).expect("kernels");
    let mut regions = vec![];
    for template in &found.templates {
        if let Template::RmsNorm(RmsNorm { outputs: Outputs { a16: Some(form), .. }, .. }) = template
            && !regions.contains(&form.regions)
        {
            regions.push(form.regions);
        }
    }
    regions
}

#[test]
fn heads_that_no_kernel_takes_are_an_error() {
    let mut plan = samples::llama().plan();
    for (head_len, is_taken) in
        [(16, true), (160, true), (192, true), (512, true), (100, false), (528, false), (0, false)]
    {
        for buffer in &mut plan.buffers {
            if let BufferKind::Q16 { head_len: of, .. } = &mut buffer.kind {
                *of = head_len;
            }
        }
        plan.kv_layers.iter_mut().for_each(|layer| layer.head_len = head_len);
        match plan_templates(&plan, shape(1), &Hardware::SM_86) {
            Ok(found) => {
                assert!(is_taken, "{head_len}");
                let of_heads = |template: &&Template| matches!(template, Template::AttentionDecode(..));
                let template = found.templates.iter().find(of_heads).expect("attention");
                assert_eq!(verify(&template.kernel(&Hardware::SM_86).kernel), [], "{head_len}");
            }
            Err(error) => {
                assert!(!is_taken, "{error}");
                assert!(matches!(error, TemplateError::HeadLen { head_len: found, .. } if found == head_len));
            }
        }
    }
}

/// All rows are outputs.
fn shape(rows: u32) -> Shape {
    Shape { rows, outputs: rows, groups: 1 }
}
