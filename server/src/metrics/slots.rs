//! Requests that run, each in a slot: the least number that was free. Labels that never repeat would grow a database for ever.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Labels;

/// How far a request has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// When it came.
    pub submitted: Instant,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens whose keys and values are there, of prompt and answer.
    pub known_tokens: usize,
    /// Tokens that were generated.
    pub generated_tokens: usize,
    /// Tokens that were guessed ahead.
    pub drafted_tokens: u64,
    /// Guesses that came true.
    pub accepted_tokens: u64,
}

/// What runs.
#[derive(Debug, Default)]
pub struct Slots(Mutex<BTreeMap<usize, Progress>>);

/// The place of one that runs, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    number: usize,
}

impl Slots {
    /// Takes the first slot that is free.
    pub fn take(self: &Arc<Self>, progress: Progress) -> Slot {
        let mut taken = self.taken();
        let number = taken.keys().zip(0..).position(|(&taken, free)| taken != free).unwrap_or(taken.len());
        taken.insert(number, progress);
        Slot { slots: Arc::clone(self), number }
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<usize, Progress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a gauge of each kind, with a label for each slot.
    pub(super) fn register(&self, registry: &mut Registry) {
        let taken = self.taken().clone();
        let mut add = |name: &str, help: &str, value: &dyn Fn(&Progress) -> f64| {
            let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
            for (number, progress) in &taken {
                family.get_or_create(&vec![("slot", number.to_string())]).set(value(progress));
            }
            registry.register(name, help, family);
        };
        add("slot_prompt_tokens", "Tokens of the prompt", &|of| of.prompt_tokens as f64);
        add("slot_known_tokens", "Tokens with keys and values", &|of| of.known_tokens as f64);
        add("slot_generated_tokens", "Tokens that were generated", &|of| of.generated_tokens as f64);
        add("slot_drafted_tokens", "Tokens that were guessed ahead", &|of| of.drafted_tokens as f64);
        add("slot_accepted_tokens", "Guesses that came true", &|of| of.accepted_tokens as f64);
        add("slot_seconds", "Since the request came", &|of| of.submitted.elapsed().as_secs_f64());
    }
}

impl Slot {
    /// It has come so far.
    pub fn set(&self, progress: Progress) {
        self.slots.taken().insert(self.number, progress);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_left_is_the_next_to_be_taken() {
        let slots = Arc::new(Slots::default());
        let progress = Progress {
            submitted: Instant::now(),
            prompt_tokens: 1,
            known_tokens: 0,
            generated_tokens: 0,
            drafted_tokens: 0,
            accepted_tokens: 0,
        };
        let mut taken: Vec<Slot> = (0..3).map(|_| slots.take(progress)).collect();
        drop(taken.remove(1));
        taken.push(slots.take(progress));
        taken.push(slots.take(progress));
        assert_eq!(taken.iter().map(|slot| slot.number).collect::<Vec<_>>(), [0, 2, 1, 3]);
        taken.clear();
        assert!(slots.taken().is_empty());
    }
}
