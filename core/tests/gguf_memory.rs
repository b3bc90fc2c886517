//! How much memory a GGUF header takes, whatever it declares. Its own binary, because it counts every allocation.

use peak_alloc::PeakAlloc;
use unisonic_core::format::{GgmlType, GgufHeader, GgufWriter, Value};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The most memory that reading a header takes beyond what is in use before, and whether it is accepted.
fn peak_bytes(file: &[u8]) -> (usize, bool) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let header = GgufHeader::read(file, file.len() as u64);
    (MEMORY.peak_usage() - before, header.is_ok())
}

fn header(tensors: u64, entries: u64, rest: &[&[u8]]) -> Vec<u8> {
    let fixed = [&b"GGUF\x03\0\0\0"[..], &tensors.to_le_bytes(), &entries.to_le_bytes()].concat();
    [fixed, rest.concat()].concat()
}

fn string(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes(), s.as_bytes()].concat()
}

/// Files under 100 bytes that declare 2^32 items and more.
fn declared_items_take_no_memory() {
    let key = string("k");
    for n in [1u64 << 32, 1 << 63, u64::MAX].map(u64::to_le_bytes) {
        let count = u64::from_le_bytes(n);
        let mut files = vec![
            header(count, 0, &[&[0; 40]]),
            header(0, count, &[&[0; 40]]),
            header(0, 1, &[&n, &[0; 40]]),
            header(1, 0, &[&n, &[0; 40]]),
            header(0, 1, &[&key, &[8, 0, 0, 0], &n]),
            header(1, 0, &[&key, &[1, 0, 0, 0], &n, &[0; 12]]),
        ];
        files.extend((0..=12).map(|ty| header(0, 1, &[&key, &[9, 0, 0, 0, ty, 0, 0, 0], &n])));
        for file in files {
            assert!(file.len() < 100);
            let (peak, accepted) = peak_bytes(&file);
            assert!(!accepted && peak < 100_000, "{peak} bytes for {}", file.escape_ascii());
        }
    }
}

/// The smallest items in the file against the largest in memory.
fn small_items_take_a_small_multiple() {
    let arrays = vec![Value::U8s(vec![]); 200_000];
    let entries = (0..20_000).fold(GgufWriter::new("x"), |w, i| w.kv(&format!("{i:x}"), Value::U8(0)));
    let tensors =
        (0..20_000).fold(GgufWriter::new("x"), |w, i| w.tensor(&format!("{i:x}"), GgmlType::I8, &[1], [0]));
    let strings = vec![""; 200_000].into_iter().collect();
    for (what, writer) in [
        ("arrays", GgufWriter::new("x").kv("k", Value::Arrays(arrays))),
        ("strings", GgufWriter::new("x").kv("k", Value::Strings(strings))),
        ("entries", entries),
        ("tensors", tensors),
    ] {
        let file = writer.to_bytes().expect("a valid file");
        let (peak, accepted) = peak_bytes(&file);
        println!("{what}: {peak} bytes for {}", file.len());
        assert!(accepted && peak < 20 * file.len(), "{what}: {peak} bytes for {}", file.len());
    }
}

/// 262,144 tokens with scores and types.
fn a_vocabulary_takes_little_more_than_its_bytes() {
    const TOKENS: u32 = 1 << 18;
    let tokens = (0..TOKENS).map(|i| format!("▁token{i}")).collect();
    let file = GgufWriter::new("gemma3")
        .kv("tokenizer.ggml.tokens", Value::Strings(tokens))
        .kv("tokenizer.ggml.scores", Value::F32s((0..TOKENS).map(|i| i as f32).collect()))
        .kv("tokenizer.ggml.token_type", Value::I32s(vec![1; TOKENS as usize]))
        .to_bytes()
        .expect("a valid file");
    let start = std::time::Instant::now();
    let (peak, accepted) = peak_bytes(&file);
    println!("{} bytes of vocabulary: {peak} bytes, {:?}", file.len(), start.elapsed());
    assert!(accepted && peak < 2 * file.len(), "{peak} bytes for {}", file.len());
}

#[test]
fn headers_take_memory_for_what_they_hold_and_not_for_what_they_declare() {
    // One test, so that nothing else allocates meanwhile.
    declared_items_take_no_memory();
    small_items_take_a_small_multiple();
    a_vocabulary_takes_little_more_than_its_bytes();
}
