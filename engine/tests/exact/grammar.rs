//! Answers that follow a grammar: how they end, what guesses do, and what goes wrong.

use std::ops::ControlFlow;
use std::sync::Arc;

use unisonic_engine::constraint::{Constraint, ConstraintKind};
use unisonic_engine::draft::{DraftStats, Drafter, NgramDrafter};
use unisonic_engine::sampling::SamplerOptions;
use unisonic_engine::schedule::{Event, Request, ScheduleLimits, Scheduler};
use unisonic_engine::tokenizer::ControlTokens;
use unisonic_engine::{Engine, EngineError, GenerateOptions, Greedy, Sample};

use super::common::{
    Answer, Scripted, alone, answer_in, constrained, cpu, ids, load, long_schema, options, tokenizer,
};
use super::toy::Toy;

fn regex(text: &str) -> Constraint {
    Constraint::new(ConstraintKind::Regex, text)
}

fn text(answer: &Answer) -> String {
    tokenizer().decode(&answer.ids, ControlTokens::Hide)
}

/// Generates greedily under a constraint; also what the session holds in the end.
fn run(
    engine: &mut Engine,
    constraint: &Constraint,
    prompt: &[u32],
    max_tokens: u32,
    drafter: Option<&mut dyn Drafter>,
) -> Result<(Answer, Vec<u32>, DraftStats), EngineError> {
    let mut sampler = constrained(constraint, &SamplerOptions::default(), prompt.len());
    let mut session = engine.session();
    let options = GenerateOptions {
        max_tokens: Some(max_tokens),
        sampler: Some(&mut sampler),
        drafter: drafter.map(|drafter| drafter as _),
        cancelled: None,
    };
    let end = tokenizer().eos();
    let (answer, completion) = answer_in(engine, &mut session, prompt, end, options)?;
    Ok((answer, session.tokens().to_vec(), completion.drafts))
}

#[test]
fn an_answer_ends_where_nothing_more_may_come() {
    for mut engine in [load(&Toy::NEW, "Q4_0", &options()), cpu(&options())] {
        let prompt = ids(31, 40, 8);
        for (constraint, right) in
            [("exactly this", "exactly this"), ("(yes|yes, of course){1}!", ""), ("[ab]{30}", ""), ("", "")]
        {
            let (plain, held, _) = run(&mut engine, &regex(constraint), &prompt, 100, None).unwrap();
            assert_eq!(plain.stop, "grammar", "{constraint}");
            assert!(right.is_empty() || text(&plain) == right, "{}", text(&plain));
            let script = [&prompt[..], &plain.ids, &[1; 64]].concat();
            for wrong_every in [0, 1, 3] {
                let mut drafter = Scripted { right: script.clone(), wrong_every, wrong: 5 };
                let found = run(&mut engine, &regex(constraint), &prompt, 100, Some(&mut drafter)).unwrap();
                assert_eq!((&found.0, &found.1), (&plain, &held), "{constraint}, one in {wrong_every} wrong");
            }
            // Ended by its length at every place before.
            for max_tokens in 0..plain.ids.len() as u32 {
                let mut drafter = NgramDrafter::new();
                let found =
                    run(&mut engine, &regex(constraint), &prompt, max_tokens, Some(&mut drafter)).unwrap();
                assert_eq!(found.0.ids, plain.ids[..max_tokens as usize]);
                assert_eq!(found.0.stop, "length");
            }
        }
        // An end token is allowed where the answer may end, and chosen if it is likely.
        let (answer, ..) = run(&mut engine, &regex("[ab]*"), &prompt, 200, None).unwrap();
        assert!(["eog", "length"].contains(&answer.stop));
    }
}

/// Text without a choice is guessed, and a byte at a time the guesses are right.
#[test]
fn forced_text_takes_few_steps() {
    let mut engine = load(&Toy::NEW, "Q4_0", &options());
    let prompt = ids(31, 40, 8);
    let sentence = "nothing here is left to choose, and it is run in two steps";
    let mut drafter = NgramDrafter::new();
    let (answer, _, drafts) = run(&mut engine, &regex(sentence), &prompt, 100, Some(&mut drafter)).unwrap();
    assert_eq!((text(&answer).as_str(), answer.stop), (sentence, "grammar"));
    assert!(drafts.steps <= 3 && drafts.accepted as usize >= sentence.len() - 3, "{drafts:?}");
}

/// Guesses that the grammar forbids are not run.
#[test]
fn forbidden_guesses_are_cut() {
    let mut engine = load(&Toy::NEW, "Q4_0", &options());
    let prompt = ids(31, 40, 8);
    let mut drafter = Scripted { right: Vec::new(), wrong_every: 0, wrong: 5 };
    let (.., drafts) = run(&mut engine, &regex("[ab]{50}"), &prompt, 60, Some(&mut drafter)).unwrap();
    assert_eq!((drafts.drafted, drafts.steps), (0, 50));
}

/// A grammar with more choices at one place than there may be: it fails at the same token whatever is guessed, and only
/// its own request.
#[test]
fn a_grammar_that_fails_is_one_requests_error() {
    let names: Vec<String> = (0..2100).map(|n| format!("r{n}")).collect();
    let rules: String = names.iter().map(|name| format!("{name}: \"a\" \"{name}\"\n")).collect();
    let hard = format!("start: /[ab]{{5}}/ \"x\" ({})\n{rules}", names.join(" | "));
    let hard = Constraint::new(ConstraintKind::Lark, hard);
    let prompt = ids(31, 40, 8);
    let engine = || load(&Toy::NEW, "Q4_0", &options());
    let right = alone(&mut engine(), &prompt, 50);
    let request = |sampler: Box<dyn Sample>| Request {
        prompt: prompt.clone(),
        max_tokens: Some(50),
        salt: Vec::new(),
        sampler,
        drafter: Some(Box::new(NgramDrafter::new())),
        is_stop: Arc::new(|_| false),
    };
    let mut scheduler = Scheduler::new(engine(), ScheduleLimits::default());
    let free = scheduler.submit(request(Box::new(Greedy))).unwrap();
    // The end token is not drawn.
    let options = SamplerOptions {
        temperature: 1.0,
        logit_bias: vec![(2, f64::NEG_INFINITY)],
        ..SamplerOptions::default()
    };
    let drawn = |constraint| Box::new(constrained(constraint, &options, prompt.len()));
    let bad = scheduler.submit(request(drawn(&hard))).unwrap();
    let good = scheduler.submit(request(drawn(&long_schema()))).unwrap();
    let (mut failed, mut tokens, mut done) = (Vec::new(), Vec::new(), Vec::new());
    while scheduler
        .step(&mut |event| {
            match event {
                Event::Token { id, token, .. } if id == bad => tokens.push(token),
                Event::Token { .. } => {}
                Event::Done { id, completion } => done.push((id, completion)),
                Event::Failed { id, error } => failed.push((id, error.to_string())),
            }
            ControlFlow::Continue(())
        })
        .unwrap()
    {}
    let [(id, error)] = &failed[..] else { panic!("{failed:?}, {} done", done.len()) };
    assert_eq!(*id, bad);
    assert!(error.contains("the grammar failed after"), "{error}");
    assert!(done.iter().any(|(id, completion)| *id == free && completion.token_ids == right.ids));
    assert!(done.iter().any(|(id, _)| *id == good));
    // Alone, and without guesses: the same tokens and the same error.
    let mut engine = engine();
    for guesses in [false, true] {
        let mut drafter = NgramDrafter::new();
        let mut sampler = constrained(&hard, &options, prompt.len());
        let mut session = engine.session();
        let options = GenerateOptions {
            max_tokens: Some(50),
            sampler: Some(&mut sampler),
            drafter: guesses.then_some(&mut drafter as _),
            cancelled: None,
        };
        let mut seen = Vec::new();
        let found = unisonic_engine::generate(
            &mut engine,
            &mut session,
            &prompt,
            options,
            &|_| false,
            &mut |token, _| {
                seen.push(token);
                ControlFlow::Continue(())
            },
        );
        assert_eq!(found.unwrap_err().to_string(), *error);
        assert_eq!(seen, tokens);
    }
}
