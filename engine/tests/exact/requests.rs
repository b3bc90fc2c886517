//! Requests of a scheduler, and what comes of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use unisonic_engine::draft::NgramDrafter;
use unisonic_engine::schedule::{Event, Request, RequestId};
use unisonic_engine::{Completion, Engine, Greedy, Sample, Stop};

use super::common::{
    Answer, Penalised, Random, Seeded, VOCAB, all_options, answer_in, digest, drawn_by_grammar, ids,
};

/// What a request asks for; together with the model it says what the answer is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    pub prompt: Vec<u32>,
    pub max_tokens: u32,
    /// 0 greedy, 1 penalised, 2 all options, 3 a grammar, others: the seed of draws.
    pub sampler: u64,
    pub end_token: Option<u32>,
    pub salt: Vec<u8>,
}

impl Asked {
    pub fn random(random: &mut Random) -> Self {
        let prompt = random_prompt(random);
        let max_tokens = random.below(60) as u32;
        let (sampler, end) = (random.below(6), random.below(12) as u32);
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
            3 => Box::new(drawn_by_grammar(self.prompt.len())),
            seed => Box::new(Seeded(seed)),
        }
    }

    pub fn request(&self, guesses: bool) -> Request {
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
    pub fn alone(&self, engine: &mut Engine) -> Answer {
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
pub struct Log {
    answers: BTreeMap<RequestId, Answer>,
    pub done: BTreeMap<RequestId, Completion>,
    /// Requests to end at their n-th token.
    pub ends: BTreeMap<RequestId, usize>,
}

impl Log {
    pub fn see(&mut self, event: Event<'_>) -> ControlFlow<()> {
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
    pub fn check(&self, id: RequestId, right: &Answer, what: &str) {
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
