//! The product of everything that must not matter, on the native CPU: {plain, n-gram, draft model} x {cold,
//! prefix hit, edited prefix, disk hit} x {alone, 2, 7, 64 neighbours} x {chunk sizes} x {greedy, seeded, all
//! options, penalties, grammar}. Each pair of choices occurs in some case.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use unisonic_cpu::native::CpuDevice;
use unisonic_engine::draft::{Drafter, ModelDrafter, NgramDrafter, StepCosts};
use unisonic_engine::kv::KvDir;
use unisonic_engine::schedule::{Event, Request, ScheduleLimits, Scheduler};
use unisonic_engine::{Engine, EngineOptions, Greedy, Sample};

use super::common::{
    Answer, Seeded, VOCAB, all_options, answer_in, cpu, digest, drawn_by_grammar, greedy_with_penalties, ids,
    load, options, quick, say,
};

/// Numbers of choices: drafter, state of the cache, neighbours, chunk size, sampler.
const CHOICES: [usize; 5] = [3, 4, 4, 4, SAMPLERS];
const SAMPLERS: usize = 5;
const NEIGHBOURS: [usize; 4] = [0, 2, 7, 64];
const CHUNKS: [u32; 4] = [1, 7, 64, 100];
const TOKENS: u32 = 12;
/// State of the cache: the prompt was run by an engine that is gone, which has left its pages on disk.
const DISK_HIT: usize = 3;

type Case = [usize; 5];

/// Cases such that each pair of choices of two kinds occurs: each case takes the choices that bring most new
/// pairs.
fn pairwise() -> Vec<Case> {
    let mut open: BTreeSet<(usize, usize, usize, usize)> = BTreeSet::new();
    for (a, &choices_a) in CHOICES.iter().enumerate() {
        for (b, &choices_b) in CHOICES.iter().enumerate().skip(a + 1) {
            open.extend((0..choices_a).flat_map(|x| (0..choices_b).map(move |y| (a, x, b, y))));
        }
    }
    let all = (0..CHOICES.iter().product()).map(|mut number: usize| {
        CHOICES.map(|choices| {
            let choice = number % choices;
            number /= choices;
            choice
        })
    });
    let all: Vec<Case> = all.collect();
    let pairs = |case: &Case| -> Vec<(usize, usize, usize, usize)> {
        (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b))).map(|(a, b)| (a, case[a], b, case[b])).collect()
    };
    let mut cases = Vec::new();
    while !open.is_empty() {
        let gain = |case: &&Case| pairs(case).iter().filter(|pair| open.contains(pair)).count();
        let best = *all.iter().max_by_key(gain).unwrap();
        open.retain(|pair| !pairs(&best).contains(pair));
        cases.push(best);
    }
    cases
}

fn prompt() -> Vec<u32> {
    ids(51, 90, 30)
}

/// For an answer after so many tokens.
fn sampler(choice: usize, start: usize) -> Box<dyn Sample> {
    match choice {
        0 => Box::new(Greedy),
        1 => Box::new(Seeded(3)),
        2 => Box::new(all_options(3)),
        3 => Box::new(greedy_with_penalties()),
        _ => Box::new(drawn_by_grammar(start)),
    }
}

/// The answer of a plain run.
fn right(choice: usize) -> Answer {
    let mut engine = cpu(&options());
    let (mut session, mut sampler) = (engine.session(), sampler(choice, prompt().len()));
    let options = unisonic_engine::GenerateOptions {
        max_tokens: Some(TOKENS),
        sampler: Some(&mut *sampler),
        ..Default::default()
    };
    answer_in(&mut engine, &mut session, &prompt(), None, options).unwrap().0
}

struct Product {
    draft: Arc<Mutex<Engine>>,
    right: [Answer; SAMPLERS],
}

impl Product {
    fn drafter(&self, choice: usize) -> Option<Box<dyn Drafter>> {
        match choice {
            0 => None,
            1 => Some(Box::new(NgramDrafter::new())),
            _ => Some(Box::new(ModelDrafter::new(Arc::clone(&self.draft), VOCAB, b"").unwrap())),
        }
    }

    fn check(&self, case: Case) {
        let [drafter, cache, neighbours, chunk, choice] = case;
        let folder = tempfile::tempdir().unwrap();
        let kv_dir = KvDir { path: folder.path().to_owned(), max_bytes: 1 << 30 };
        let options = EngineOptions {
            chunk_rows: CHUNKS[chunk],
            kv_pages: Some(160),
            context_len: Some(256),
            weights_digest: vec![1],
            kv_dir: (cache == DISK_HIT).then_some(kv_dir),
            ..options()
        };
        let start = || Scheduler::new(cpu(&options), ScheduleLimits { max_running: 80, max_queued: 80 });
        let mut scheduler = start();
        let request = |prompt: Vec<u32>, drafter, choice, max_tokens| Request {
            sampler: sampler(choice, prompt.len()),
            prompt,
            max_tokens: Some(max_tokens),
            salt: Vec::new(),
            drafter: self.drafter(drafter),
            is_stop: Arc::new(|_| false),
        };
        let prompt = prompt();
        let earlier = match cache {
            0 => None,
            1 | DISK_HIT => Some(prompt.clone()),
            _ => Some([&prompt[..70], &ids(52, 40, VOCAB)].concat()),
        };
        if let Some(earlier) = earlier {
            scheduler.submit(request(earlier, 0, 0, 4)).unwrap();
            while scheduler.step(&mut |_| ControlFlow::Continue(())).unwrap() {}
        }
        if cache == DISK_HIT {
            drop(scheduler);
            scheduler = start();
        }
        for neighbour in 0..NEIGHBOURS[neighbours] {
            let prompt = ids(60 + neighbour as u64, 3 + neighbour % 9, VOCAB);
            scheduler
                .submit(request(prompt, (neighbour % 2) & drafter, neighbour % SAMPLERS, TOKENS))
                .unwrap();
        }
        let id = scheduler.submit(request(prompt, drafter, choice, TOKENS)).unwrap();
        let (mut found, mut count) = (BTreeMap::new(), 0);
        let mut see = |event: Event<'_>| {
            match event {
                Event::Token { id, token, logits } => {
                    let (ids, digests): &mut (Vec<u32>, Vec<u64>) = found.entry(id).or_default();
                    ids.push(token);
                    digests.push(digest(logits));
                }
                Event::Done { .. } => count += 1,
                Event::Failed { error, .. } => panic!("{case:?}: {error}"),
            }
            ControlFlow::Continue(())
        };
        while scheduler.step(&mut see).unwrap() {}
        assert_eq!(count, NEIGHBOURS[neighbours] + 1, "{case:?}");
        let right = &self.right[choice];
        assert_eq!(found[&id], (right.ids.clone(), right.digests.clone()), "{case:?}");
    }
}

#[test]
fn the_cases_hold_all_pairs() {
    let cases = pairwise();
    assert!((16..30).contains(&cases.len()), "{}", cases.len());
}

#[test]
fn every_pair_of_choices_gives_the_same_answer() {
    let mut draft = load(
        &CpuDevice::new().with_threads(1),
        "Q8_0",
        &EngineOptions { sequences: 70, context_len: Some(256), ..options() },
    );
    draft.set_costs(StepCosts::known([1e-6; 7]));
    let product = Product { draft: Arc::new(Mutex::new(draft)), right: std::array::from_fn(right) };
    let cases = pairwise();
    let run = if quick() { cases.len().min(8) } else { cases.len() };
    if run < cases.len() {
        say(&format!(
            "skipped: {} of {} cases of the product (run in tier ci)",
            cases.len() - run,
            cases.len()
        ));
    }
    cases[..run].iter().for_each(|&case| product.check(case));
}

/// Samplers differ, or the product would show nothing.
#[test]
fn the_samplers_choose_differently() {
    let answers: BTreeSet<Vec<u32>> = (0..SAMPLERS).map(|choice| right(choice).ids).collect();
    assert_eq!(answers.len(), SAMPLERS);
}
