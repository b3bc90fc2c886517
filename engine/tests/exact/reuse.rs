//! Sequences that begin with what others left in the prefix tree.

use unisonic_engine::{Engine, EngineOptions};

use super::common::{Random, VOCAB, alone, cpu, ids, load, options, reusing};
use super::toy::Toy;

/// The machines of these tests: two hashes and the real one.
fn each(options: &EngineOptions<'_>, check: impl Fn(&str, Engine)) {
    check("toy", load(&Toy::NEW, "Q4_0", options));
    check("toy that copies no pages", load(&Toy { copies: false, ..Toy::NEW }, "Q4_0", options));
    check("cpu", cpu(options));
}

#[test]
fn repeated_and_alternating_prompts_have_one_answer() {
    each(&options(), |name, mut engine| {
        let (a, b) = (ids(1, 100, VOCAB), ids(2, 130, VOCAB));
        let (right_a, right_b) = (alone(&mut engine, &a, 30), alone(&mut engine, &b, 30));
        let (mut all_held, prompts) = (Vec::new(), "aaaaabaaaababab");
        for (turn, prompt) in prompts.chars().enumerate() {
            let (prompt, right) = if prompt == 'a' { (&a, &right_a) } else { (&b, &right_b) };
            let (found, held) = reusing(&mut engine, prompt, 30);
            assert_eq!(&found, right, "{name}: turn {turn}");
            all_held.push(held);
        }
        let copies = name != "toy that copies no pages";
        let known = if copies { [99, 129] } else { [64, 128] };
        assert_eq!(all_held[..2], [0, known[0]], "{name}");
        assert_eq!(all_held[5..9], [0, known[0], known[0], known[0]], "{name}");
        assert_eq!(all_held[13..], [known[0], known[1]], "{name}");
    });
}

#[test]
fn chunks_are_invisible_to_reuse() {
    let prompt = ids(3, 140, VOCAB);
    let right = alone(&mut cpu(&options()), &prompt, 20);
    for chunk_rows in [1, 7, 8, 9, 63, 64, 65, 100] {
        let mut engine = cpu(&EngineOptions { chunk_rows, ..options() });
        assert_eq!(alone(&mut engine, &prompt, 20), right, "chunks of {chunk_rows}");
        for _ in 0..2 {
            assert_eq!(reusing(&mut engine, &prompt, 20).0, right, "reusing, chunks of {chunk_rows}");
        }
        let edited: Vec<u32> = [&prompt[..70], &[9], &prompt[71..]].concat();
        let right = alone(&mut engine, &edited, 20);
        assert_eq!(reusing(&mut engine, &edited, 20), (right, 70), "edited, chunks of {chunk_rows}");
    }
}

/// A conversation that grows, is regenerated, edited and shortened: each turn runs the tokens after the first that differs
/// from all before, and no other.
#[test]
fn a_chat_runs_only_what_follows_the_first_difference() {
    let mut engine = load(&Toy::NEW, "Q4_0", &EngineOptions { kv_pages: Some(200), ..options() });
    let mut random = Random::new(5);
    let mut chat: Vec<u32> = ids(9, 50, VOCAB);
    let mut told: Vec<Vec<u32>> = Vec::new();
    for turn in 0..30 {
        match turn % 5 {
            // An early message is edited; one is dropped; the last answer is made again.
            2 => chat[40] = VOCAB - 1 - turn,
            3 => drop(chat.drain(20..25)),
            4 => chat.truncate(chat.len() - 8),
            _ => chat.extend(ids(random.next(), 9, VOCAB)),
        }
        let common = |other: &Vec<u32>| other.iter().zip(&chat).take_while(|(a, b)| a == b).count();
        let known = told.iter().map(common).max().unwrap_or(0).min(chat.len() - 1);
        let right = alone(&mut engine, &chat, 8);
        let before = engine.rows_run();
        let (answer, held) = reusing(&mut engine, &chat, 8);
        assert_eq!((answer.clone(), held), (right, known), "turn {turn}");
        assert_eq!(engine.rows_run() - before, (chat.len() - known + 7) as u64, "turn {turn}");
        chat.extend(answer.ids);
        // The last token is chosen but not run.
        told.push(chat[..chat.len() - 1].to_vec());
    }
}

/// Few pages, many prompts: what is evicted is run again.
#[test]
fn eviction_is_invisible() {
    let options = EngineOptions { context_len: Some(256), kv_pages: Some(6), ..options() };
    each(&options, |name, mut engine| {
        let mut random = Random::new(11);
        let turns = if name == "cpu" { 12 } else { 150 };
        for turn in 0..turns {
            let (start, seed) = (random.below(180) as usize, random.below(4));
            let prompt = [&ids(0, 180, VOCAB)[..start], &ids(seed, 30, VOCAB)].concat();
            let right = alone(&mut engine, &prompt, 10);
            assert_eq!(reusing(&mut engine, &prompt, 10).0, right, "{name}: turn {turn}");
            let page_use = engine.page_use();
            assert_eq!((page_use.held, page_use.free + page_use.cached), (0, 6), "{name}: turn {turn}");
        }
    });
}

/// A session that is truncated into a page that another reads must not write on it.
#[test]
fn truncation_leaves_what_others_read() {
    each(&options(), |name, mut engine| {
        let prompt = ids(21, 200, VOCAB);
        let right = alone(&mut engine, &prompt, 10);
        let mut first = engine.session_for(b"", &prompt).unwrap();
        engine.extend(&mut first, &prompt[..199], 200, &mut |_, _| {}).unwrap();
        let other = [&prompt[..100], &ids(22, 90, VOCAB)].concat();
        let right_other = alone(&mut engine, &other, 10);
        // Its pages come into the tree with its next step.
        engine.extend(&mut first, &prompt[199..], 1, &mut |_, _| {}).unwrap();
        first.truncate(100);
        let mut rows = Vec::new();
        let rest = &other[100..];
        engine.extend(&mut first, rest, 0, &mut |index, logits| rows.push((index, logits.to_vec()))).unwrap();
        assert!(rows.iter().map(|(index, _)| *index).eq(0..90), "{name}");
        assert_eq!(first.tokens(), other, "{name}");
        let last = super::common::digest(&rows.last().unwrap().1);
        assert_eq!(last, right_other.digests[0], "{name}");
        assert_eq!(reusing(&mut engine, &prompt, 10).0, right, "{name}");
        drop(first);
        assert_eq!(reusing(&mut engine, &other, 10).0, right_other, "{name}");
        assert_eq!(reusing(&mut engine, &prompt, 10).0, right, "{name}");
    });
}
