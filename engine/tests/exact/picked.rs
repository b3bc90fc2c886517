//! Tokens that the device picks, several steps without the host, are those that the host would choose.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use unisonic_engine::draft::{Drafter, NgramDrafter};
use unisonic_engine::schedule::{Event, Request, ScheduleLimits, Scheduler};
use unisonic_engine::{
    Engine, EngineOptions, GenerateOptions, Greedy, GreedyTokens, Sample, Session, generate,
};

use super::common::{Random, Scripted, Seeded, VOCAB, ids, load, options};
use super::toy::Toy;

const HOST: Toy = Toy { picks: false, ..Toy::NEW };

/// What a generation leaves behind.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    ids: Vec<u32>,
    stop: &'static str,
    /// What the session holds.
    tokens: Vec<u32>,
    error: Option<String>,
}

/// How a generation goes.
#[derive(Clone, Copy)]
struct Way {
    max_tokens: Option<u32>,
    end_token: Option<u32>,
    /// The caller stops it at this token.
    stop_at: usize,
}

fn run<'a>(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[u32],
    way: Way,
    sampler: &'a mut dyn Sample,
    drafter: Option<&'a mut dyn Drafter>,
) -> Left {
    let mut ids = Vec::new();
    let needs_logits = sampler.needs_logits();
    let options =
        GenerateOptions { max_tokens: way.max_tokens, sampler: Some(sampler), drafter, cancelled: None };
    let is_stop = |token| Some(token) == way.end_token;
    let found = generate(engine, session, prompt, options, &is_stop, &mut |token, logits| {
        assert_eq!(logits.is_empty(), !needs_logits);
        ids.push(token);
        if ids.len() == way.stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let (stop, error) = match found {
        Ok(completion) => {
            assert_eq!(completion.token_ids, ids);
            (completion.stop.as_str(), None)
        }
        Err(error) => ("", Some(error.to_string())),
    };
    Left { ids, stop, tokens: session.tokens().to_vec(), error }
}

/// Both ways, and once more from where they ended.
fn check(toy: Toy, options: &EngineOptions<'_>, seed: u64) {
    let mut random = Random::new(seed);
    let (mut host, mut device) =
        (load(&Toy { picks: false, ..toy }, "Q4_0", options), load(&toy, "Q4_0", options));
    let (mut of_host, mut of_device) = (host.session(), device.session());
    let mut prompt = ids(random.next(), 1 + random.below(90) as usize, 8);
    for turn in 0..3 {
        let way = Way {
            max_tokens: random.chance(80).then(|| random.below(50) as u32),
            end_token: random.chance(30).then(|| random.below(6) as u32),
            stop_at: if random.chance(30) { 1 + random.below(20) as usize } else { 0 },
        };
        let right = run(&mut host, &mut of_host, &prompt, way, &mut Greedy, None);
        let mut drafter: Option<Box<dyn Drafter>> = match random.below(3) {
            0 => Some(Box::new(NgramDrafter::new())),
            1 => Some(Box::new(Scripted { right: right.tokens.clone(), wrong_every: 7, wrong: 3 })),
            _ => None,
        };
        let drafter = drafter.as_deref_mut().map(|drafter| drafter as _);
        let found = run(&mut device, &mut of_device, &prompt, way, &mut GreedyTokens, drafter);
        assert_eq!(found, right, "seed {seed}, turn {turn}");
        if right.error.is_some() {
            return;
        }
        prompt = ids(random.next(), 1 + random.below(5) as usize, 8);
    }
}

#[test]
fn the_device_picks_what_the_host_would_choose() {
    for seed in 0..200 {
        check(Toy::NEW, &options(), seed);
    }
}

#[test]
fn picking_ends_where_the_context_does() {
    for seed in 0..50 {
        let options = EngineOptions { context_len: Some(100 + seed as u32), ..options() };
        check(Toy::NEW, &options, seed);
    }
}

/// The error names the position, and the tokens before it are kept.
#[test]
fn picking_ends_at_the_same_row_out_of_range() {
    for seed in 0..50 {
        check(Toy { out_of_range: Some(seed as u32 % 6), ..Toy::NEW }, &options(), seed);
    }
}

/// A step a token, however many ran one after the other.
#[test]
fn steps_are_counted_as_the_host_would() {
    let mut engine = load(&Toy::NEW, "Q4_0", &options());
    let mut session = engine.session();
    let options = GenerateOptions {
        max_tokens: Some(40),
        sampler: Some(&mut GreedyTokens),
        ..GenerateOptions::default()
    };
    let before = engine.rows_run();
    let answer = generate(&mut engine, &mut session, &[1, 2], options, &|_| false, &mut |_, _| {
        ControlFlow::Continue(())
    });
    assert_eq!(answer.unwrap().drafts.steps, 40);
    assert_eq!(engine.rows_run() - before, 41);
}

/// Requests that look at logits beside those that do not, with few pages.
#[test]
fn neighbours_that_need_logits_change_nothing() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let prompts: Vec<Vec<u32>> =
            (0..6).map(|_| ids(random.next(), 1 + random.below(80) as usize, 8)).collect();
        let kinds: Vec<u64> = (0..6).map(|_| random.below(4)).collect();
        let max_tokens: Vec<u32> = (0..6).map(|_| random.below(60) as u32).collect();
        let answers = |toy: Toy, picks: bool| {
            let options = EngineOptions { context_len: Some(150), kv_pages: Some(8), ..options() };
            let limits = ScheduleLimits { max_running: 5, max_queued: 10 };
            let mut scheduler = Scheduler::new(load(&toy, "Q4_0", &options), limits);
            for ((prompt, &kind), &max_tokens) in prompts.iter().zip(&kinds).zip(&max_tokens) {
                let sampler: Box<dyn Sample> = match kind {
                    0 => Box::new(Seeded(seed)),
                    1 => Box::new(Greedy),
                    _ if picks => Box::new(GreedyTokens),
                    _ => Box::new(Greedy),
                };
                let request = Request {
                    prompt: prompt.clone(),
                    max_tokens: Some(max_tokens),
                    salt: vec![],
                    sampler,
                    drafter: (kind == 3).then(|| Box::new(NgramDrafter::new()) as Box<dyn Drafter>),
                    is_stop: Arc::new(|token| token == VOCAB - 1),
                };
                scheduler.submit(request).unwrap();
            }
            let mut done = BTreeMap::new();
            let mut see = |event: Event<'_>| {
                match event {
                    Event::Token { .. } => {}
                    Event::Done { id, completion } => {
                        done.insert(id, (completion.token_ids, completion.stop));
                    }
                    Event::Failed { id, error } => panic!("{id:?}: {error}"),
                }
                ControlFlow::Continue(())
            };
            while scheduler.step(&mut see).unwrap() {}
            done
        };
        assert_eq!(answers(Toy::NEW, true), answers(HOST, false), "seed {seed}");
    }
}
