//! Pages under random sequences: what a session reads is what it wrote, and no page is lost.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::table::locked;
use super::tree::SLOTS;
use super::{CacheKey, KvCache, PageTable};

/// What a slot holds: a digest of the tokens up to its position.
type Slots = [u64; SLOTS];

/// Sessions over a few pages, and a memory that notices who writes where.
struct Machine {
    cache: Arc<Mutex<KvCache>>,
    memory: Vec<Slots>,
    copies: bool,
    sessions: Vec<(PageTable, Vec<u32>)>,
}

fn digest(tokens: &[u32]) -> u64 {
    tokens.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &token| {
        (hash ^ u64::from(token) ^ 0x55).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    })
}

impl Machine {
    fn new(pages: u32, copies: bool) -> Self {
        let (cache, memory) = (Arc::new(Mutex::new(KvCache::new(pages))), vec![[0; SLOTS]; pages as usize]);
        Self { cache, memory, copies, sessions: Vec::new() }
    }

    fn begin(&mut self, salt: u8, tokens: &[u32]) {
        let key = CacheKey { salt: vec![salt], ..CacheKey::default() };
        let mut table = PageTable::new(Arc::clone(&self.cache), Some(key));
        let (mut len, common) = table.attach(tokens);
        if let Some(slots) = common
            && let Some(copy) = table.begin_copy(&slots)
        {
            if self.copies {
                self.memory[copy.to as usize] = self.memory[copy.from as usize];
                len += slots.len;
            }
            table.end_copy(copy, self.copies);
        }
        self.sessions.push((table, tokens[..len].to_vec()));
    }

    /// Appends as many of the tokens as there are pages for.
    fn extend(&mut self, session: usize, tokens: &[u32]) {
        let (table, held) = &mut self.sessions[session];
        let mut tokens = tokens.to_vec();
        if let Some(slots) = table.shared_slots(held.len()) {
            let start = held.len() - slots.len;
            let copy = table.begin_copy(&slots);
            table.shrink(start / SLOTS);
            let made = copy.is_some() && self.copies;
            if let Some(copy) = copy {
                self.memory[copy.to as usize] = self.memory[copy.from as usize];
                table.end_copy(copy, made);
            }
            if !made {
                tokens.splice(0..0, held.split_off(start));
            }
        }
        if table.grow((held.len() + tokens.len()).div_ceil(SLOTS)).is_err() {
            return;
        }
        table.publish(held);
        for token in tokens {
            held.push(token);
            let position = held.len() - 1;
            self.memory[table.pages()[position / SLOTS] as usize][position % SLOTS] = digest(held);
        }
    }

    fn truncate(&mut self, session: usize, len: usize) {
        let (table, held) = &mut self.sessions[session];
        held.truncate(len);
        table.shrink(held.len().div_ceil(SLOTS));
    }

    fn end(&mut self, session: usize) {
        let (mut table, held) = self.sessions.swap_remove(session);
        table.close(&held);
    }

    fn check(&self) {
        let tables: Vec<&[u32]> = self.sessions.iter().map(|(table, _)| table.pages()).collect();
        locked(&self.cache).check(&tables);
        for (table, held) in &self.sessions {
            for position in 0..held.len() {
                let slot = self.memory[table.pages()[position / SLOTS] as usize][position % SLOTS];
                assert_eq!(slot, digest(&held[..=position]), "position {position}");
            }
        }
    }
}

/// Few unlike sequences, so that they often have a beginning in common: `len` tokens that leave the first sequence at
/// `edit`.
fn sequence(len: usize, edit: usize, variant: u32) -> Vec<u32> {
    (0..len as u32).map(|at| at % 5 + if at as usize >= edit { 10 * variant } else { 0 }).collect()
}

#[derive(Clone, Debug)]
enum Op {
    Begin { salt: u8, len: usize, edit: usize, variant: u32 },
    Extend { session: usize, len: usize, variant: u32 },
    Truncate { session: usize, len: usize },
    End { session: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let (len, edit) =
        (0usize..300, prop::sample::select(vec![0usize, 1, 30, 63, 64, 65, 100, 128, 200, 300]));
    prop_oneof![
        (0u8..2, len.clone(), edit, 0u32..3).prop_map(|(salt, len, edit, variant)| Op::Begin {
            salt,
            len,
            edit,
            variant
        }),
        (any::<usize>(), 0usize..130, 0u32..2).prop_map(|(session, len, variant)| Op::Extend {
            session,
            len,
            variant
        }),
        (any::<usize>(), len).prop_map(|(session, len)| Op::Truncate { session, len }),
        any::<usize>().prop_map(|session| Op::End { session }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn sessions_read_what_they_wrote_and_no_page_is_lost(
        pages in 1u32..24,
        copies: bool,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut machine = Machine::new(pages, copies);
        for op in ops {
            let count = machine.sessions.len();
            match op {
                Op::Begin { salt, len, edit, variant } => {
                    let tokens = sequence(len, edit, variant);
                    machine.begin(salt, &tokens);
                    let held = machine.sessions.last().map_or(0, |(_, held)| held.len());
                    machine.extend(count, &tokens[held..]);
                }
                Op::Extend { session, len, variant } if count > 0 => {
                    machine.extend(session % count, &sequence(len, 0, variant));
                }
                Op::Truncate { session, len } if count > 0 => machine.truncate(session % count, len),
                Op::End { session } if count > 0 => machine.end(session % count),
                _ => {}
            }
            machine.check();
        }
        while !machine.sessions.is_empty() {
            machine.end(0);
            machine.check();
        }
        let page_use = locked(&machine.cache).page_use();
        prop_assert_eq!((page_use.held, page_use.free + page_use.cached), (0, pages as usize));
        // Everything can be had again.
        prop_assert!(locked(&machine.cache).take(pages as usize).is_ok());
    }
}

fn tokens_held(machine: &Machine) -> usize {
    machine.sessions.last().map_or(0, |(_, held)| held.len())
}

/// Runs a sequence from beginning to end; how many tokens it began with.
fn reused(machine: &mut Machine, tokens: &[u32]) -> usize {
    machine.begin(0, tokens);
    let reused = tokens_held(machine);
    machine.extend(machine.sessions.len() - 1, &tokens[reused..]);
    machine.end(machine.sessions.len() - 1);
    machine.check();
    reused
}

/// Report 7.11 (llama.cpp #20153): only what follows the first difference is run again.
#[test]
fn an_edited_sequence_reuses_all_before_the_edit() {
    let mut machine = Machine::new(32, true);
    assert_eq!(reused(&mut machine, &sequence(300, 300, 0)), 0);
    for edit in [299, 256, 255, 130, 128, 64, 63, 1] {
        assert_eq!(reused(&mut machine, &sequence(300, edit, 1 + edit as u32)), edit);
    }
    assert_eq!(reused(&mut machine, &sequence(300, 300, 0)), 300, "the first is still there");
    machine.copies = false;
    assert_eq!(reused(&mut machine, &sequence(300, 130, 7)), 128, "whole pages where none can be copied");
    assert_eq!(reused(&mut machine, &sequence(350, 350, 0)), 300, "what is only continued needs no copy");
    assert_eq!(reused(&mut machine, &sequence(350, 350, 0)), 350);
}

#[test]
fn the_least_recently_used_pages_go_first() {
    let mut machine = Machine::new(6, true);
    let [a, b, c] = [1, 2, 3].map(|variant| sequence(128, 0, variant));
    assert_eq!([&a, &b, &c].map(|tokens| reused(&mut machine, tokens)), [0, 0, 0]);
    assert_eq!(reused(&mut machine, &a), 128);
    // Room for two pages: those of b, from the end of the sequence.
    assert_eq!(reused(&mut machine, &sequence(65, 0, 4)), 0);
    assert_eq!(reused(&mut machine, &c), 128);
    assert_eq!(reused(&mut machine, &a), 128);
    assert_eq!(reused(&mut machine, &b), 0);
}

#[test]
fn pages_in_use_are_never_evicted() {
    let mut machine = Machine::new(3, true);
    let tokens = sequence(128, 0, 1);
    machine.begin(0, &tokens);
    machine.extend(0, &tokens);
    machine.extend(0, &[9]);
    assert_eq!(locked(&machine.cache).take(1), Err(0));
    machine.truncate(0, 64);
    machine.check();
    assert_eq!(locked(&machine.cache).page_use().held, 1);
    assert_eq!(locked(&machine.cache).take(3), Err(2));
    assert!(locked(&machine.cache).take(2).is_ok());
    assert_eq!(machine.sessions[0].0.pages().len(), 1);
}

/// Reports 1.09 and 1.12: a hit is one of tokens under the same key.
#[test]
fn salts_share_nothing() {
    let mut machine = Machine::new(8, true);
    let tokens = sequence(200, 200, 0);
    machine.begin(1, &tokens);
    machine.extend(0, &tokens);
    machine.end(0);
    assert_eq!(reused(&mut machine, &tokens), 0);
    machine.begin(1, &tokens);
    assert_eq!(tokens_held(&machine), 200);
}
