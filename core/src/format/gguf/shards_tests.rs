//! Sets of shards: any shard opens the set; a set that is not one model is refused (llama.cpp #9613).

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{GgufFile, GgufWriter};
use crate::format::{GgmlType, Value};
use crate::plan::WeightSource;

fn model(name: &str, tensors: u8) -> GgufWriter {
    let start = GgufWriter::new("llama").kv("general.name", Value::String(name.into()));
    (0..tensors).fold(start, |w, i| w.tensor(&format!("t{i}"), GgmlType::I8, &[40], vec![i; 40]))
}

/// Three shards of two tensors each, `m-0000N-of-00003.gguf`.
fn three_shards() -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = model("a", 6).write_shards(folder.path(), "m", 2).unwrap();
    assert_eq!(paths.len(), 3);
    (folder, paths)
}

#[track_caller]
fn assert_refused(path: &Path, parts: &[&str]) {
    let message = GgufFile::open(path).unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn any_shard_opens_the_set() {
    let (_folder, paths) = three_shards();
    for path in &paths {
        let file = GgufFile::open(path).unwrap();
        assert_eq!(file.paths().collect::<Vec<_>>(), paths);
        assert_eq!(file.len_bytes(), paths.iter().map(|p| p.metadata().unwrap().len()).sum::<u64>());
        assert_eq!(file.metadata().string("general.name").unwrap(), Some("a"));
        let names: Vec<_> = file.tensors().iter().map(|t| (t.name.as_str(), t.shard)).collect();
        assert_eq!(names, [("t0", 0), ("t1", 0), ("t2", 1), ("t3", 1), ("t4", 2), ("t5", 2)]);
        for i in 0..6u8 {
            assert_eq!(file.read(&format!("t{i}")).unwrap(), [i; 40]);
        }
    }
}

#[test]
fn a_set_of_gguf_py_opens() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/gguf/split-00002-of-00003.gguf");
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.tensors().iter().map(|t| t.shard).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
    for i in 0..5u8 {
        assert_eq!(file.read(&format!("t{i}")).unwrap(), f32::from(i).to_le_bytes().repeat(4));
    }
    assert_eq!(file.read("t5").unwrap_err().to_string(), "tensor `t5`: the file has no tensor of this name");
}

#[test]
fn a_missing_shard_is_named() {
    let (_folder, paths) = three_shards();
    fs::remove_file(&paths[2]).unwrap();
    for path in &paths[..2] {
        assert_refused(path, &["one of 3 shards", "m-00003-of-00003.gguf is missing", "one folder"]);
    }
    fs::remove_file(&paths[0]).unwrap();
    assert_refused(&paths[1], &["m-00001-of-00003.gguf", "m-00003-of-00003.gguf are missing"]);
}

#[test]
fn many_missing_shards_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let paths = model("a", 9).write_shards(folder.path(), "m", 1).unwrap();
    paths[..8].iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_refused(&paths[8], &["one of 9 shards", "m-00003-of-00009.gguf and 5 more are missing"]);
}

#[test]
fn a_shard_of_another_name_is_told_how_it_should_end() {
    let (folder, paths) = three_shards();
    let renamed = folder.path().join("model.gguf");
    fs::rename(&paths[1], &renamed).unwrap();
    assert_refused(&renamed, &["shard 2 of 3", "does not end in `-00002-of-00003.gguf`"]);
}

#[test]
fn exchanged_shards_are_refused() {
    let (_folder, paths) = three_shards();
    fs::copy(&paths[1], &paths[2]).unwrap();
    assert_refused(
        &paths[0],
        &["m-00003-of-00003.gguf", "by its name this is shard 3", "metadata says shard 2"],
    );
}

#[test]
fn shards_of_different_models_are_refused() {
    let other = tempfile::tempdir().unwrap();
    // Another number of tensors.
    let (_folder, paths) = three_shards();
    let foreign = model("b", 5).write_shards(other.path(), "m", 2).unwrap();
    fs::copy(&foreign[2], &paths[2]).unwrap();
    assert_refused(
        &paths[0],
        &["m-00003-of-00003.gguf", "`split.tensors.count` holds 5, but 6 in", "m-00001-of-00003"],
    );
    // Another number of shards.
    let (_folder, paths) = three_shards();
    let foreign = model("b", 6).write_shards(other.path(), "m", 3).unwrap();
    fs::copy(&foreign[1], &paths[1]).unwrap();
    assert_refused(&paths[0], &["m-00002-of-00003.gguf", "`split.count` holds 2, but 3 in"]);
    // A shard that repeats the name or architecture of its model.
    let (_folder, paths) = three_shards();
    let split = |w: GgufWriter| {
        w.kv("split.no", Value::U16(1))
            .kv("split.count", Value::U16(3))
            .kv("split.tensors.count", Value::I32(6))
    };
    split(model("b", 2)).write(&paths[1]).unwrap();
    assert_refused(&paths[0], &["`general.name` holds `b`, but `a` in", "different models"]);
    split(GgufWriter::new("qwen2")).write(&paths[1]).unwrap();
    assert_refused(&paths[0], &["`general.architecture` holds `qwen2`, but `llama` in"]);
    // The same tensor twice; too few tensors.
    split(model("a", 2)).write(&paths[1]).unwrap();
    assert_refused(&paths[0], &["m-00002-of-00003.gguf: tensor `t0` is also in", "m-00001-of-00003.gguf"]);
    split(model("a", 0)).write(&paths[1]).unwrap();
    assert_refused(&paths[0], &["hold 4 tensors together", "`split.tensors.count` says 6"]);
    // Not a shard at all.
    model("a", 2).write(&paths[1]).unwrap();
    assert_refused(&paths[0], &["m-00002-of-00003.gguf", "no metadata key `split.count`"]);
}

#[test]
fn a_damaged_shard_is_named() {
    let (_folder, paths) = three_shards();
    let bytes = fs::read(&paths[2]).unwrap();
    fs::write(&paths[2], &bytes[..bytes.len() - 32]).unwrap();
    assert_refused(&paths[0], &["m-00003-of-00003.gguf: tensor `t5` needs 40 bytes", "cut short"]);
}

#[test]
fn glued_shards_are_refused() {
    let (folder, paths) = three_shards();
    let glued = folder.path().join("glued.gguf");
    let parts: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    fs::write(&glued, parts.concat()).unwrap();
    let start = format!("another GGUF file starts at byte {}", parts[0].len());
    assert_refused(&glued, &["glued.gguf", &start, "llama-gguf-split --merge"]);
    // A writer that does not pad the last tensor.
    fs::write(&glued, [&parts[0][..parts[0].len() - 24], &parts[1]].concat()).unwrap();
    assert_refused(&glued, &["another GGUF file starts at byte"]);
    // A first shard without tensors.
    fs::write(&glued, [model("a", 0).to_bytes().unwrap(), parts[1].clone()].concat()).unwrap();
    assert_refused(&glued, &["another GGUF file starts at byte"]);
}

#[test]
fn trailing_bytes_of_other_kinds_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut bytes = model("a", 2).to_bytes().unwrap();
    bytes.extend([0; 100]);
    fs::write(&path, bytes).unwrap();
    assert_eq!(GgufFile::open(&path).unwrap().tensors().len(), 2);
}

#[test]
fn impossible_shard_numbers_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m-00001-of-4294967295.gguf");
    let with = |no, count| {
        let writer = model("a", 1).kv("split.no", Value::U32(no)).kv("split.count", Value::U32(count));
        writer.write(&path).unwrap();
    };
    with(0, u32::MAX);
    assert_refused(&path, &["shard number 0", "of 4294967295"]);
    with(3, 3);
    assert_refused(&path, &["shard number 3", "of 3"]);
    with(u32::MAX, u32::MAX);
    assert_refused(&path, &["shard number 4294967295"]);
    model("a", 1).kv("split.count", Value::String("3".into())).write(&path).unwrap();
    assert_refused(&path, &["`split.count` should be an integer", "a string"]);
}

#[test]
fn a_set_of_one_is_a_single_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths = model("a", 3).write_shards(folder.path(), "m", 3).unwrap();
    assert_eq!(GgufFile::open(&paths[0]).unwrap().paths().len(), 1);
    assert!(model("a", 3).write_shards(folder.path(), "m", 0).is_err());
}
