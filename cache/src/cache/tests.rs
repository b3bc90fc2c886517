//! Caches in folders that come and go.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use super::*;

fn key(number: u32) -> Key {
    Key::builder(Kind::CudaKernel).field("number", number.to_le_bytes()).finish()
}

fn with_cache(limit_bytes: u64, test: impl FnOnce(Cache)) {
    let folder = tempfile::tempdir().unwrap();
    test(Cache::new(folder.path().join("unisonic"), limit_bytes));
}

/// Says that an entry was used so long ago.
fn age(cache: &Cache, key: &Key, seconds: u64) {
    let file = fs::File::options().append(true).open(cache.path(key)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

#[test]
fn what_was_put_comes_out() {
    with_cache(1 << 20, |cache| {
        assert_eq!(cache.get(&key(0)), None);
        cache.put(&key(0), "zero", b"value");
        cache.put(&key(1), "one", b"");
        assert_eq!(cache.get(&key(0)).as_deref(), Some(&b"value"[..]));
        // As another process sees it.
        let other = Cache::new(cache.folder(), 1 << 20);
        assert_eq!(other.get(&key(1)).as_deref(), Some(&b""[..]));
        other.put(&key(0), "zero", b"another value");
        assert_eq!(cache.get(&key(0)).as_deref(), Some(&b"another value"[..]));
        cache.remove(&key(0));
        assert_eq!(cache.get(&key(0)), None);
    });
}

#[test]
fn a_damaged_entry_is_made_again() {
    with_cache(1 << 20, |cache| {
        cache.put(&key(0), "zero", b"value");
        let whole = fs::read(cache.path(&key(0))).unwrap();
        let last = whole.len() - 1;
        let changed = whole.iter().enumerate().map(|(at, byte)| if at == last { byte ^ 1 } else { *byte });
        for bytes in [vec![], whole[..50].to_vec(), changed.collect(), b"another program's file".to_vec()] {
            fs::write(cache.path(&key(0)), bytes).unwrap();
            assert_eq!(cache.get(&key(0)), None);
            assert!(!cache.path(&key(0)).exists());
            cache.put(&key(0), "zero", b"value");
            assert_eq!(cache.get(&key(0)).as_deref(), Some(&b"value"[..]));
        }
        // An entry under another name.
        fs::copy(cache.path(&key(0)), cache.path(&key(1))).unwrap();
        assert_eq!(cache.get(&key(1)), None);
    });
}

#[test]
fn what_was_used_longest_ago_goes() {
    let len_bytes = entry::write(&key(0), "", &[0; 1000]).len() as u64;
    with_cache(8 * len_bytes, |cache| {
        for number in 0..8 {
            cache.put(&key(number), "", &[number as u8; 1000]);
            age(&cache, &key(number), 100 - u64::from(number));
        }
        assert!((0..8).all(|number| cache.path(&key(number)).exists()));
        // They are used, and so the last to go.
        assert!(cache.get(&key(0)).is_some());
        cache.touch(&key(1));
        cache.touch(&key(99));
        assert!(cache.path(&key(1)).exists() && !cache.path(&key(99)).exists());
        cache.put(&key(8), "", &[8; 1000]);
        let left: Vec<u32> = (0..9).filter(|&number| cache.get(&key(number)).is_some()).collect();
        assert_eq!(left, [0, 1, 4, 5, 6, 7, 8]);
        // What is larger than all there is room for is not kept.
        cache.put(&key(9), "", &vec![9; 8 * len_bytes as usize]);
        assert_eq!(cache.get(&key(9)), None);
        assert!(cache.get(&key(8)).is_some());
    });
}

#[test]
fn what_a_killed_process_left_goes_and_what_is_nobodys_stays() {
    with_cache(1 << 20, |cache| {
        cache.put(&key(0), "zero", b"value");
        let folder = cache.folder_of(Kind::CudaKernel);
        let [old, young, other] = [".new-1", ".new-2", "notes.txt"].map(|name| folder.join(name));
        for path in [&old, &young, &other] {
            fs::write(path, "x").unwrap();
        }
        let long_ago = SystemTime::now() - Duration::from_secs(100_000);
        fs::File::options().append(true).open(&old).unwrap().set_modified(long_ago).unwrap();
        Cache::new(cache.folder(), 1 << 20).put(&key(1), "one", b"");
        assert!(!old.exists() && young.exists() && other.exists());
        assert_eq!(cache.clear().unwrap().entries, 2);
        assert!(!young.exists() && other.exists());
        assert_eq!(cache.clear().unwrap(), Cleared::default());
    });
}

#[test]
fn entries_are_listed_with_what_they_are() {
    with_cache(1 << 20, |cache| {
        assert!(cache.list().unwrap().is_empty());
        cache.put(&key(0), "zero", b"value");
        cache.put(&Key::builder(Kind::SelfTest).finish(), "a device", b"");
        age(&cache, &key(0), 50);
        let listed = cache.list().unwrap();
        let found: Vec<_> = listed.iter().map(|entry| (entry.kind, entry.label.as_str())).collect();
        assert_eq!(found, [(Kind::SelfTest, "a device"), (Kind::CudaKernel, "zero")]);
        fs::write(cache.path(&key(0)), "x").unwrap();
        assert!(cache.list().unwrap().iter().any(|entry| entry.label.starts_with("damaged")));
        cache.clear().unwrap();
        assert!(!cache.folder().exists());
    });
}

/// As many processes do: each with a cache of its own over one folder that has room for half of what they
/// make.
#[test]
fn many_at_once_see_whole_values_or_none() {
    with_cache(40_000, |cache| {
        std::thread::scope(|scope| {
            for start in 0..8 {
                let folder = cache.folder();
                scope.spawn(move || {
                    let own = Cache::new(folder, 40_000);
                    for turn in 0..200 {
                        let number = (start * 7 + turn * 3) % 16;
                        let value = vec![number as u8; 5000];
                        match own.get(&key(number)) {
                            Some(found) => assert!(found == value),
                            None => own.put(&key(number), "", &value),
                        }
                    }
                    assert!(!own.gave_up.load(Ordering::Relaxed));
                });
            }
        });
        let entries = cache.list().unwrap();
        assert!(entries.iter().all(|entry| !entry.label.starts_with("damaged")));
    });
}

#[test]
fn where_nothing_can_be_written_it_goes_on_without() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "a file is no folder").unwrap();
    let cache = Cache::new(file.join("unisonic"), 1 << 20);
    for _ in 0..2 {
        cache.put(&key(0), "zero", b"value");
        assert_eq!(cache.get(&key(0)), None);
    }
    assert!(cache.gave_up.load(Ordering::Relaxed));
    assert!(cache.list().is_err());
}

#[test]
fn a_full_disk_is_no_error_and_leaves_nothing() {
    with_cache(1 << 20, |cache| {
        cache.put(&key(0), "zero", b"value");
        let full = Cache { disk_bytes: Some(10), ..Cache::new(cache.folder(), 1 << 20) };
        full.put(&key(1), "one", &[1; 5000]);
        assert_eq!(full.get(&key(1)), None);
        assert!(full.get(&key(0)).is_some(), "what is there still serves");
        assert_eq!(folder::files(cache.folder()).unwrap().len(), 1);
    });
}
