//! The product of everything that must not matter: {plain, n-gram, draft model} x {cold, prefix hit, edited prefix, disk
//! hit} x {alone, 2, 7, 64 neighbours} x {chunk sizes} x {greedy, seeded, all options, penalties, grammar}. Each pair of
//! choices occurs in some case of a cover.
//!
//! Here on the native CPU with a tiny model; the program's tests have it on a real model and on other devices.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use unisonic_engine::draft::{Drafter, ModelDrafter, NgramDrafter};
use unisonic_engine::kv::KvDir;
use unisonic_engine::schedule::{Event, Request, ScheduleLimits, Scheduler};
use unisonic_engine::{Engine, EngineOptions, Greedy, Sample};

use super::common::{
    Answer, Seeded, VOCAB, all_options, answer_in, digest, greedy_with_penalties, ids, options,
};

/// Numbers of choices: drafter, state of the cache, neighbours, chunk size, sampler.
const CHOICES: [usize; 5] = [DRAFTERS.len(), CACHES.len(), NEIGHBOURS.len(), CHUNKS.len(), SAMPLERS.len()];
const DRAFTERS: [&str; 3] = ["plain", "n-gram", "draft model"];
const CACHES: [&str; 4] = ["cold", "prefix hit", "edited prefix", "disk hit"];
pub const NEIGHBOURS: [usize; 4] = [0, 2, 7, 64];
const CHUNKS: [u32; 4] = [1, 7, 64, 100];
const SAMPLERS: [&str; 5] = ["greedy", "seeded", "all options", "penalties", "grammar"];
const TOKENS: u32 = 12;
/// State of the cache: the prompt was run by an engine that is gone, which has left its pages on disk.
const DISK_HIT: usize = 3;

/// A choice of each.
pub type Case = [usize; 5];

/// What the case chooses, in words.
pub fn name([drafter, cache, neighbours, chunk, sampler]: Case) -> String {
    let (drafter, cache, sampler) = (DRAFTERS[drafter], CACHES[cache], SAMPLERS[sampler]);
    let (neighbours, chunk) = (NEIGHBOURS[neighbours], CHUNKS[chunk]);
    format!("{drafter}, {cache}, {neighbours} neighbours, chunks of {chunk}, {sampler}")
}

/// Cases such that each pair of choices of two kinds occurs: each case takes the choices that bring most new
/// pairs.
pub fn pairwise() -> Vec<Case> {
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

/// Makes the sampler of a grammar over the model's tokens, for an answer after so many tokens.
pub type ByGrammar<'a> = &'a dyn Fn(usize) -> Box<dyn Sample>;

/// For an answer after so many tokens.
fn sampler(choice: usize, by_grammar: ByGrammar<'_>, start: usize) -> Box<dyn Sample> {
    match choice {
        0 => Box::new(Greedy),
        1 => Box::new(Seeded(3)),
        2 => Box::new(all_options(3)),
        3 => Box::new(greedy_with_penalties()),
        _ => by_grammar(start),
    }
}

/// A model on a device, the prompt, and the right answers.
pub struct Product<'a> {
    load: &'a dyn Fn(&EngineOptions<'_>) -> Engine,
    by_grammar: ByGrammar<'a>,
    draft: Arc<Mutex<Engine>>,
    prompt: Vec<u32>,
    right: [Answer; SAMPLERS.len()],
}

impl<'a> Product<'a> {
    /// Of engines that load a model, and another that guesses for it; its tokens are right that `reference` gives in a plain
    /// run. The prompt has 70 tokens at least.
    pub fn new(
        reference: &dyn Fn(&EngineOptions<'_>) -> Engine,
        load: &'a dyn Fn(&EngineOptions<'_>) -> Engine,
        draft: Engine,
        prompt: Vec<u32>,
        by_grammar: ByGrammar<'a>,
    ) -> Self {
        let right = std::array::from_fn(|choice| {
            let mut engine = reference(&EngineOptions { context_len: Some(256), ..options() });
            let (mut session, mut sampler) = (engine.session(), sampler(choice, by_grammar, prompt.len()));
            let options = unisonic_engine::GenerateOptions {
                max_tokens: Some(TOKENS),
                sampler: Some(&mut *sampler),
                ..Default::default()
            };
            answer_in(&mut engine, &mut session, &prompt, None, options).unwrap().0
        });
        Self { load, by_grammar, draft: Arc::new(Mutex::new(draft)), prompt, right }
    }

    /// The right answers.
    pub fn right(&self) -> &[Answer] {
        &self.right
    }

    fn drafter(&self, choice: usize) -> Option<Box<dyn Drafter>> {
        match choice {
            0 => None,
            1 => Some(Box::new(NgramDrafter::new())),
            _ => {
                let vocab_len = self.draft.lock().unwrap().plan().vocab_len;
                Some(Box::new(ModelDrafter::new(Arc::clone(&self.draft), vocab_len, b"").unwrap()))
            }
        }
    }

    /// Runs a case, and holds its answer against the right one.
    pub fn check(&self, case: Case) {
        let what = name(case);
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
        let start =
            || Scheduler::new((self.load)(&options), ScheduleLimits { max_running: 80, max_queued: 80 });
        let mut scheduler = start();
        let request = |prompt: Vec<u32>, drafter, choice, max_tokens| Request {
            sampler: sampler(choice, self.by_grammar, prompt.len()),
            prompt,
            max_tokens: Some(max_tokens),
            salt: Vec::new(),
            drafter: self.drafter(drafter),
            is_stop: Arc::new(|_| false),
        };
        let prompt = self.prompt.clone();
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
                .submit(request(prompt, (neighbour % 2) & drafter, neighbour % SAMPLERS.len(), TOKENS))
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
                Event::Failed { error, .. } => panic!("{what}: {error}"),
            }
            ControlFlow::Continue(())
        };
        while scheduler.step(&mut see).unwrap() {}
        assert_eq!(count, NEIGHBOURS[neighbours] + 1, "{what}");
        let right = &self.right[choice];
        assert_eq!(found[&id], (right.ids.clone(), right.digests.clone()), "{what}");
    }
}
