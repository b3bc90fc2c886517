//! Many requests at a time: each answer is what it is alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use unisonic_engine::schedule::{Event, RequestId, ScheduleLimits, Scheduler, SubmitError};
use unisonic_engine::{Engine, EngineError, EngineOptions};

use super::common::{alone, ids, load, options};
use super::requests::{Asked, Log};
use super::toy::Toy;

fn scheduler(engine: &EngineOptions<'_>, limits: ScheduleLimits) -> Scheduler {
    Scheduler::new(load(&Toy::NEW, "Q4_0", engine), limits)
}

fn asked(prompt: Vec<u32>, max_tokens: u32) -> Asked {
    Asked { prompt, max_tokens, sampler: 0, end_token: None, salt: Vec::new() }
}

#[test]
fn a_full_queue_refuses_and_says_so() {
    let limits = ScheduleLimits { max_running: 1, max_queued: 2 };
    let mut scheduler = scheduler(&options(), limits);
    let ask = asked(vec![1, 2, 3], 5);
    for _ in 0..2 {
        scheduler.submit(ask.request(false)).unwrap();
    }
    let refused = scheduler.submit(ask.request(false)).unwrap_err();
    assert!(matches!(refused, SubmitError::QueueFull { max_queued: 2 }), "{refused}");
    scheduler.step(&mut |_| ControlFlow::Continue(())).unwrap();
    scheduler.submit(ask.request(false)).unwrap();
}

#[test]
fn what_can_never_run_is_refused_at_once() {
    let mut scheduler = scheduler(&options(), ScheduleLimits::default());
    let empty = scheduler.submit(asked(Vec::new(), 1).request(false));
    assert!(matches!(empty, Err(SubmitError::Request(EngineError::EmptyPrompt))));
    let long = scheduler.submit(asked(vec![1; 512], 1).request(false));
    assert!(matches!(long, Err(SubmitError::Request(EngineError::ContextOverflow { needed: 513, .. }))));
    scheduler.submit(asked(vec![1; 511], 1).request(false)).unwrap();
}

/// A long prompt does not hold up those who are decoding, nor the other way round.
#[test]
fn each_request_goes_on_in_each_step() {
    let options = EngineOptions { kv_pages: Some(64), chunk_rows: 16, ..options() };
    let mut scheduler = scheduler(&options, ScheduleLimits::default());
    let mut tokens = BTreeMap::new();
    let talkers: Vec<RequestId> =
        (0..3).map(|seed| scheduler.submit(asked(ids(seed, 4, 8), 100).request(true)).unwrap()).collect();
    scheduler.step(&mut |_| ControlFlow::Continue(())).unwrap();
    let long = scheduler.submit(asked(ids(9, 120, 8), 10).request(true)).unwrap();
    for _ in 0..30 {
        let mut step = BTreeMap::new();
        scheduler
            .step(&mut |event| {
                if let Event::Token { id, .. } = event {
                    *step.entry(id).or_insert(0) += 1;
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        if step.contains_key(&long) {
            break;
        }
        for id in &talkers {
            assert!(step.contains_key(id), "{id:?} waits for a prompt");
        }
        step.iter().for_each(|(id, count)| *tokens.entry(*id).or_insert(0) += count);
    }
    // 120 tokens, 13 a step beside three rows of others.
    assert!(tokens.values().all(|&count| count < 40), "{tokens:?}");
}

/// Also in the middle of a prompt; the slot is free at once, and the pages are of use to the next.
#[test]
fn a_cancelled_prompt_leaves_no_trace() {
    let options = EngineOptions { chunk_rows: 8, kv_pages: Some(16), ..options() };
    let mut engine = load(&Toy::NEW, "Q4_0", &options);
    let (long, other) = (ids(1, 200, 8), ids(2, 100, 8));
    let right = [alone(&mut engine, &long, 20), alone(&mut engine, &other, 20)];
    let mut scheduler = Scheduler::new(engine, ScheduleLimits::default());
    let first = scheduler.submit(asked(long.clone(), 20).request(true)).unwrap();
    let second = scheduler.submit(asked(other, 20).request(true)).unwrap();
    let mut log = Log::default();
    for _ in 0..20 {
        scheduler.step(&mut |event| log.see(event)).unwrap();
    }
    assert!(scheduler.cancel(first).is_some());
    assert!(scheduler.cancel(first).is_none());
    assert_eq!(scheduler.running(), 1);
    let rows = scheduler.engine().rows_run();
    let third = scheduler.submit(asked(long, 20).request(true)).unwrap();
    while scheduler.step(&mut |event| log.see(event)).unwrap() {}
    log.check(second, &right[1], "the neighbour");
    log.check(third, &right[0], "the next");
    let run = scheduler.engine().rows_run() - rows;
    assert!(run < 200 + 100, "the first half of the prompt was run again: {run} rows");
}

/// A row that leaves the range of the arithmetic ends its own request, and no other.
#[test]
fn a_failing_request_fails_alone() {
    let mut engine = load(
        &Toy { out_of_range: Some(200), ..Toy::NEW },
        "Q4_0",
        &EngineOptions { sequences: 4, ..options() },
    );
    let (good, bad) = (ids(1, 30, 8), [&ids(2, 20, 8)[..], &[200], &ids(3, 9, 8)].concat());
    let right = alone(&mut engine, &good, 20);
    let mut scheduler = Scheduler::new(engine, ScheduleLimits::default());
    let good = scheduler.submit(asked(good, 20).request(true)).unwrap();
    let bad = scheduler.submit(asked(bad, 20).request(true)).unwrap();
    let (mut log, mut failed) = (Log::default(), Vec::new());
    let mut see = |event: Event<'_>| match event {
        Event::Failed { id, error } => {
            failed.push((id, error.to_string()));
            ControlFlow::Continue(())
        }
        event => log.see(event),
    };
    while scheduler.step(&mut see).unwrap() {}
    log.check(good, &right, "the good one");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].0 == bad && failed[0].1.contains("position 20"), "{failed:?}");
}

#[test]
fn schedulers_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Scheduler>();
    is_send::<Engine>();
}
