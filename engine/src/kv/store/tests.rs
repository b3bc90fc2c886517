//! Pages that come back, and those that must not. That files are whole, and folders within their bound, is
//! tested in `unisonic-cache`.

use std::fs;
use std::path::Path;

use super::*;

const PAGE: usize = 1000;

fn dir(path: &Path) -> KvDir {
    KvDir { path: path.join("kv"), max_bytes: 1 << 30 }
}

fn run(seed: u32) -> Vec<u32> {
    (0..SLOTS as u32).map(|slot| seed.wrapping_mul(1000) + slot).collect()
}

fn page(seed: u32) -> Vec<u8> {
    (0..PAGE).map(|at| (at as u32 * 7 + seed) as u8).collect()
}

/// Keeps a chain of pages; their digests.
fn put(store: &mut KvStore, seeds: &[u32]) -> Vec<Digest> {
    let mut chain = Vec::new();
    for &seed in seeds {
        let before = chain.last().copied().unwrap_or(root(&CacheKey::default()));
        chain.push(page_digest(before, &run(seed)));
        // The writer may be behind.
        while store.wants(chain[chain.len() - 1], &run(seed)) {
            store.put(&chain, &run(seed), &page(seed));
        }
    }
    chain
}

fn files(dir: &KvDir) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir.path.join(Kind::KvPage.name())).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_page_comes_back_for_its_tokens_alone() {
    let place = tempfile::tempdir().unwrap();
    let dir = dir(place.path());
    let mut store = KvStore::open(&dir).unwrap();
    let chain = put(&mut store, &[1, 2]);
    drop(store);
    let mut store = KvStore::open(&dir).unwrap();
    assert!(!store.wants(chain[0], &run(1)));
    assert_eq!(store.get(chain[0], &run(1)), Some(page(1)));
    assert_eq!(store.get(chain[1], &run(2)), Some(page(2)));
    assert_eq!(store.get(page_digest(root(&CacheKey::default()), &run(2)), &run(2)), None, "another chain");
    // If two runs had one digest: the tokens are compared.
    assert_eq!(store.get(chain[0], &run(2)), None);
    assert_eq!(store.get(chain[0], &run(1)), None, "what does not fit is removed");
    put(&mut store, &[1]);
    drop(store);
    assert_eq!(KvStore::open(&dir).unwrap().get(chain[0], &run(1)), Some(page(1)), "and made anew");
}

/// Each field counts, and none can be taken for another (report 1.12, vLLM #44701).
#[test]
fn keys_share_no_page() {
    let key = |weights: &[u8], profile: &str, adapter: &[u8], salt: &[u8]| CacheKey {
        weights: weights.to_vec(),
        profile: profile.into(),
        adapter: adapter.to_vec(),
        salt: salt.to_vec(),
    };
    let keys = [
        key(b"", "", b"", b""),
        key(b"x", "", b"", b""),
        key(b"", "x", b"", b""),
        key(b"", "", b"x", b""),
        key(b"", "", b"", b"x"),
        key(b"ab", "c", b"", b""),
        key(b"a", "bc", b"", b""),
    ];
    let digests: HashSet<Digest> = keys.iter().map(|key| page_digest(root(key), &run(0))).collect();
    assert_eq!(digests.len(), keys.len());
}

#[test]
fn what_is_damaged_is_made_anew() {
    let place = tempfile::tempdir().unwrap();
    let dir = dir(place.path());
    let mut store = KvStore::open(&dir).unwrap();
    let chain = put(&mut store, &[1]);
    drop(store);
    let [file] = &files(&dir)[..] else { panic!("one file") };
    let whole = fs::read(file).unwrap();
    for at in (0..whole.len()).step_by(37) {
        let mut changed = whole.clone();
        changed[at] ^= 4;
        for bytes in [changed, whole[..at].to_vec()] {
            fs::write(file, bytes).unwrap();
            let mut store = KvStore::open(&dir).unwrap();
            // The label for people is no part of the page.
            if let Some(found) = store.get(chain[0], &run(1)) {
                assert_eq!(found, page(1));
                continue;
            }
            put(&mut store, &[1]);
            drop(store);
            assert_eq!(KvStore::open(&dir).unwrap().get(chain[0], &run(1)), Some(page(1)));
        }
    }
}

#[test]
fn a_damaged_chain_is_whole_after_one_run() {
    let place = tempfile::tempdir().unwrap();
    let dir = dir(place.path());
    let seeds = [1, 2, 3, 4];
    let chain = put(&mut KvStore::open(&dir).unwrap(), &seeds);
    files(&dir).iter().for_each(|file| fs::write(file, "x").unwrap());
    let mut store = KvStore::open(&dir).unwrap();
    assert_eq!(store.get(chain[0], &run(1)), None, "where a lookup ends");
    put(&mut store, &seeds);
    drop(store);
    let mut store = KvStore::open(&dir).unwrap();
    for (&digest, seed) in chain.iter().zip(seeds) {
        assert_eq!(store.get(digest, &run(seed)), Some(page(seed)), "{seed}");
    }
}

#[test]
fn pages_go_before_those_that_they_build_on() {
    let place = tempfile::tempdir().unwrap();
    let dir = KvDir { max_bytes: 16 * (PAGE as u64 + 500), ..dir(place.path()) };
    let mut store = KvStore::open(&dir).unwrap();
    let seeds: Vec<u32> = (0..8).collect();
    let chain = put(&mut store, &seeds);
    drop(store);
    let mut store = KvStore::open(&dir).unwrap();
    put(&mut store, &(100..110).collect::<Vec<_>>());
    drop(store);
    let mut store = KvStore::open(&dir).unwrap();
    let there: Vec<bool> =
        chain.iter().zip(&seeds).map(|(&page, &seed)| store.get(page, &run(seed)).is_some()).collect();
    assert!(there.is_sorted_by(|a, b| a >= b), "{there:?}");
    assert!(there.contains(&false), "some had to go");
}
