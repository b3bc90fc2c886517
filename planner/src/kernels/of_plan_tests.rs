//! The kernels of the sample models.

use std::collections::HashSet;

use unisonic_core::format::GgmlType;
use unisonic_core::kir::verify;

use super::super::fit::tests::devices;
use super::*;
use crate::models::samples;

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
    let found = plan_templates(&plan, shape(1), &Hardware::SM_86).expect("kernels");
    let of_norm = found.templates.iter().find_map(|template| match template {
        Template::RmsNorm(norm) => norm.outputs.a16,
        _ => None,
    });
    let form = of_norm.expect("a norm with A16");
    assert_eq!((form.digits, form.sums), (Some(Digits::Eight), false));

    let mixed = samples::llama().change("blk.0.attn_q.weight", |tensor| tensor.ty = GgmlType::Q2_K);
    let error = plan_templates(&mixed.plan(), shape(1), &Hardware::SM_86).expect_err("two kinds of digits");
    assert!(matches!(&error, TemplateError::Digits { label } if label.contains("blk.0")), "{error}");
}

#[test]
fn heads_that_no_kernel_takes_are_an_error() {
    let mut plan = samples::llama().plan();
    for (head_len, is_taken) in
        [(16, true), (160, true), (192, true), (256, true), (100, false), (272, false), (0, false)]
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
