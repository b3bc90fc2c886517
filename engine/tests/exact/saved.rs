//! Sequences in files: what is continued by another engine on another device is what it would have been.

use unisonic_cpu::scalar::{Arithmetic, ScalarDevice};
use unisonic_engine::constraint::ConstrainedAnswer;
use unisonic_engine::draft::NgramDrafter;
use unisonic_engine::sampling::{Sampler, SamplerOptions, Window};
use unisonic_engine::{Digest, Engine, GenerateOptions, Sample, SavedSession, SavedSessionError, Session};

use crate::common::{Answer, VOCAB, answer_in, constrained, cpu, ids, load, long_schema, options};
use crate::toy::Toy;

fn sampler_options() -> [SamplerOptions; 3] {
    let drawn = SamplerOptions { temperature: 1.0, min_p: Some(0.01), seed: 11, ..SamplerOptions::default() };
    let penalised = SamplerOptions {
        repeat_penalty: 1.3,
        frequency_penalty: 0.2,
        repeat_window: Window::Last(30),
        ..drawn.clone()
    };
    [SamplerOptions::default(), drawn, penalised]
}

/// Generates in a session what comes after all of `tokens`.
fn go_on(
    engine: &mut Engine,
    session: &mut Session,
    tokens: &[u32],
    sampler: &SamplerOptions,
    follows: Option<&ConstrainedAnswer>,
    max_tokens: u32,
) -> Answer {
    let mut sampler: Box<dyn Sample> = match follows {
        Some(answer) => Box::new(constrained(&answer.constraint, sampler, answer.start)),
        None => Box::new(Sampler::new(sampler, VOCAB).unwrap()),
    };
    let mut drafter = NgramDrafter::new();
    let rest = tokens[session.tokens().len()..].to_vec();
    let options = GenerateOptions {
        max_tokens: Some(max_tokens),
        sampler: Some(&mut *sampler),
        drafter: Some(&mut drafter),
        ..GenerateOptions::default()
    };
    answer_in(engine, session, &rest, None, options).unwrap().0
}

fn engines() -> Vec<(&'static str, Engine)> {
    let scalar = load(&ScalarDevice::new(Arithmetic::U1), "Q4_0", &options());
    vec![("cpu", cpu(&options())), ("scalar", scalar)]
}

#[test]
fn twenty_and_twenty_are_forty() {
    let model = Digest::of(b"tiny");
    let [greedy, drawn, penalised] = sampler_options();
    for (prompt_len, sampler, is_free) in [
        (3, greedy.clone(), true),
        (50, drawn, true),
        (150, penalised.clone(), true),
        (7, greedy, false),
        (150, penalised, false),
    ] {
        let follows = (!is_free).then(|| ConstrainedAnswer { start: prompt_len, constraint: long_schema() });
        let follows = follows.as_ref();
        let prompt = ids(5, prompt_len, VOCAB);
        let mut engine = cpu(&options());
        let mut session = engine.session();
        let forty = go_on(&mut engine, &mut session, &prompt, &sampler, follows, 40);
        for (first, mut engine) in engines() {
            let mut session = engine.session();
            let twenty = go_on(&mut engine, &mut session, &prompt, &sampler, follows, 20);
            let tokens = [&prompt[..], &twenty.ids].concat();
            let saved = SavedSession::of(&mut engine, &session, &tokens, model, sampler.clone());
            let saved = saved.unwrap().with_answer(follows.cloned());
            let bytes = saved.to_bytes();
            for (second, mut engine) in engines() {
                let read = SavedSession::from_bytes(&bytes).unwrap();
                assert_eq!(read, saved);
                read.check_model(model).unwrap();
                read.check_profile(&engine.device().profile).unwrap();
                let mut session = read.restore(&mut engine).unwrap();
                let pages = (tokens.len() - 1) / 64;
                assert_eq!(session.tokens(), &tokens[..pages * 64], "full pages are not run again");
                let rest = go_on(&mut engine, &mut session, read.tokens(), read.sampler(), read.answer(), 20);
                assert_eq!([&twenty.ids[..], &rest.ids].concat(), forty.ids, "{first} {second}");
                assert_eq!([&twenty.digests[..], &rest.digests].concat(), forty.digests);
            }
        }
    }
}

#[test]
fn where_pages_are_not_given_out_or_taken_they_are_made_again() {
    let mut answers = Vec::new();
    for (saves, loads) in [(true, true), (true, false), (false, true)] {
        let engine = |copies: bool| load(&Toy { copies, ..Toy::NEW }, "Q4_0", &options());
        let mut first = engine(saves);
        let prompt = ids(9, 130, VOCAB);
        let mut session = first.session();
        let sampler = SamplerOptions::default();
        let twenty = go_on(&mut first, &mut session, &prompt, &sampler, None, 20);
        let tokens = [&prompt[..], &twenty.ids].concat();
        let model = Digest::of(b"toy");
        let saved = SavedSession::of(&mut first, &session, &tokens, model, sampler.clone()).unwrap();
        let mut second = engine(loads);
        let mut session = saved.restore(&mut second).unwrap();
        assert_eq!(session.tokens().len(), if saves && loads { 128 } else { 0 });
        answers.push(go_on(&mut second, &mut session, &tokens, &sampler, None, 20));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

#[test]
fn a_session_of_a_smaller_context_restores_what_fits() {
    let mut engine = cpu(&options());
    let mut session = engine.session();
    let prompt = ids(2, 140, VOCAB);
    let sampler = SamplerOptions::default();
    let answer = go_on(&mut engine, &mut session, &prompt, &sampler, None, 5);
    let tokens = [&prompt[..], &answer.ids].concat();
    let saved = SavedSession::of(&mut engine, &session, &tokens, Digest::of(b"m"), sampler).unwrap();
    let small = unisonic_engine::EngineOptions { context_len: Some(100), ..options() };
    assert_eq!(saved.restore(&mut cpu(&small)).unwrap().tokens().len(), 64);
}

#[test]
fn what_is_damaged_or_foreign_is_said() {
    let mut engine = cpu(&options());
    let mut session = engine.session();
    let prompt = ids(2, 70, VOCAB);
    go_on(&mut engine, &mut session, &prompt, &SamplerOptions::default(), None, 1);
    let model = Digest::of(b"m");
    let saved = SavedSession::of(&mut engine, &session, &prompt, model, SamplerOptions::default()).unwrap();
    let bytes = saved.to_bytes();
    let error = |bytes: &[u8]| SavedSession::from_bytes(bytes).unwrap_err();
    assert!(matches!(error(b""), SavedSessionError::Foreign));
    assert!(matches!(error(b"GGUF of something"), SavedSessionError::Foreign));
    for len in (16..bytes.len()).step_by(97) {
        assert!(matches!(error(&bytes[..len]), SavedSessionError::Damaged(_)), "cut at {len}");
    }
    for at in (16..bytes.len()).step_by(89) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(matches!(error(&changed), SavedSessionError::Damaged(_)), "changed at {at}");
    }
    // A length beyond the end, with a right digest.
    let mut long = bytes[..bytes.len() - 32].to_vec();
    long[16..24].fill(0xff);
    let sum = Digest::of(&long);
    assert!(matches!(error(&[&long[..], &sum.0].concat()), SavedSessionError::Damaged(_)));

    let other = saved.check_model(Digest::of(b"n")).unwrap_err().to_string();
    assert!(other.contains(&model.to_string()) && other.contains(&Digest::of(b"n").to_string()), "{other}");
    let other = saved.check_profile("u1-exact-v").unwrap_err().to_string();
    assert!(other.contains("`u1`") && other.contains("u1-exact-v"), "{other}");
    let (scalar, session) = (&mut engines().remove(1).1, session);
    assert!(scalar.read_pages(&session).is_err(), "the session of another engine");
}
