//! Pages on disk: they survive the engine, and nothing in them changes a bit.

use std::path::Path;
use std::sync::Arc;

use unisonic_cpu::scalar::{Arithmetic, ScalarDevice};
use unisonic_engine::kv::KvDir;
use unisonic_engine::schedule::{Event, Request, ScheduleLimits, Scheduler};
use unisonic_engine::{Engine, EngineOptions, Greedy};

use crate::common::{VOCAB, alone, cpu, ids, load, options, reusing};
use crate::toy::Toy;

fn kept_in(folder: &Path) -> EngineOptions<'static> {
    EngineOptions {
        weights_digest: vec![1],
        kv_dir: Some(KvDir { path: folder.to_owned(), max_bytes: 1 << 30 }),
        kv_pages: Some(64),
        context_len: Some(512),
        ..options()
    }
}

fn toy(options: &EngineOptions<'_>) -> Engine {
    load(&Toy::NEW, "Q4_0", options)
}

#[test]
fn a_prompt_is_known_after_a_restart_and_on_another_device() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = ids(4, 200, VOCAB);
    let right = alone(&mut cpu(&options()), &prompt, 70);
    let kept = kept_in(folder.path());
    assert_eq!(reusing(&mut cpu(&kept), &prompt, 70), (right.clone(), 0));
    assert_eq!(reusing(&mut cpu(&kept), &prompt, 70), (right.clone(), 192));
    let mut scalar = load(&ScalarDevice::new(Arithmetic::U1), "Q4_0", &kept);
    assert_eq!(reusing(&mut scalar, &prompt, 70), (right.clone(), 192));
    // The answer is known too, as part of the next prompt.
    let longer = [&prompt[..], &right.ids].concat();
    let after = alone(&mut cpu(&options()), &longer, 9);
    assert_eq!(reusing(&mut cpu(&kept), &longer, 9), (after, 256));
    // An edit keeps what comes before it.
    let mut edited = longer;
    edited[100] ^= 1;
    let after = alone(&mut cpu(&options()), &edited, 9);
    assert_eq!(reusing(&mut cpu(&kept), &edited, 9), (after, 64));
}

#[test]
fn what_is_in_memory_and_on_disk_is_put_together() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept_in(folder.path());
    let prompt = ids(6, 400, 6);
    let right = alone(&mut toy(&options()), &prompt, 20);
    reusing(&mut toy(&kept), &prompt, 20);
    let mut engine = toy(&kept);
    // Of the second page only a part is in memory, the disk has all of it.
    let (_, held) = reusing(&mut engine, &prompt[..100], 3);
    assert_eq!(held, 64);
    assert_eq!(reusing(&mut engine, &prompt, 20), (right.clone(), 384));
    assert_eq!(reusing(&mut engine, &prompt, 20), (right, 399), "now from memory");
}

#[test]
fn damaged_files_are_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept_in(folder.path());
    let prompt = ids(8, 300, 6);
    let right = alone(&mut toy(&options()), &prompt, 5);
    reusing(&mut toy(&kept), &prompt, 5);
    let files = || {
        let entries = std::fs::read_dir(folder.path().join("kv-pages")).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let pages = files();
    assert_eq!(pages.len(), 4);
    for page in &pages {
        let mut bytes = std::fs::read(page).unwrap();
        let middle = bytes.len() - 100;
        bytes[middle] ^= 1;
        std::fs::write(page, bytes).unwrap();
        let (answer, held) = reusing(&mut toy(&kept), &prompt, 5);
        assert_eq!(answer, right);
        assert!(held < 256 && held.is_multiple_of(64), "{held}");
        assert_eq!((files(), reusing(&mut toy(&kept), &prompt, 5).1), (pages.clone(), 256));
    }
}

#[test]
fn other_weights_profiles_and_salts_have_other_pages() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept_in(folder.path());
    let prompt = ids(8, 100, 6);
    reusing(&mut toy(&kept), &prompt, 5);
    let others = EngineOptions { weights_digest: vec![2], ..kept.clone() };
    assert_eq!(reusing(&mut toy(&others), &prompt, 5).1, 0);
    assert_eq!(reusing(&mut cpu(&kept), &prompt, 5).1, 0, "the profile of the toy is another");
    let mut engine = toy(&kept);
    assert_eq!(engine.session_for(b"salt", &prompt).unwrap().tokens().len(), 0);
    assert_eq!(engine.session_for(b"", &prompt).unwrap().tokens().len(), 64);
    assert_eq!(engine.session().tokens().len(), 0);
}

#[test]
fn a_device_that_keeps_its_pages_to_itself_goes_without() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = ids(8, 200, 6);
    let right = alone(&mut toy(&options()), &prompt, 5);
    let silent = || load(&Toy { copies: false, ..Toy::NEW }, "Q4_0", &kept_in(folder.path()));
    assert_eq!(reusing(&mut silent(), &prompt, 5), (right.clone(), 0));
    assert_eq!(reusing(&mut toy(&kept_in(folder.path())), &prompt, 5), (right.clone(), 0));
    assert_eq!(reusing(&mut silent(), &prompt, 5), (right, 0), "it does not take them either");
}

#[test]
fn a_folder_without_a_digest_of_the_weights_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = crate::common::file("Q4_0");
    let options = EngineOptions { weights_digest: Vec::new(), ..kept_in(folder.path()) };
    let loaded = Engine::load(file.metadata(), file.tensors(), &file, &Toy::NEW, &options, &|_| {});
    assert!(loaded.err().unwrap().to_string().contains("digest of the weights"));
}

/// Many requests with common beginnings, few pages, and a folder: over and over, each time with another
/// engine.
#[test]
fn scheduled_answers_are_those_alone_whatever_is_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let kept = EngineOptions { kv_pages: Some(20), context_len: Some(512), ..kept_in(folder.path()) };
    let common = ids(3, 150, 6);
    let prompts: Vec<Vec<u32>> =
        (0..12).map(|n| [&common[..n * 13 % 150], &ids(n as u64, 1 + n * 29 % 90, 6)].concat()).collect();
    let right: Vec<_> = prompts.iter().map(|prompt| alone(&mut toy(&options()), prompt, 30).ids).collect();
    let mut rows = Vec::new();
    for _ in 0..3 {
        let limits = ScheduleLimits { max_running: 5, max_queued: 20 };
        let mut scheduler = Scheduler::new(toy(&kept), limits);
        let requests: Vec<_> = prompts
            .iter()
            .map(|prompt| {
                let request = Request {
                    prompt: prompt.clone(),
                    max_tokens: Some(30),
                    salt: Vec::new(),
                    sampler: Box::new(Greedy),
                    drafter: None,
                    is_stop: Arc::new(|_| false),
                };
                scheduler.submit(request).unwrap()
            })
            .collect();
        let mut answers = vec![Vec::new(); prompts.len()];
        while scheduler
            .step(&mut |event| {
                if let Event::Done { id, completion } = event {
                    let at = requests.iter().position(|&request| request == id).unwrap();
                    answers[at] = completion.token_ids;
                }
                std::ops::ControlFlow::Continue(())
            })
            .unwrap()
        {}
        assert_eq!(answers, right);
        rows.push(scheduler.engine().rows_run());
    }
    assert!(rows[1] < rows[0], "{rows:?}");
}
