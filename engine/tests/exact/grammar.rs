//! Answers that follow a grammar: how they end, what guesses do, and what goes wrong.

use unisonic_engine::constraint::{Constraint, ConstraintKind};
use unisonic_engine::draft::{DraftStats, Drafter, NgramDrafter};
use unisonic_engine::sampling::SamplerOptions;
use unisonic_engine::tokenizer::ControlTokens;
use unisonic_engine::{Engine, EngineError, GenerateOptions};

use super::common::{Answer, Scripted, answer_in, constrained, cpu, ids, load, options, tokenizer};
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
