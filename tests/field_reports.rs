//! Faults that people reported of other runtimes when files were loaded and texts tokenised, through the whole program:
//! each ends with a message that names the reason and exit code 1, or with the right ids, soon and in little memory.
//!
//! The parts are tested next to their code; these tests hold that nothing on the way loses the answer:
//!
//! | report | the parts' tests |
//! |---|---|
//! | 4.01 candle #3533 | core `gguf/hostile_tests.rs`: `huge_*`, `every_length_and_count_of_a_file_may_be_huge`, `counts_above_*`; `gguf_memory.rs` |
//! | 4.03 llama.cpp PR #25596 | core `gguf/hostile_tests.rs`: `a_zero_dimension_is_refused`, `an_alignment_of_a_wrong_type_or_value_is_refused` |
//! | 4.05 llama.cpp PR #19856 | core `gguf/hostile_tests.rs`: `a_product_of_dimensions_that_wraps_is_refused`, `tensors_beyond_the_end_are_refused` |
//! | 4.07 gguf-tools #25 | core `gguf/hostile_tests.rs`: `a_huge_dimension_count_is_refused`, `an_unknown_tensor_type_is_refused_by_name_and_number` |
//! | 4.09 llama.cpp #6774 | core `gguf/hostile_tests.rs`: `a_file_cut_anywhere_is_refused`, `a_file_that_becomes_shorter_*` |
//! | 4.10 llama.cpp #9613 | core `gguf/shards_tests.rs` |
//! | 4.12 mistral.rs #2117 | core `gguf/hostile_tests.rs`: `types_that_other_programs_know_by_number_only_are_read_by_name`; `cli.rs`: `an_unsupported_type_is_refused_by_name` |
//! | 4.13 vLLM PR #16976 | engine `chat/tests.rs`: `bos_comes_once`; `tokenizer/tests.rs`: `defaults_of_bos` |
//! | 4.15 llama.cpp #27783 | engine `tokenizer/tests.rs`: `long_runs_take_time_in_proportion`; `tokenizer_goldens.rs`: `long_runs_*` |
//! | 4.19 CVE-2024-34359 | engine `chat/tests.rs`: `hostile_templates_are_errors`, `the_deepest_syntax_fits_a_small_stack` |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;
use unisonic_core::format::{GgmlType, GgufFile, GgufHeader, GgufWriter, Strings, Value};
use unisonic_core::plan::WeightSource;

/// What the program may take for a file that it refuses, as address space. A wrong size costs gigabytes.
const MEMORY_KIB: u32 = 1 << 20;
/// What it may take in time, on a busy machine; on an idle one it is milliseconds.
const TIME: Duration = Duration::from_secs(10);

/// Runs the program with bounded memory.
fn unisonic(args: &[&str]) -> Output {
    let script = format!("ulimit -v {MEMORY_KIB} 2>/dev/null; exec \"$@\"");
    let program = env!("CARGO_BIN_EXE_unisonic");
    let start = Instant::now();
    let output = Command::new("sh").args(["-c", &script, "sh", program]).args(args).output().unwrap();
    let taken = start.elapsed();
    assert!(taken < TIME, "{taken:?}");
    output
}

/// Asserts that the program refuses, in words that hold all of `parts`.
#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let output = unisonic(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: ") && !stderr.contains("panicked"), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    for part in parts {
        assert!(stderr.contains(part), "{part:?} is not in: {stderr}");
    }
}

#[track_caller]
fn json(args: &[&str]) -> Json {
    let output = unisonic(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Files of one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A model file that the program must refuse to run, to describe and to tokenise with.
    #[track_caller]
    fn refused(&self, bytes: &[u8], parts: &[&str]) {
        let path = self.write("hostile.gguf", bytes);
        refused(&["run", "--max-tokens", "1", &path, "Hi"], parts);
        refused(&["info", &path], parts);
        refused(&["tokenize", &path, "Hi"], parts);
    }
}

/// The committed tiny model: SentencePiece BPE of bytes, BOS 1, EOS 2, no template.
fn tiny() -> PathBuf {
    common::quant("Q4_0")
}

/// The tiny model with some metadata replaced or added.
fn tiny_with(entries: &[(&str, Value)]) -> Vec<u8> {
    common::with_metadata(&tiny(), entries)
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

/// The tiny model with byte-level BPE: the same ids for ASCII.
fn tiny_bpe() -> Vec<u8> {
    let symbols = (0..=255u8).scan(0xff, |shifted, byte| {
        Some(match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(byte).to_string(),
            _ => {
                *shifted += 1;
                char::from_u32(*shifted).unwrap().to_string()
            }
        })
    });
    let tokens: Strings = ["<unk>", "<s>", "</s>"].into_iter().map(String::from).chain(symbols).collect();
    let types = [2, 3, 3].into_iter().chain(std::iter::repeat_n(1, 256)).collect();
    tiny_with(&[
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("llama-bpe")),
        ("tokenizer.ggml.tokens", Value::Strings(tokens)),
        ("tokenizer.ggml.token_type", Value::I32s(types)),
        ("tokenizer.ggml.merges", Value::Strings(Strings::default())),
    ])
}

/// The fixed part of a header.
fn header(tensors: u64, entries: u64) -> Vec<u8> {
    [b"GGUF".as_slice(), &3u32.to_le_bytes(), &tensors.to_le_bytes(), &entries.to_le_bytes()].concat()
}

fn string(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes(), s.as_bytes()].concat()
}

/// A row of the tensor table, with as many dimensions as it says or fewer.
fn tensor(name: &str, dim_count: u32, dims: &[u64], ty: u32) -> Vec<u8> {
    let mut bytes = [string(name), dim_count.to_le_bytes().to_vec()].concat();
    dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
    bytes.extend(ty.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes
}

/// A file of one tensor, with zeros for its data.
fn one_tensor(row: &[u8], data_len: usize) -> Vec<u8> {
    [header(1, 0), row.to_vec(), vec![0; 32 + data_len]].concat()
}

/// 4.01
#[test]
fn a_tiny_file_that_declares_billions_of_items_is_refused_at_once() {
    let folder = Folder::new();
    for count in [1u64 << 32, 1 << 63, u64::MAX] {
        folder.refused(&header(count, 0), &["the tensor table"]);
        folder.refused(&header(0, count), &["the metadata"]);
        let key_len = [header(0, 1), count.to_le_bytes().to_vec(), vec![0; 8]].concat();
        folder.refused(&key_len, &["metadata entry 0"]);
        let array = [string("k"), 9u32.to_le_bytes().to_vec(), 0u32.to_le_bytes().to_vec()].concat();
        folder.refused(&[header(0, 1), array, count.to_le_bytes().to_vec()].concat(), &["`k`"]);
    }
}

/// 4.03
#[test]
fn a_zero_dimension_or_a_wrong_typed_alignment_is_refused() {
    let folder = Folder::new();
    folder.refused(&one_tensor(&tensor("w", 2, &[32, 0], 0), 0), &["`w`", "dimension 1", "is 0"]);
    for value in [Value::I32(32), text("32"), Value::U32(0)] {
        // The writer refuses to write such a key under its own name.
        let written = GgufWriter::new("llama").kv("general.alignmenX", value).to_bytes().unwrap();
        let at = written.windows(17).position(|window| window == b"general.alignmenX").unwrap();
        let mut bytes = written;
        bytes[at + 16] = b't';
        folder.refused(&bytes, &["general.alignment", "power of two"]);
    }
}

/// 4.05
#[test]
fn sizes_that_wrap_are_refused_and_the_checks_cost_nothing() {
    let folder = Folder::new();
    for dims in [[256, (1 << 42) + 1, 1 << 20], [1 << 32, 1 << 32, 1], [1 << 62, 4, 1]] {
        folder.refused(&one_tensor(&tensor("w", 3, &dims, 0), 64), &["`w`", "2^63"]);
    }
    folder.refused(&one_tensor(&tensor("w", 2, &[256, (1 << 42) + 1], 0), 64), &["`w`", "cut short"]);

    let vocabulary = Value::Strings((0..262_144).map(|i| format!("token {i}")).collect());
    let start = GgufWriter::new("llama").kv("tokenizer.ggml.tokens", vocabulary);
    let large = (0..4096).fold(start, |w, i| w.tensor(&format!("blk.{i}.w"), GgmlType::I8, &[1], [0]));
    let bytes = large.to_bytes().unwrap();
    let started = Instant::now();
    let header = GgufHeader::read(bytes.as_slice(), bytes.len() as u64).unwrap();
    assert_eq!(header.tensors.len(), 4096);
    let taken = started.elapsed();
    assert!(taken < Duration::from_secs(2), "{taken:?} for a large vocabulary and table");
}

/// 4.07
#[test]
fn dimension_counts_beyond_four_and_unknown_types_are_refused() {
    let folder = Folder::new();
    for dim_count in [0, 5, 9, 255, u32::MAX] {
        let row = tensor("w", dim_count, &[1; 9], 0);
        folder.refused(&one_tensor(&row, 64), &["`w`", &dim_count.to_string(), "1 to 4"]);
    }
    folder.refused(&one_tensor(&tensor("w", 1, &[32], 255), 64), &["`w`", "255"]);
}

/// 4.09
#[test]
fn a_download_that_was_cut_short_is_refused_at_load() {
    let folder = Folder::new();
    let whole = std::fs::read(tiny()).unwrap();
    let header = GgufHeader::read(whole.as_slice(), whole.len() as u64).unwrap();
    let table_middle = header.len_bytes as usize - 200;
    for len in [0, 3, 20, 300, table_middle, header.len_bytes as usize, whole.len() / 2] {
        folder.refused(&whole[..len], &["hostile.gguf"]);
    }
    let data_end = header.data_end_bytes() as usize;
    folder.refused(&whole[..data_end - 1], &["cut short", "blk.2.ffn_up.weight"]);
    // And the whole file runs.
    let path = folder.write("whole.gguf", &whole[..data_end]);
    assert_eq!(json(&["run", "--json", "--max-tokens", "1", &path, "Hi"])["prompt_tokens"], 3);
}

/// 4.10
#[test]
fn shards_that_are_no_set_are_refused_with_the_file_that_is_needed() {
    let folder = Folder::new();
    let file = GgufFile::open(&tiny()).unwrap();
    let shards = common::writer(&file, file.metadata()).write_shards(folder.0.path(), "m", 10).unwrap();
    let path = |i: usize| -> &str { shards[i].to_str().unwrap() };
    assert_eq!(shards.len(), 3);

    let whole = json(&["run", "--json", "--max-tokens", "4", tiny().to_str().unwrap(), "Hi"]);
    for shard in 0..3 {
        let found = json(&["run", "--json", "--max-tokens", "4", path(shard), "Hi"]);
        assert_eq!(found["token_ids"], whole["token_ids"], "any shard opens the set");
    }

    let parts: Vec<_> = shards.iter().map(|path| std::fs::read(path).unwrap()).collect();
    folder.refused(&parts.concat(), &["another GGUF file starts", "hostile.gguf"]);
    let needed = "m-00003-of-00003.gguf";
    let foreign =
        common::writer(&file, file.metadata()).write_shards(&mkdir(folder.0.path()), "m", 15).unwrap();
    std::fs::copy(&foreign[1], path(2)).unwrap();
    refused(&["run", path(0), "Hi"], &[needed, "split.count"]);
    std::fs::remove_file(path(2)).unwrap();
    refused(&["run", path(0), "Hi"], &[needed]);
    refused(&["run", path(1), "Hi"], &[needed]);
}

fn mkdir(parent: &Path) -> PathBuf {
    let path = parent.join("other");
    std::fs::create_dir(&path).unwrap();
    path
}

/// 4.12
#[test]
fn a_type_that_cannot_run_is_named_before_data_is_read() {
    let folder = Folder::new();
    let file = GgufFile::open(&tiny()).unwrap();
    let start = GgufWriter::from_metadata(file.metadata());
    let hostile = file.tensors().iter().fold(start, |w, t| match t.name.as_str() {
        // No block of this type is 0xff all over, so reading it would be another error.
        "blk.1.ffn_up.weight" => {
            let len = t.dims.iter().product::<u64>() / 256 * GgmlType::IQ3_XXS.block_len_bytes();
            w.tensor(&t.name, GgmlType::IQ3_XXS, &t.dims, vec![0xff; len as usize])
        }
        _ => w.tensor(&t.name, t.ty, &t.dims, file.read(&t.name).unwrap()),
    });
    let path = folder.write("iq3_xxs.gguf", &hostile.to_bytes().unwrap());
    let parts = ["blk.1.ffn_up.weight", "IQ3_XXS", "Q4_K"];
    refused(&["run", &path, "Hi"], &parts);

    // What other programs know by number only is known by name and not refused for its type; an id that was never
    // given out is refused with its number.
    for (id, name) in [(39, "MXFP4"), (20, "IQ4_NL"), (23, "IQ4_XS")] {
        assert_eq!(GgmlType::from_id(id).map(GgmlType::name), Some(name));
        let path = folder.write("known.gguf", &one_tensor(&tensor("w", 1, &[256], id), 256));
        let info = unisonic(&["info", "--tensors", &path]);
        assert!(String::from_utf8_lossy(&info.stdout).contains(name), "{name}");
    }
    folder.refused(&one_tensor(&tensor("w", 1, &[256], 200), 256), &["`w`", "200"]);
}

/// 4.13
#[test]
fn a_template_gives_one_bos_and_a_typed_one_is_kept() {
    let folder = Folder::new();
    let ids = |path: &str, args: &[&str]| {
        json(&[&["tokenize", "--json"], args, &[path, "<s>Hi"]].concat())["ids"].clone()
    };
    let chat_len = |path: &str| {
        let run = json(&["run", "--json", "--max-tokens", "1", "--chat", path, "Hi"]);
        run["prompt_tokens"].clone()
    };
    for (name, make) in [("spm", None), ("bpe", Some(tiny_bpe as fn() -> Vec<u8>))] {
        for template in ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"] {
            let bytes = match make {
                Some(make) => with_template(&make(), template),
                None => tiny_with(&[("tokenizer.chat_template", text(template))]),
            };
            let path = folder.write(&format!("{name}.gguf"), &bytes);
            assert_eq!(chat_len(&path), 3, "{name}: BOS and two bytes");
            assert_eq!(
                ids(&path, &[]),
                serde_json::json!([1, 1, 75, 108]),
                "{name}: a raw prompt is as it is"
            );
            assert_eq!(ids(&path, &["--no-bos"]), serde_json::json!([1, 75, 108]), "{name}");
        }
    }
    let without = [
        ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
        ("tokenizer.chat_template", text("{{ messages[0].content }}")),
    ];
    let path = folder.write("without.gguf", &tiny_with(&without));
    assert_eq!(chat_len(&path), 2);
    assert_eq!(ids(&path, &[]), serde_json::json!([1, 75, 108]));
}

fn with_template(model: &[u8], template: &str) -> Vec<u8> {
    let folder = Folder::new();
    let file = GgufFile::open(Path::new(&folder.write("m.gguf", model))).unwrap();
    common::writer(&file, file.metadata()).kv("tokenizer.chat_template", text(template)).to_bytes().unwrap()
}

/// 4.15
#[test]
fn long_runs_of_one_character_have_the_right_ids_in_linear_time() {
    let folder = Folder::new();
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let models = [
        folder.write("spm.gguf", &tiny_with(&[("tokenizer.chat_template", text(template))])),
        folder.write("bpe.gguf", &with_template(&tiny_bpe(), template)),
    ];
    for (path, space) in models.iter().zip(["▁", " "]) {
        for unit in ["Z", ".", " ", "\n", "中"] {
            for count in [10_000, 43_000, 131_072] {
                let run = unit.repeat(count);
                let prompt = folder.write("prompt", run.as_bytes());
                // A token for each byte (SentencePiece spells a space in three), BOS, and the first of the answer: far
                // more than the tiny model holds.
                let tokens = format!("{} tokens", run.replace(' ', space).len() + 2);
                refused(&["run", "--prompt-file", &prompt, path], &[&tokens, "512"]);
                refused(&["run", "--chat", "--prompt-file", &prompt, path], &[&tokens, "512"]);
            }
        }
        let found = json(&["tokenize", "--json", "--no-bos", path, &"Z".repeat(43_000)]);
        assert!(found["ids"].as_array().unwrap().iter().all(|id| *id == 3 + u64::from(b'Z')));
    }
}

/// 4.19
#[test]
fn a_template_in_a_model_file_cannot_reach_the_host_or_exhaust_it() {
    let folder = Folder::new();
    for template in [
        "{{ ''.__class__.__mro__[1].__subclasses__()[104].__init__.__globals__['sys'].modules['os'].popen('id').read() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% include '/etc/passwd' %}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}{% endfor %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10**10 }}",
        "{% set ns = namespace(s='x' * 1000) %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    ] {
        let path = folder.write("hostile.gguf", &tiny_with(&[("tokenizer.chat_template", text(template))]));
        refused(&["run", "--chat", &path, "Hi"], &["chat template"]);
        // The model is not refused for it.
        assert_eq!(json(&["run", "--json", "--max-tokens", "1", &path, "Hi"])["prompt_tokens"], 3);
    }
}

#[test]
fn a_wrong_vocabulary_size_is_said_and_a_wrong_vocabulary_refused() {
    let folder = Folder::new();
    let run = |file: &str| unisonic(&["run", "--max-tokens", "2", "--json", "--ids", "1,72", file]);
    let stderr = |output: &Output| String::from_utf8(output.stderr.clone()).unwrap();
    let right = run(tiny().to_str().unwrap());
    assert!(!stderr(&right).contains("vocabulary"), "{}", stderr(&right));
    let lying = run(&folder.write("size.gguf", &tiny_with(&[("llama.vocab_size", Value::U32(1 << 20))])));
    assert!(stderr(&lying).contains("llama.vocab_size"), "{}", stderr(&lying));
    let ids = |output: &Output| serde_json::from_slice::<Json>(&output.stdout).unwrap()["token_ids"].clone();
    assert_eq!(ids(&lying), ids(&right));

    // One token more than the embedding table has rows.
    let file = GgufFile::open(&tiny()).unwrap();
    let tokens = file.metadata().strings("tokenizer.ggml.tokens").unwrap().unwrap();
    let count = tokens.len() + 1;
    let tokens: Strings = tokens.iter().chain(["more"]).collect();
    let bytes = tiny_with(&[
        ("tokenizer.ggml.tokens", Value::Strings(tokens)),
        ("tokenizer.ggml.scores", Value::F32s(vec![0.0; count])),
        ("tokenizer.ggml.token_type", Value::I32s(vec![1; count])),
    ]);
    let path = folder.write("tokens.gguf", &bytes);
    refused(&["run", "--ids", "1", &path], &["tensor `token_embd.weight`", &format!("says {count} x")]);
}
