//! Many requests at a time: each answer is what it is alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use unisonic_engine::draft::NgramDrafter;
use unisonic_engine::schedule::{Event, Request, RequestId, ScheduleLimits, Scheduler, SubmitError};
use unisonic_engine::{Completion, Engine, EngineError, EngineOptions, Greedy, Sample, Stop};

use super::common::{
    Answer, Penalised, Random, Seeded, VOCAB, all_options, alone, answer_in, digest, ids, load, options,
    quick, say,
};
use super::toy::Toy;

/// What a request asks for; together with the model it says what the answer is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    prompt: Vec<u32>,
    max_tokens: u32,
    /// 0 greedy, 1 penalised, 2 all options, others: the seed of draws.
    sampler: u64,
    end_token: Option<u32>,
    salt: Vec<u8>,
}

impl Asked {
    fn random(random: &mut Random) -> Self {
        let prompt = random_prompt(random);
        let max_tokens = random.below(60) as u32;
        let (sampler, end) = (random.below(5), random.below(12) as u32);
        Self {
            prompt,
            max_tokens,
            sampler,
            end_token: (end < 2).then_some(end),
            salt: vec![random.below(3) as u8 / 2],
        }
    }

    fn sampler(&self) -> Box<dyn Sample> {
        match self.sampler {
            0 => Box::new(Greedy),
            1 => Box::new(Penalised),
            2 => Box::new(all_options(2)),
            seed => Box::new(Seeded(seed)),
        }
    }

    fn request(&self, guesses: bool) -> Request {
        let end_token = self.end_token;
        Request {
            prompt: self.prompt.clone(),
            max_tokens: Some(self.max_tokens),
            salt: self.salt.clone(),
            sampler: self.sampler(),
            drafter: if guesses { Some(Box::new(NgramDrafter::new())) } else { None },
            is_stop: Arc::new(move |token| Some(token) == end_token),
        }
    }

    /// The answer without neighbours, reuse and guesses.
    fn alone(&self, engine: &mut Engine) -> Answer {
        let (mut session, mut sampler) = (engine.session(), self.sampler());
        let options = unisonic_engine::GenerateOptions {
            max_tokens: Some(self.max_tokens),
            sampler: Some(&mut *sampler),
            ..Default::default()
        };
        answer_in(engine, &mut session, &self.prompt, self.end_token, options).unwrap().0
    }
}

/// Often the beginning of another prompt, now and then all of it.
fn random_prompt(random: &mut Random) -> Vec<u32> {
    let whole = ids(random.below(3), 150, 8);
    let kept = random.below(151) as usize;
    let (seed, len) = (random.next(), 1 + random.below(40) as usize);
    let tail = if random.chance(20) && kept > 0 { Vec::new() } else { ids(seed, len, VOCAB) };
    [&whole[..kept], &tail].concat()
}

/// What came of the requests of a scheduler.
#[derive(Default)]
struct Log {
    answers: BTreeMap<RequestId, Answer>,
    done: BTreeMap<RequestId, Completion>,
    /// Requests to end at their n-th token.
    ends: BTreeMap<RequestId, usize>,
}

impl Log {
    fn see(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Token { id, token, logits } => {
                assert!(!self.done.contains_key(&id), "{id:?} goes on after its end");
                let new = Answer { ids: Vec::new(), stop: "", digests: Vec::new() };
                let answer = self.answers.entry(id).or_insert(new);
                answer.ids.push(token);
                answer.digests.push(digest(logits));
                if self.ends.get(&id).is_some_and(|&end| answer.ids.len() >= end) {
                    return ControlFlow::Break(());
                }
            }
            Event::Done { id, completion } => assert!(self.done.insert(id, completion).is_none()),
            Event::Failed { id, error } => panic!("{id:?}: {error}"),
        }
        ControlFlow::Continue(())
    }

    #[track_caller]
    fn check(&self, id: RequestId, right: &Answer, what: &str) {
        let done = &self.done[&id];
        let nothing = Answer { ids: Vec::new(), stop: "", digests: Vec::new() };
        let seen = self.answers.get(&id).unwrap_or(&nothing);
        assert_eq!(done.token_ids, seen.ids, "{what}: {id:?}");
        if done.stop == Stop::Cancelled {
            let len = seen.ids.len();
            assert!(len <= right.ids.len(), "{what}: {id:?}");
            assert_eq!(
                (&seen.ids[..], &seen.digests[..]),
                (&right.ids[..len], &right.digests[..len]),
                "{what}: {id:?}"
            );
        } else {
            assert_eq!((&seen.ids, &seen.digests), (&right.ids, &right.digests), "{what}: {id:?}");
            assert_eq!(done.stop.as_str(), right.stop, "{what}: {id:?}");
        }
    }
}

/// One random schedule of arrivals, cancels and evictions; returns how many requests it answered and how
/// often a prompt was reused.
fn random_schedule(seed: u64, reference: &mut Engine) -> usize {
    let mut random = Random::new(seed);
    let what = format!("schedule {seed}");
    let options = EngineOptions {
        context_len: Some(256),
        kv_pages: Some(4 + random.below(30) as u32),
        chunk_rows: [1, 3, 7, 16, 64, 65, 200][random.below(7) as usize],
        max_outputs: [1, 2, 8, 64][random.below(4) as usize],
        ..options()
    };
    let toy = Toy { copies: random.chance(50), ..Toy::NEW };
    let limits = ScheduleLimits { max_running: 1 + random.below(12) as usize, max_queued: 20 };
    let mut scheduler = Scheduler::new(load(&toy, "Q4_0", &options), limits);
    let (mut log, mut asked) = (Log::default(), BTreeMap::new());
    let count = 1 + random.below(16) as usize;
    let guesses = random.chance(60);
    let mut submitted = 0;
    let mut more = true;
    let mut steps = 0;
    while more || submitted < count {
        while submitted < count && random.chance(40) {
            let ask = Asked::random(&mut random);
            match scheduler.submit(ask.request(guesses)) {
                Ok(id) => {
                    if random.chance(15) {
                        log.ends.insert(id, 1 + random.below(20) as usize);
                    }
                    asked.insert(id, ask);
                }
                Err(error) => assert!(matches!(error, SubmitError::QueueFull { .. }), "{what}: {error}"),
            }
            submitted += 1;
        }
        if random.chance(8)
            && let Some(&id) = asked.keys().nth(random.below(asked.len() as u64) as usize)
        {
            let cancelled = scheduler.cancel(id);
            assert_eq!(cancelled.is_none(), log.done.contains_key(&id), "{what}");
            log.done.extend(cancelled.map(|completion| (id, completion)));
        }
        more = scheduler.step(&mut |event| log.see(event)).unwrap();
        steps += 1;
        assert!(steps < 20_000, "{what}: no end");
    }
    let page_use = scheduler.engine().page_use();
    assert_eq!((page_use.held, scheduler.running(), scheduler.queued()), (0, 0, 0), "{what}");
    assert_eq!(page_use.free + page_use.cached, page_use.total, "{what}");
    assert_eq!(log.done.len(), asked.len(), "{what}");
    for (id, ask) in &asked {
        log.check(*id, &ask.alone(reference), &what);
    }
    asked.len()
}

#[test]
fn random_schedules_give_every_answer_as_alone() {
    let count = if quick() { 60 } else { 1000 };
    if quick() {
        say(&format!("skipped: {} of 1000 random schedules (run in tier ci)", 1000 - count));
    }
    let mut reference = load(&Toy::NEW, "Q4_0", &EngineOptions { context_len: Some(256), ..options() });
    let answered: usize = (0..count).map(|seed| random_schedule(seed, &mut reference)).sum();
    assert!(answered > 5 * count as usize, "{answered} answers");
}

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
