//! What is written is what is read, and what another implementation writes is read as it meant it.

use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use super::raw::{read, sample};
use super::{GgufFile, GgufWriter};
use crate::format::{GgmlType, Metadata, Strings, Value};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/gguf").join(name)
}

/// Everything of a file, written again.
fn rewritten(file: &GgufFile) -> Vec<u8> {
    let start = GgufWriter::from_metadata(file.metadata()).version(file.version());
    let all = file
        .tensors()
        .iter()
        .fold(start, |writer, t| writer.tensor(&t.name, t.ty, &t.dims, file.read_tensor(t).unwrap()));
    all.to_bytes().unwrap()
}

#[test]
fn a_file_of_gguf_py_is_read_as_it_was_meant() {
    let file = GgufFile::open(&fixture("all-types.gguf")).unwrap();
    let strings = |all: &[&str]| Value::Strings(all.iter().collect());
    let expected = [
        ("general.architecture", Value::String("test".into())),
        ("t.u8", Value::U8(200)),
        ("t.i8", Value::I8(-100)),
        ("t.u16", Value::U16(60_000)),
        ("t.i16", Value::I16(-30_000)),
        ("t.u32", Value::U32(4_000_000_000)),
        ("t.i32", Value::I32(-2_000_000_000)),
        ("t.f32", Value::F32(0.1)),
        ("t.bool", Value::Bool(true)),
        ("t.string", Value::String("grüße 🌍\n".into())),
        ("t.u64", Value::U64(u64::MAX)),
        ("t.i64", Value::I64(i64::MIN)),
        ("t.f64", Value::F64(0.1)),
        ("a.u8", Value::U8s(vec![1, 255])),
        ("a.i8", Value::I8s(vec![-1, 1])),
        ("a.u16", Value::U16s(vec![65_535])),
        ("a.i16", Value::I16s(vec![-2, 3])),
        ("a.u32", Value::U32s(vec![7, 4_000_000_000])),
        ("a.i32", Value::I32s(vec![-7, 7, 0])),
        ("a.f32", Value::F32s(vec![0.5, -1.5])),
        ("a.bool", Value::Bools(vec![true, false, true])),
        ("a.string", strings(&["", "a", "▁the"])),
        ("a.u64", Value::U64s(vec![1 << 63])),
        ("a.i64", Value::I64s(vec![-1])),
        ("a.f64", Value::F64s(vec![1e300])),
        ("a.array", Value::Arrays(vec![strings(&["x", "y"]), strings(&["z"])])),
        ("general.alignment", Value::U32(64)),
    ];
    let found: Vec<_> = file.metadata().iter().map(|(key, value)| (key, value.clone())).collect();
    assert_eq!(found, expected);
    assert_eq!((file.version(), file.alignment_bytes(), file.len_bytes()), (3, 64, 1600));
    assert_eq!(file.paths().collect::<Vec<_>>(), [fixture("all-types.gguf")]);

    let shapes: Vec<_> = file.tensors().iter().map(|t| (t.name.as_str(), t.ty, t.dims.as_slice())).collect();
    let expected: [(_, _, &[u64]); 4] = [
        ("f32", GgmlType::F32, &[3, 2]),
        ("f16", GgmlType::F16, &[4]),
        ("q8_0", GgmlType::Q8_0, &[64, 2]),
        ("q4_k", GgmlType::Q4_K, &[256, 1]),
    ];
    assert_eq!(shapes, expected);
    let f32s: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    assert_eq!(file.read_tensor(file.tensor("f32").unwrap()).unwrap(), f32s);
    let q8_0: Vec<u8> = (0..136).collect();
    assert_eq!(file.read_tensor(file.tensor("q8_0").unwrap()).unwrap(), q8_0);
    assert_eq!(file.tensor("absent"), None);
}

#[test]
fn a_file_of_gguf_py_is_written_again_byte_for_byte() {
    let path = fixture("all-types.gguf");
    assert_eq!(rewritten(&GgufFile::open(&path).unwrap()), std::fs::read(&path).unwrap());
}

#[test]
fn a_tensor_of_another_file_is_not_read() {
    let file = GgufFile::open(&fixture("all-types.gguf")).unwrap();
    let mut tensor = file.tensor("f32").unwrap().clone();
    tensor.len_bytes = 1 << 50;
    let message = file.read_tensor(&tensor).unwrap_err().to_string();
    assert!(message.contains("tensor `f32` does not belong to"), "{message}");
}

#[test]
fn both_versions_have_the_same_layout() {
    let [two, three] = [2, 3].map(|v| sample().version(v).to_bytes().unwrap());
    assert_eq!((two[4], three[4]), (2, 3));
    assert_eq!(two[5..], three[5..]);
    assert_eq!(read(&two).unwrap().tensors, read(&three).unwrap().tensors);
}

#[test]
fn strings_across_reads_stay_whole() {
    let strings: Strings = (0..40_000).map(|i| "é".repeat(i % 7) + &i.to_string()).collect();
    let long = "ü".repeat(200_000);
    let bytes = GgufWriter::new("llama")
        .kv("tokens", Value::Strings(strings.clone()))
        .kv("template", Value::String(long.clone()))
        .kv("scores", Value::F64s((0..30_000).map(f64::from).collect()))
        .to_bytes()
        .unwrap();
    let metadata = read(&bytes).unwrap().metadata;
    assert_eq!(metadata.strings("tokens").unwrap(), Some(&strings));
    assert_eq!(metadata.string("template").unwrap(), Some(long.as_str()));
    assert_eq!(metadata.get("scores"), Some(&Value::F64s((0..30_000).map(f64::from).collect())));
}

#[test]
fn what_cannot_be_read_is_not_written() {
    let start = || GgufWriter::new("llama");
    let f32s = |writer: GgufWriter, name: &str, dims: &[u64], len| {
        writer.tensor(name, GgmlType::F32, dims, vec![0; len])
    };
    let nested = |levels| (1..levels).fold(Value::U8s(vec![]), |inner, _| Value::Arrays(vec![inner]));
    assert!(start().kv("k", nested(8)).to_bytes().is_ok());
    for (writer, part) in [
        (start().version(1), "version 1"),
        (start().kv("general.architecture", Value::U8(0)), "`general.architecture` was added twice"),
        (start().kv("", Value::U8(0)), "has 0 bytes"),
        (start().kv("general.alignment", Value::U64(32)), "`general.alignment` should be"),
        (start().kv("general.alignment", Value::U32(33)), "`general.alignment` should be"),
        (start().kv("k", Value::Arrays(vec![Value::U8(1)])), "`k`: arrays of arrays may hold arrays only"),
        (start().kv("k", nested(9)), "at most 8 deep"),
        (f32s(f32s(start(), "w", &[1], 4), "w", &[1], 4), "`w` was added twice"),
        (f32s(start(), "w", &[2], 4), "tensor `w` has 4 bytes, but its type and dimensions need 8"),
        (f32s(start(), "w", &[2, 0], 0), "tensor `w`: dimension 1 of [2, 0] is 0"),
        (f32s(start(), "w", &[], 0), "0 dimensions"),
        (f32s(start(), "w", &[1; 5], 4), "5 dimensions"),
        (f32s(start(), &"w".repeat(65), &[1], 4), "has 65 bytes"),
    ] {
        let message = writer.to_bytes().unwrap_err().to_string();
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let float = || any::<u32>().prop_map(f32::from_bits);
    let double = || any::<u64>().prop_map(f64::from_bits);
    let scalar = prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        float().prop_map(Value::F32),
        double().prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        any::<String>().prop_map(Value::String),
    ];
    let array = prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Value::U8s),
        vec(any::<i8>(), 0..9).prop_map(Value::I8s),
        vec(any::<u16>(), 0..9).prop_map(Value::U16s),
        vec(any::<i16>(), 0..9).prop_map(Value::I16s),
        vec(any::<u32>(), 0..9).prop_map(Value::U32s),
        vec(any::<i32>(), 0..9).prop_map(Value::I32s),
        vec(any::<u64>(), 0..9).prop_map(Value::U64s),
        vec(any::<i64>(), 0..9).prop_map(Value::I64s),
        vec(float(), 0..9).prop_map(Value::F32s),
        vec(double(), 0..9).prop_map(Value::F64s),
        vec(any::<bool>(), 0..9).prop_map(Value::Bools),
        vec(any::<String>(), 0..9).prop_map(|all| Value::Strings(all.into_iter().collect())),
    ];
    let nested = array.prop_recursive(4, 32, 4, |inner| vec(inner, 0..4).prop_map(Value::Arrays));
    prop_oneof![scalar, nested]
}

type Tensor = (String, GgmlType, Vec<u64>, Vec<u8>);

fn tensor() -> impl Strategy<Value = Tensor> {
    let shape = (prop::sample::select(GgmlType::ALL), 1..3u64, vec(1..4u64, 0..4));
    (shape, "[a-z0-9._]{1,20}").prop_flat_map(|((ty, blocks, outer), name)| {
        let dims: Vec<u64> = [blocks * ty.block_elems()].into_iter().chain(outer.iter().copied()).collect();
        let len = blocks * outer.iter().product::<u64>() * ty.block_len_bytes();
        (Just(name), Just(ty), Just(dims), vec(any::<u8>(), len as usize))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read(
        entries in proptest::collection::hash_map("[a-z.]{1,12}", value(), 0..12),
        tensors in vec(tensor(), 0..5),
        version in 2..=3u32,
        alignment in prop::option::of((3..9u32).prop_map(|log2| 1 << log2)),
    ) {
        let mut metadata = Metadata::default();
        for (key, value) in &entries {
            prop_assert!(metadata.insert(key, value.clone()));
        }
        if let Some(n) = alignment {
            prop_assert!(metadata.insert("general.alignment", Value::U32(n)));
        }
        // Names may come twice; the number makes them differ.
        let tensors: Vec<Tensor> =
            tensors.into_iter().enumerate().map(|(i, (n, ty, d, b))| (format!("{n}{i}"), ty, d, b)).collect();
        let writer = tensors.iter().fold(GgufWriter::from_metadata(&metadata).version(version), |w, (n, ty, d, b)| {
            w.tensor(n, *ty, d, b.clone())
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        writer.write(&path).unwrap();

        let file = GgufFile::open(&path).unwrap();
        // As text, in which a NaN equals itself; its bits are compared below.
        let text = |m: &Metadata| m.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>();
        prop_assert_eq!(text(file.metadata()), text(&metadata));
        prop_assert_eq!(file.version(), version);
        prop_assert_eq!(file.alignment_bytes(), u64::from(alignment.unwrap_or(32)));
        prop_assert_eq!(file.tensors().len(), tensors.len());
        for (name, ty, dims, bytes) in &tensors {
            let info = file.tensor(name).unwrap();
            prop_assert_eq!((&info.ty, &info.dims), (ty, dims));
            prop_assert_eq!(&file.read_tensor(info).unwrap(), bytes);
        }
        prop_assert_eq!(rewritten(&file), std::fs::read(&path).unwrap());
        prop_assert_eq!(std::fs::read(&path).unwrap(), writer.to_bytes().unwrap());
    }
}
