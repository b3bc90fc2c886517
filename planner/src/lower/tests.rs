//! Plans of the sample models.

use std::collections::BTreeMap;

use unisonic_core::plan::{BufferKind, MemoryWeights, Op, Rows};

use super::*;
use crate::models::samples::{self, Sample};
use crate::passes::PASSES;
use crate::{PlanOptions, plan};

fn factors(values: &[f32]) -> MemoryWeights {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    MemoryWeights(BTreeMap::from([("rope_freqs.weight".to_owned(), bytes)]))
}

fn plan_of(sample: &Sample, options: &PlanOptions<'_>) -> Plan {
    plan(&sample.metadata, &sample.tensors, &factors(&[2.0; 32]), options).expect(sample.name)
}

#[test]
fn a_llama() {
    let plan = plan_of(&samples::llama(), &PlanOptions::default());
    expect_test::expect_file!["llama.txt"].assert_eq(&plan.to_string());
}

#[test]
fn a_gemma() {
    let plan = plan_of(&samples::gemma3(), &PlanOptions::default());
    expect_test::expect_file!["gemma3.txt"].assert_eq(&plan.to_string());
}

#[test]
fn the_same_input_gives_the_same_plan() {
    for sample in samples::all() {
        let (a, b) = (plan_of(&sample, &PlanOptions::default()), plan_of(&sample, &PlanOptions::default()));
        assert_eq!(a, b);
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        assert_eq!(a.to_string(), b.to_string());
    }
}

/// Any set of optional passes gives a plan that reads and writes as it must.
#[test]
fn every_optional_pass_can_be_off() {
    let optional: Vec<_> = PASSES.iter().filter(|pass| !pass.required).map(|pass| pass.name).collect();
    for sample in samples::all() {
        for set in 0..1u32 << optional.len() {
            let off = optional.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
            let passes_off = off.map(|(_, name)| (*name).to_owned()).collect();
            let plan = plan_of(&sample, &PlanOptions { passes_off, ..PlanOptions::default() });
            check_flow(&plan, sample.name);
        }
    }
}

#[test]
fn fusing_everything_leaves_only_fused_steps() {
    for sample in samples::all() {
        let plan = plan_of(&sample, &PlanOptions::default());
        // What adds positions to tokens, or the sum of experts to the residual, has no operation to be part of.
        let has_experts = plan.steps.iter().any(|step| matches!(step.op, Op::SumExperts { .. }));
        // What layers get for themselves is made once, for all of them.
        let once = |label: &str| ["embd", "per_layer_inputs", "per_layer_proj_norm"].contains(&label);
        let adds = |label: &str| has_experts && label.ends_with("ffn_residual");
        let unfused = |step: &&Step| match step.op {
            Op::Add { .. } => !once(&step.label) && !adds(&step.label),
            Op::HeadNorm { .. } => !once(&step.label),
            Op::Rope { .. } => true,
            _ => false,
        };
        assert_eq!(plan.steps.iter().find(unfused), None, "{}", sample.name);
        // What is left to quantise is what attention made, and rows of the residual stream that a layer reads without a norm.
        let count = |is: &dyn Fn(&Step) -> bool| plan.steps.iter().filter(|step| is(step)).count();
        let quantised = count(&|step| matches!(step.op, Op::Quantize { .. }));
        let attentions = count(&|step| matches!(step.op, Op::Attention { .. }));
        let unnormed =
            count(&|step| step.label.ends_with(".inp_gate") || step.label == "per_layer_model_proj");
        assert_eq!(quantised, attentions + unnormed, "{}", sample.name);
    }
}

#[test]
fn rope_factors_are_read_and_checked() {
    let sample = samples::llama_rope_freqs();
    let run =
        |values: &[f32]| plan(&sample.metadata, &sample.tensors, &factors(values), &PlanOptions::default());
    let plan = run(&[2.0; 32]).expect("a plan");
    assert_eq!(plan.rope_tables[0].inverse_frequencies[0], 0.5);
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let mut values = [1.0; 32];
        values[5] = bad;
        let error = run(&values).expect_err("a bad factor").to_string();
        let expected = format!(
            "tensor `rope_freqs.weight`, element 5 is {bad}, but RoPE factors are finite and above 0; the file"
        );
        assert!(error.starts_with(&expected), "{error}");
    }
    assert!(matches!(run(&[1.0; 31]), Err(PlanError::RopeFactorsLen { found_bytes: 124, .. })));
    let absent = plan_error(&sample, &MemoryWeights::default());
    assert_eq!(absent.to_string(), "tensor `rope_freqs.weight`: there is none of this name");
}

fn plan_error(sample: &Sample, source: &MemoryWeights) -> PlanError {
    plan(&sample.metadata, &sample.tensors, source, &PlanOptions::default()).expect_err(sample.name)
}

#[test]
fn stopping_early_makes_no_plan() {
    let sample = samples::llama();
    let options =
        PlanOptions { stop_after: Some("quantize-activations".to_owned()), ..PlanOptions::default() };
    let error =
        plan(&sample.metadata, &sample.tensors, &MemoryWeights::default(), &options).expect_err("no plan");
    assert_eq!(
        error.to_string(),
        "the passes were stopped after `quantize-activations`, before `quantize-heads`, without which there is no plan"
    );
    let options = PlanOptions { stop_after: Some("quantize-heads".to_owned()), ..PlanOptions::default() };
    assert!(plan(&sample.metadata, &sample.tensors, &MemoryWeights::default(), &options).is_ok());
}

/// Reads only what an earlier step wrote, writes nothing that it reads, kinds as the operation needs them, caches
/// written before they are read, weights in the order of first use, the logits last.
fn check_flow(plan: &Plan, name: &str) {
    let mut written = vec![false; plan.buffers.len()];
    let mut cached = vec![false; plan.kv_layers.len()];
    let mut next_weight = 0;
    for step in &plan.steps {
        let Flow { reads, writes, weights } = flow(&step.op);
        let at = &step.label;
        for weight in weights {
            assert!(
                weight.index() <= next_weight,
                "{name}, {at}: weights are listed in the order of first use"
            );
            next_weight = next_weight.max(weight.index() + 1);
        }
        for (buffer, kind) in &reads {
            assert!(written[buffer.index()], "{name}, {at}: reads {buffer} before it is written");
            assert_eq!(letter(plan.buffers[buffer.index()].kind), *kind, "{name}, {at}: {buffer}");
        }
        for (buffer, kind) in &writes {
            assert!(
                reads.iter().all(|(read, _)| read != buffer),
                "{name}, {at}: writes its operand {buffer}"
            );
            assert_eq!(letter(plan.buffers[buffer.index()].kind), *kind, "{name}, {at}: {buffer}");
            written[buffer.index()] = true;
        }
        match step.op {
            Op::WriteKv { layer, .. } => cached[layer.index()] = true,
            Op::Attention { layer, .. } => assert!(cached[layer.index()], "{name}, {at}"),
            _ => {}
        }
    }
    assert_eq!(next_weight, plan.weights.len(), "{name}: every weight is used");
    assert_eq!(plan.logits.index(), plan.buffers.len() - 1, "{name}: logits last");
    let logits = &plan.buffers[plan.logits.index()];
    assert_eq!((logits.rows, logits.kind), (Rows::Outputs, BufferKind::F32 { width: plan.vocab_len }));
    assert!(written[plan.logits.index()], "{name}: logits written");
}

fn letter(kind: BufferKind) -> char {
    match kind {
        BufferKind::F32 { .. } => 'f',
        BufferKind::A16 { .. } => 'a',
        BufferKind::Q16 { .. } => 'q',
    }
}

struct Flow {
    reads: Vec<(BufferId, char)>,
    writes: Vec<(BufferId, char)>,
    weights: Vec<WeightId>,
}

fn flow(op: &Op) -> Flow {
    let flow = |reads: &[(BufferId, char)], writes: &[(BufferId, char)], weights: &[WeightId]| Flow {
        reads: reads.to_vec(),
        writes: writes.to_vec(),
        weights: weights.to_vec(),
    };
    let both = |out: Option<BufferId>, quantized: Option<BufferId>| {
        out.map(|b| (b, 'f')).into_iter().chain(quantized.map(|b| (b, 'a'))).collect::<Vec<_>>()
    };
    let norm_weight =
        |norm: Option<unisonic_core::plan::HeadNorm>| norm.map(|n| n.weight).into_iter().collect();
    match *op {
        Op::Embed { table, out, .. } | Op::EmbedPositions { table, out } => {
            flow(&[], &[(out, 'f')], &[table])
        }
        Op::LayerNorm { x, weight, bias, out, quantized, .. } => {
            Flow { writes: both(out, quantized), ..flow(&[(x, 'f')], &[], &[weight, bias]) }
        }
        Op::Gelu { x, out, quantized } => {
            Flow { writes: both(out, quantized), ..flow(&[(x, 'f')], &[], &[]) }
        }
        Op::Route { x, router, out, .. } => flow(&[(x, 'f')], &[(out, 'f')], &[router]),
        Op::ExpertLinear { x, routes, weight, out } => {
            flow(&[(x, 'a'), (routes, 'f')], &[(out, 'f')], &[weight])
        }
        Op::SumExperts { x, routes, out } => flow(&[(x, 'f'), (routes, 'f')], &[(out, 'f')], &[]),
        Op::AddShared { x, gate, a, b, out } => flow(&[(x, 'f'), (a, 'f'), (b, 'f')], &[(out, 'f')], &[gate]),
        Op::RmsNorm { x, weight, add, out, quantized, .. } => Flow {
            reads: [x].into_iter().chain(add).map(|b| (b, 'f')).collect(),
            writes: both(out, quantized),
            weights: vec![weight],
        },
        Op::HeadNorm { x, weight, out, .. } => {
            Flow { weights: weight.into_iter().collect(), ..flow(&[(x, 'f')], &[(out, 'f')], &[]) }
        }
        Op::Scale { x, scale, out } => flow(&[(x, 'f')], &[(out, 'f')], &[scale]),
        Op::Quantize { x, out } => flow(&[(x, 'f')], &[(out, 'a')], &[]),
        Op::Linear { x, weight, bias, add, out, .. } => Flow {
            reads: [(x, 'a')].into_iter().chain(add.map(|b| (b, 'f'))).collect(),
            writes: vec![(out, 'f')],
            weights: [weight].into_iter().chain(bias).collect(),
        },
        Op::PrepareQuery { q, norm, out, .. } => {
            Flow { weights: norm_weight(norm), ..flow(&[(q, 'f')], &[(out, 'q')], &[]) }
        }
        Op::WriteKv { k, v, norm, .. } => {
            Flow { weights: norm_weight(norm), ..flow(&[(k, 'f'), (v, 'f')], &[], &[]) }
        }
        Op::Attention { q, out, .. } => flow(&[(q, 'q')], &[(out, 'f')], &[]),
        Op::Gate { gate, up, out, quantized, .. } => {
            Flow { writes: both(out, quantized), ..flow(&[(gate, 'f'), (up, 'f')], &[], &[]) }
        }
        Op::Add { a, b, out } => flow(&[(a, 'f'), (b, 'f')], &[(out, 'f')], &[]),
        Op::Rope { x, out, .. } | Op::SelectOutputs { x, out } | Op::SoftCap { x, out, .. } => {
            flow(&[(x, 'f')], &[(out, 'f')], &[])
        }
    }
}
