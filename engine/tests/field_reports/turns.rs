//! Whole prompts that were run again at each turn of a chat, although only the end had changed.

use unisonic_engine::EngineOptions;
use unisonic_engine::kv::KvDir;

use super::common::{Answer, Random, VOCAB, alone, cpu, ids, options, reusing};

/// Thirty turns on the CPU: appended to, an early message edited, one dropped, an answer made again. Each turn runs the
/// tokens after the first that is new, and gives what it gives without a cache.
#[test]
fn only_what_follows_the_first_difference_is_run() {
    let mut engine = cpu(&EngineOptions { kv_pages: Some(100), context_len: Some(400), ..options() });
    let mut random = Random::new(1);
    let mut chat = ids(1, 40, VOCAB);
    let mut told: Vec<Vec<u32>> = Vec::new();
    for turn in 0..30 {
        match turn % 6 {
            2 => chat[30] = (chat[30] + 1 + turn) % VOCAB,
            4 => drop(chat.drain(20..26)),
            5 => chat.truncate(chat.len() - 5),
            _ => chat.extend(ids(random.next(), 12, VOCAB)),
        }
        let common = |other: &Vec<u32>| other.iter().zip(&chat).take_while(|(a, b)| a == b).count();
        let known = told.iter().map(common).max().unwrap_or(0).min(chat.len() - 1);
        let right = alone(&mut engine, &chat, 5);
        let before = engine.rows_run();
        let (answer, held) = reusing(&mut engine, &chat, 5);
        assert_eq!((&answer, held), (&right, known), "turn {turn}");
        assert_eq!(engine.rows_run() - before, (chat.len() - known + 4) as u64, "turn {turn}");
        chat.extend(answer.ids);
        told.push(chat[..chat.len() - 1].to_vec());
    }
}

/// The same after a restart: full pages come from the disk, and only what follows them is run.
#[test]
fn a_chat_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let kept = EngineOptions {
        weights_digest: b"weights".to_vec(),
        kv_dir: Some(KvDir { path: folder.path().to_owned(), max_bytes: 1 << 30 }),
        ..options()
    };
    let mut chat = ids(2, 200, VOCAB);
    let turn = |chat: &[u32]| -> (Answer, usize) { reusing(&mut cpu(&kept), chat, 5) };
    assert_eq!(turn(&chat), (alone(&mut cpu(&options()), &chat, 5), 0));
    // Three full pages, and all that is left of them after an edit.
    for (edit, known) in [(199, 192), (140, 128), (63, 0)] {
        chat[edit] = (chat[edit] + 1) % VOCAB;
        assert_eq!(turn(&chat), (alone(&mut cpu(&options()), &chat, 5), known), "edit at {edit}");
    }
}
