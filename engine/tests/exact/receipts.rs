//! Receipts: what is recomputed in a batch is what was computed token by token, and a difference is found
//! where it is.

use std::ops::ControlFlow;

use unisonic_engine::constraint::{ConstrainedAnswer, Constraint};
use unisonic_engine::receipt::{Difference, MadeWith, ModelId, Receipt, Verdict, verify};
use unisonic_engine::sampling::{Sampler, SamplerOptions};
use unisonic_engine::{Digest, Engine, EngineOptions, GenerateOptions, Sample, generate};

use crate::common::{VOCAB, constrained, cpu, ids, long_schema, options};

fn sampler_options() -> [SamplerOptions; 3] {
    let drawn = SamplerOptions { temperature: 1.0, top_p: Some(0.9), seed: 7, ..SamplerOptions::default() };
    let penalised = SamplerOptions { repeat_penalty: 1.5, presence_penalty: 0.5, ..drawn.clone() };
    [SamplerOptions::default(), drawn, penalised]
}

fn receipt(engine: &mut Engine, sampler: SamplerOptions, prompt: Vec<u32>, max_tokens: u32) -> Receipt {
    receipt_of(engine, sampler, None, prompt, max_tokens)
}

fn sampler_of(receipt: &Receipt) -> Box<dyn Sample> {
    match &receipt.answer {
        Some(answer) => Box::new(constrained(&answer.constraint, &receipt.sampler, answer.start)),
        None => Box::new(Sampler::new(&receipt.sampler, VOCAB).unwrap()),
    }
}

fn receipt_of(
    engine: &mut Engine,
    sampler: SamplerOptions,
    constraint: Option<Constraint>,
    prompt: Vec<u32>,
    max_tokens: u32,
) -> Receipt {
    let made_with = MadeWith {
        program: "test".into(),
        device: engine.device().id.clone(),
        chunk_rows: engine.chunk_rows(),
        context_len: engine.context_len(),
        passes_off: Vec::new(),
    };
    let mut receipt = Receipt {
        unisonic_receipt: 1,
        model: ModelId { file: "tiny".into(), sha256: Digest::of(b"tiny") },
        profile: engine.device().profile.clone(),
        made_with,
        sampler,
        answer: constraint.map(|constraint| ConstrainedAnswer { start: prompt.len(), constraint }),
        prompt_ids: prompt,
        output_ids: Vec::new(),
        stop: "length".into(),
        chain: Vec::new(),
        sha256: None,
    };
    let mut chain = receipt.new_chain();
    let mut sampler = sampler_of(&receipt);
    let mut session = engine.session();
    let options = GenerateOptions {
        max_tokens: Some(max_tokens),
        sampler: Some(&mut *sampler),
        ..GenerateOptions::default()
    };
    let completion =
        generate(engine, &mut session, &receipt.prompt_ids, options, &|_| false, &mut |_, logits| {
            receipt.chain.push(chain.push(logits));
            ControlFlow::Continue(())
        });
    receipt.output_ids = completion.unwrap().token_ids;
    receipt.seal()
}

fn verdict(engine: &mut Engine, receipt: &Receipt) -> Verdict {
    verify(engine, receipt, &mut *sampler_of(receipt), &mut |_| {}).unwrap()
}

#[test]
fn a_receipt_of_single_tokens_is_recomputed_in_chunks_of_any_size() {
    for (prompt_len, sampler) in [1, 5, 70].into_iter().zip(sampler_options()) {
        let receipt = receipt(&mut cpu(&options()), sampler, ids(3, prompt_len, VOCAB), 100);
        assert_eq!(Receipt::from_json(&receipt.to_json()).unwrap(), receipt);
        for chunk_rows in [1, 7, 64, 512] {
            for max_outputs in [1, 16, 512] {
                let options = EngineOptions { chunk_rows, max_outputs, ..EngineOptions::default() };
                assert_eq!(verdict(&mut cpu(&options), &receipt), Verdict::Equal, "{chunk_rows}");
            }
        }
    }
}

#[test]
fn a_receipt_holds_what_its_answer_follows() {
    let [greedy, _, penalised] = sampler_options();
    for sampler in [greedy, penalised] {
        let prompt = ids(3, 20, VOCAB);
        let receipt = receipt_of(&mut cpu(&options()), sampler, Some(long_schema()), prompt, 60);
        assert_eq!(Receipt::from_json(&receipt.to_json()).unwrap(), receipt);
        for chunk_rows in [1, 7, 64] {
            let options = EngineOptions { chunk_rows, ..options() };
            assert_eq!(verdict(&mut cpu(&options), &receipt), Verdict::Equal, "{chunk_rows}");
        }
        // Without the constraint, or under another, other tokens are chosen.
        let free = Receipt { answer: None, ..receipt.clone() };
        assert!(matches!(verdict(&mut cpu(&options()), &free), Verdict::Differs(_)));
        let answer = ConstrainedAnswer { start: 20, constraint: Constraint::json_object() };
        let other = Receipt { answer: Some(answer), ..receipt };
        assert!(matches!(verdict(&mut cpu(&options()), &other), Verdict::Differs(_)));
    }
}

#[test]
fn the_first_difference_is_found() {
    let mut engine = cpu(&options());
    for sampler in sampler_options() {
        let prompt = ids(3, 5, VOCAB);
        let right = receipt(&mut engine, sampler, prompt, 80);
        for step in [0, 1, 40, 79] {
            // A digest that is not that of the logits.
            let mut wrong = right.clone();
            wrong.chain[step].0[31] ^= 1;
            let token = right.output_ids[step];
            let difference =
                Difference { step, position: 5 + step, expected: token, found: token, logits_differ: true };
            assert_eq!(verdict(&mut engine, &wrong), Verdict::Differs(difference));
            // A token that is not what is chosen from them.
            let mut wrong = right.clone();
            let other = (token + 1) % VOCAB;
            wrong.output_ids[step] = other;
            let difference =
                Difference { step, position: 5 + step, expected: other, found: token, logits_differ: false };
            assert_eq!(verdict(&mut engine, &wrong), Verdict::Differs(difference));
        }
        let mut other_prompt = right.clone();
        other_prompt.prompt_ids[0] ^= 1;
        let Verdict::Differs(found) = verdict(&mut engine, &other_prompt) else { panic!("equal") };
        assert_eq!((found.step, found.logits_differ), (0, true));
    }
}

#[test]
fn no_output_is_no_difference() {
    let mut engine = cpu(&options());
    let receipt = receipt(&mut engine, SamplerOptions::default(), vec![1], 0);
    assert_eq!(verdict(&mut engine, &receipt), Verdict::Equal);
}
