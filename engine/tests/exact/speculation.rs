//! Guesses: right, wrong and hostile ones.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use unisonic_engine::draft::{Drafter, ModelDrafter, NgramDrafter, StepCosts};
use unisonic_engine::sampling::SamplerOptions;
use unisonic_engine::{Engine, EngineError, EngineOptions, GenerateOptions, Greedy, Sample, Stop, generate};

use super::common::{
    Answer, Penalised, Scripted, Seeded, VOCAB, all_options, alone, answer_in, constrained, cpu, digest,
    drawn_by_grammar, greedy_with_penalties, ids, load, long_schema, options,
};
use super::toy::Toy;

/// For answers after so many tokens.
fn samplers(start: usize) -> [(&'static str, Box<dyn Sample>); 7] {
    [
        ("greedy", Box::new(Greedy)),
        ("seeded", Box::new(Seeded(7))),
        ("penalised", Box::new(Penalised)),
        ("all options", Box::new(all_options(7))),
        ("greedy with penalties", Box::new(greedy_with_penalties())),
        ("greedy by a grammar", Box::new(constrained(&long_schema(), &SamplerOptions::default(), start))),
        ("drawn by a grammar", Box::new(drawn_by_grammar(start))),
    ]
}

/// Generates in a fresh session; also what the session holds in the end.
fn run<'a>(
    engine: &mut Engine,
    prompt: &[u32],
    max_tokens: u32,
    end_token: Option<u32>,
    sampler: &'a mut dyn Sample,
    drafter: Option<&'a mut dyn Drafter>,
) -> (Answer, Vec<u32>, u64) {
    let mut session = engine.session();
    let options =
        GenerateOptions { max_tokens: Some(max_tokens), sampler: Some(sampler), drafter, cancelled: None };
    let (answer, completion) = answer_in(engine, &mut session, prompt, end_token, options).unwrap();
    (answer, session.tokens().to_vec(), completion.drafts.accepted)
}

/// Every kind of guess, against none.
fn guesses_are_invisible(name: &str, engine: &mut Engine, max_tokens: u32, errors: &[usize], wrongs: &[u32]) {
    let prompt = ids(31, 40, 8);
    for (kind, mut sampler) in samplers(prompt.len()) {
        let (right, held, _) = run(engine, &prompt, max_tokens, None, &mut *sampler, None);
        let all = [&prompt[..], &right.ids].concat();
        for &wrong_every in errors {
            for &wrong in wrongs {
                let mut drafter = Scripted { right: all.clone(), wrong_every, wrong };
                let found = run(engine, &prompt, max_tokens, None, &mut *sampler, Some(&mut drafter));
                let what = format!("{name}, {kind}, one in {wrong_every} wrong ({wrong})");
                assert_eq!((&found.0, &found.1), (&right, &held), "{what}");
                if wrong_every != 1 {
                    assert!(found.2 > 0, "{what}: nothing was accepted");
                }
            }
        }
        let mut drafter = NgramDrafter::new();
        let found = run(engine, &prompt, max_tokens, None, &mut *sampler, Some(&mut drafter));
        assert_eq!((found.0, found.1), (right, held), "{name}, {kind}, n-gram");
    }
}

#[test]
fn guesses_are_invisible_on_the_toy() {
    let mut engine = load(&Toy::NEW, "Q4_0", &options());
    let (errors, wrongs) = ([0, 1, 2, 3, 7, 50], [3, VOCAB, u32::MAX]);
    guesses_are_invisible("toy", &mut engine, 150, &errors, &wrongs);
}

#[test]
fn guesses_are_invisible_on_the_cpu() {
    guesses_are_invisible("cpu", &mut cpu(&options()), 40, &[0, 5], &[3]);
}

#[test]
fn right_guesses_take_few_steps() {
    let mut engine = load(&Toy::NEW, "Q4_0", &options());
    let prompt = ids(31, 40, 8);
    let right = alone(&mut engine, &prompt, 128);
    let mut drafter = Scripted { right: [&prompt[..], &right.ids].concat(), wrong_every: 0, wrong: 0 };
    let mut session = engine.session();
    let options =
        GenerateOptions { max_tokens: Some(128), drafter: Some(&mut drafter), ..GenerateOptions::default() };
    let (found, completion) = answer_in(&mut engine, &mut session, &prompt, None, options).unwrap();
    assert_eq!(found, right);
    // The first comes with the prompt and what fits beside it, the others 64 at a time.
    assert_eq!(completion.drafts.steps, 3);
    assert_eq!(completion.drafts.accepted, 125);
    assert!(completion.drafts.drafted <= 126, "{:?}", completion.drafts);
}

/// Report 1.07: the first guess is held against the model like any other.
#[test]
fn the_first_guess_is_checked() {
    for device in ["toy", "cpu"] {
        let mut engine = if device == "toy" { load(&Toy::NEW, "Q4_0", &options()) } else { cpu(&options()) };
        let wrong = |engine: &mut Engine| {
            let token = (0..VOCAB).find(|&token| alone(engine, &[token; 3], 1).ids != [token]);
            token.unwrap()
        };
        let token = wrong(&mut engine);
        let right = alone(&mut engine, &[token; 3], 4);
        let mut drafter = NgramDrafter::new();
        assert!(drafter.look(&[token; 3]).is_some());
        let mut guess = Vec::new();
        drafter.draft(&[token; 3], 1, &mut guess);
        assert_eq!(guess, [token], "the guess is wrong");
        let (found, ..) = run(&mut engine, &[token; 3], 4, None, &mut Greedy, Some(&mut drafter));
        assert_eq!(found, right, "{device}");
    }
}

/// An end token, a limit, the end of the context or the caller, at every place among guesses.
#[test]
fn ends_inside_a_batch_are_exact() {
    let small = EngineOptions { context_len: Some(100), ..options() };
    let mut engine = load(&Toy::NEW, "Q4_0", &small);
    let prompt = ids(31, 40, 8);
    let (right, ..) = run(&mut engine, &prompt, 1000, None, &mut Seeded(1), None);
    assert_eq!((right.ids.len(), right.stop), (60, "context"));
    let script = [&prompt[..], &right.ids, &[1; 64]].concat();
    let drafter = || Scripted { right: script.clone(), wrong_every: 0, wrong: 0 };

    let found = run(&mut engine, &prompt, 1000, None, &mut Seeded(1), Some(&mut drafter()));
    assert_eq!(found.0, right);
    for max_tokens in 0..62 {
        let plain = run(&mut engine, &prompt, max_tokens, None, &mut Seeded(1), None);
        let found = run(&mut engine, &prompt, max_tokens, None, &mut Seeded(1), Some(&mut drafter()));
        assert_eq!((found.0, found.1), (plain.0, plain.1), "{max_tokens} tokens");
    }
    for &end in &right.ids {
        let plain = run(&mut engine, &prompt, 1000, Some(end), &mut Seeded(1), None);
        let found = run(&mut engine, &prompt, 1000, Some(end), &mut Seeded(1), Some(&mut drafter()));
        assert_eq!(plain.0.stop, "eog");
        assert_eq!((found.0, found.1), (plain.0, plain.1), "end token {end}");
    }
    for count in 1..60 {
        let (mut session, mut drafter, mut sampler) = (engine.session(), drafter(), Seeded(1));
        let options = GenerateOptions {
            sampler: Some(&mut sampler),
            drafter: Some(&mut drafter),
            ..GenerateOptions::default()
        };
        let mut seen = Vec::new();
        let cancelled =
            generate(&mut engine, &mut session, &prompt, options, &|_| false, &mut |_, logits| {
                seen.push(digest(logits));
                if seen.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        let cancelled = cancelled.unwrap();
        assert_eq!((cancelled.stop, &cancelled.token_ids[..]), (Stop::Cancelled, &right.ids[..count]));
        assert_eq!(seen, right.digests[..count]);
        assert_eq!(session.tokens(), &script[..40 + count - 1]);
    }
}

/// A guess that would leave the range of the arithmetic is no error as long as it is wrong; a token that does
/// is one, guessed or not.
#[test]
fn only_tokens_that_come_true_can_fail() {
    let prompt = ids(31, 40, 8);
    let right = alone(&mut load(&Toy::NEW, "Q4_0", &options()), &prompt, 100);
    let mut engine = load(&Toy { out_of_range: Some(200), ..Toy::NEW }, "Q4_0", &options());
    let script = [&prompt[..], &right.ids].concat();
    for wrong_every in [1, 2, 9] {
        let mut drafter = Scripted { right: script.clone(), wrong_every, wrong: 200 };
        let (found, ..) = run(&mut engine, &prompt, 100, None, &mut Greedy, Some(&mut drafter));
        assert_eq!(found, right);
    }

    let said = right.ids[50];
    let prompt: Vec<u32> = prompt.into_iter().map(|token| if token == said { 100 } else { token }).collect();
    let mut engine = load(&Toy { out_of_range: Some(said), ..Toy::NEW }, "Q4_0", &options());
    let mut fail = |drafter: Option<&mut dyn Drafter>| {
        let mut session = engine.session();
        let options = GenerateOptions { max_tokens: Some(100), drafter, ..GenerateOptions::default() };
        let mut seen = Vec::new();
        let failed =
            generate(&mut engine, &mut session, &prompt, options, &|_| false, &mut |token, logits| {
                seen.push((token, digest(logits)));
                ControlFlow::Continue(())
            });
        let Err(EngineError::Range { position, .. }) = failed else { panic!("{failed:?}") };
        assert_eq!(session.tokens().len(), position as usize);
        (position, seen)
    };
    let plain = fail(None);
    assert_eq!(plain.1.last().map(|(token, _)| *token), Some(said));
    let script: Vec<u32> =
        [&prompt[..], &plain.1.iter().map(|(token, _)| *token).collect::<Vec<_>>()].concat();
    for wrong_every in [0, 3] {
        let mut drafter = Scripted { right: script.clone(), wrong_every, wrong: 0 };
        assert_eq!(fail(Some(&mut drafter)), plain);
    }
}

/// Another model guesses: one that agrees always, and one that seldom does.
#[test]
fn a_draft_model_is_invisible() {
    let prompt = ids(41, 70, VOCAB);
    let mut engine = cpu(&options());
    for (quant, agrees) in [("Q4_0", true), ("Q8_0", false)] {
        let device = unisonic_cpu::native::CpuDevice::new().with_threads(1);
        let mut draft = load(&device, quant, &options());
        draft.set_costs(StepCosts::known([0.001; 7]));
        let draft = Arc::new(Mutex::new(draft));
        for (kind, mut sampler) in samplers(prompt.len()) {
            let mut drafter = ModelDrafter::new(Arc::clone(&draft), VOCAB, b"").unwrap();
            let (right, ..) = run(&mut engine, &prompt, 40, None, &mut *sampler, None);
            let (found, _, accepted) = run(&mut engine, &prompt, 40, None, &mut *sampler, Some(&mut drafter));
            assert_eq!(found, right, "{quant}, {kind}");
            assert!(!agrees || kind != "greedy" || accepted >= 36, "{quant}: {accepted} accepted");
        }
        assert_eq!(draft.lock().unwrap().page_use().held, 0);
    }
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused() {
    let draft = Arc::new(Mutex::new(load(&Toy::NEW, "Q4_0", &options())));
    let refused = ModelDrafter::new(draft, VOCAB + 1, b"").err().unwrap().to_string();
    assert!(refused.contains("259") && refused.contains("260"), "{refused}");
}

/// A draft model whose context is full stops guessing; the answer goes on.
#[test]
fn a_short_draft_model_ends_before_the_answer() {
    let mut engine = load(&Toy::NEW, "Q4_0", &options());
    let prompt = ids(31, 40, 8);
    let right = alone(&mut engine, &prompt, 100);
    let draft = load(&Toy::NEW, "Q4_0", &EngineOptions { context_len: Some(64), ..options() });
    let mut drafter = ModelDrafter::new(Arc::new(Mutex::new(draft)), VOCAB, b"").unwrap();
    engine.set_costs(StepCosts::known([1e6; 7]));
    let (found, _, accepted) = run(&mut engine, &prompt, 100, None, &mut Greedy, Some(&mut drafter));
    assert_eq!(found, right);
    assert!(accepted > 10, "{accepted}");
}
