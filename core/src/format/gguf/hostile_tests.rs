//! Damaged and malicious files, each refused with an error that names the thing.

use std::fs::{self, OpenOptions};

use proptest::prelude::*;

use super::raw::{Raw, assert_refused, read, refusal, sample};
use super::{FormatError, GgufFile, GgufHeader, MAX_NESTING};
use crate::format::{GgmlType, Value};
use crate::plan::WeightSource;

const HUGE: [u64; 4] = [1 << 32, 1 << 63, (1 << 63) + 1, u64::MAX];
const F32: u32 = 0;

// Files under 100 bytes that declare 2^32 items and more (candle #3533).

#[test]
fn huge_counts_of_tensors_and_entries_are_refused() {
    for n in HUGE {
        let items = format!("{n} items");
        assert_refused(
            &Raw::new(n, 0).data(32).bytes,
            &["the tensor table declares", &items, "only 40 bytes left"],
        );
        assert_refused(
            &Raw::new(0, n).data(32).bytes,
            &["the metadata declares", &items, "only 40 bytes left"],
        );
    }
}

#[test]
fn a_huge_string_length_is_refused() {
    for n in HUGE {
        let value = Raw::new(0, 1).string("general.name").u32(8).u64(n).bytes(b"abc");
        assert!(value.bytes.len() < 100);
        assert_refused(
            &value.bytes,
            &["metadata key `general.name`", &format!("needs {n} bytes"), "only 3 left"],
        );
        let element = Raw::new(0, 1).array("t", 8, 2).string("a").u64(n).bytes(b"abc");
        assert_refused(&element.bytes, &["metadata key `t`, element 1", &format!("needs {n} bytes")]);
        let key = Raw::new(0, 1).u64(n).data(32);
        assert_refused(&key.bytes, &["metadata entry 0", &format!("{n} bytes"), "1 to 65535"]);
        let tensor = Raw::new(1, 0).u64(n).data(32);
        assert_refused(&tensor.bytes, &["entry 0 of the tensor table", &format!("{n} bytes"), "1 to 64"]);
    }
}

#[test]
fn a_huge_array_count_is_refused_for_every_element_type() {
    for n in HUGE {
        for ty in 0..=12 {
            let file = Raw::new(0, 1).array("tokenizer.ggml.tokens", ty, n).bytes(&[0; 8]);
            assert!(file.bytes.len() < 100);
            assert_refused(
                &file.bytes,
                &["key `tokenizer.ggml.tokens` declares", &format!("{n} items"), "only 8"],
            );
        }
        let inner = Raw::new(0, 1).array("t", 9, 1).u32(4).u64(n);
        assert_refused(&inner.bytes, &["metadata key `t`, element 0", &format!("{n} items")]);
    }
}

#[test]
fn a_huge_dimension_count_is_refused() {
    for n in [0, 5, 9, 255, u32::MAX] {
        let file = Raw::new(1, 0).string("w").u32(n).data(64);
        assert_refused(&file.bytes, &["tensor `w`", &format!("{n} dimensions"), "1 to 4"]);
    }
}

#[test]
fn every_length_and_count_of_a_file_may_be_huge() {
    let valid = Raw::new(2, 4)
        .string("general.architecture")
        .u32(8)
        .string("llama")
        .array("tokens", 8, 2)
        .string("a")
        .string("b")
        .array("scores", 6, 2)
        .u64(0)
        .array("nested", 9, 1)
        .u32(8)
        .count(1)
        .string("c")
        .tensor("a", &[4, 2], F32, 0)
        .tensor("b", &[4], F32, 32)
        .data(48);
    assert!(read(&valid.bytes).is_ok());
    assert_eq!(valid.counts.len(), 21);
    for &at in &valid.counts {
        for n in HUGE {
            let mut bytes = valid.bytes.clone();
            bytes[at..at + 8].copy_from_slice(&n.to_le_bytes());
            refusal(&bytes);
        }
    }
}

#[test]
fn counts_above_any_real_model_are_refused_even_with_the_bytes_for_them() {
    let sparse = std::io::repeat(0);
    let header = Raw::new(1 << 21, 0).bytes;
    let file = std::io::Read::chain(header.as_slice(), sparse);
    let message = GgufHeader::read(file, 1 << 60).unwrap_err().to_string();
    assert_eq!(
        message,
        "the tensor table, count: 2097152 is above the limit of 1048576; no real model is like this, the file is \
         damaged"
    );
}

#[test]
fn a_string_larger_than_any_header_is_refused_even_with_the_bytes_for_it() {
    let header = Raw::new(0, 1).string("k").u32(8).u64(1 << 40).bytes;
    let file = std::io::Read::chain(header.as_slice(), std::io::repeat(b'a'));
    let message = GgufHeader::read(file, 1 << 60).unwrap_err().to_string();
    assert!(
        message.starts_with("metadata key `k`, end in the header: ") && message.contains("limit of"),
        "{message}"
    );
}

// Zero dimensions; alignment of a wrong type or value (llama.cpp PR #25596).

#[test]
fn a_zero_dimension_is_refused() {
    for dims in [&[4, 0][..], &[0], &[0, 4], &[4, 1, 0, 1]] {
        let file = Raw::new(1, 0).tensor("w", dims, F32, 0).data(64);
        assert_refused(&file.bytes, &["tensor `w`", "is 0", &format!("{dims:?}")]);
    }
}

#[test]
fn an_alignment_of_a_wrong_type_or_value_is_refused() {
    let with = |value: &Value| Raw::new(0, 1).entry("general.alignment", value).data(32).bytes;
    for (value, found) in [
        (Value::I32(32), "a signed 32-bit integer"),
        (Value::U64(32), "an unsigned 64-bit integer"),
        (Value::String("32".into()), "a string"),
        (Value::U32s(vec![32]), "an array of unsigned 32-bit integers"),
        (Value::U32(0), "holds 0"),
        (Value::U32(1), "holds 1"),
        (Value::U32(3), "holds 3"),
        (Value::U32(4), "holds 4"),
        (Value::U32(48), "holds 48"),
        (Value::U32(1 << 31), "holds 2147483648"),
        (Value::U32(u32::MAX), "holds 4294967295"),
    ] {
        assert_refused(&with(&value), &["`general.alignment`", "power of two", found]);
    }
    for n in [8, 32, 64, 4096] {
        assert_eq!(read(&with(&Value::U32(n))).unwrap().alignment_bytes, u64::from(n));
    }
}

// Sizes that wrap 64 bits (llama.cpp PR #19856, #14595, #18674).

#[test]
fn a_product_of_dimensions_that_wraps_is_refused() {
    let wrapping: [&[u64]; 6] = [
        &[(1 << 42) + 1, 1 << 22], // elements wrap to 2^22
        &[(1 << 42) + 1, 1 << 20], // bytes wrap to 2^22
        &[1 << 32, 1 << 32],       // elements wrap to 0
        &[1 << 16, 1 << 16, 1 << 16, 1 << 16],
        &[u64::MAX, u64::MAX], // elements wrap to 1
        &[1 << 63],
    ];
    for dims in wrapping {
        let file = Raw::new(1, 0).tensor("w", dims, F32, 0).data(64);
        assert_refused(&file.bytes, &["tensor `w`", "more than 2^63 - 1", &format!("{dims:?}")]);
    }
}

#[test]
fn tensors_beyond_the_end_are_refused() {
    let end = |dims: &[u64], offset| Raw::new(1, 0).tensor("w", dims, F32, offset).data(64).bytes;
    assert!(read(&end(&[16], 0)).is_ok());
    assert!(read(&end(&[8], 32)).is_ok());
    let too_far: [(&[u64], u64); 5] =
        [(&[17], 0), (&[9], 32), (&[1 << 40], 0), (&[1], 64), (&[1], u64::MAX - 31)];
    for (dims, offset) in too_far {
        assert_refused(&end(dims, offset), &["tensor `w` needs", "but the file has 128"]);
    }
}

// Unknown types (gguf-tools #25, mistral.rs #2117).

#[test]
fn an_unknown_tensor_type_is_refused_by_name_and_number() {
    for id in [4, 31, 36, 43, 255, u32::MAX] {
        let file = Raw::new(1, 0).tensor("blk.0.attn_q.weight", &[32], id, 0).data(64);
        let parts = ["tensor `blk.0.attn_q.weight`", &format!("type {id},"), "Q4_K", "MXFP4"];
        assert_refused(&file.bytes, &parts);
    }
}

#[test]
fn types_that_other_programs_know_by_number_only_are_read_by_name() {
    for (id, name, elems) in [(39, "MXFP4", 32), (20, "IQ4_NL", 32), (23, "IQ4_XS", 256)] {
        let file = Raw::new(1, 0).tensor("w", &[elems], id, 0).data(256);
        assert_eq!(read(&file.bytes).unwrap().tensors[0].ty.name(), name);
    }
}

#[test]
fn a_row_that_ends_inside_a_block_is_refused() {
    let file = Raw::new(1, 0).tensor("w", &[48, 2], GgmlType::Q8_0.id(), 0).data(256);
    assert_refused(&file.bytes, &["tensor `w`", "row of 48 elements", "Q8_0 blocks of 32"]);
}

#[test]
fn an_unknown_value_type_is_refused() {
    for ty in [13, 255, u32::MAX] {
        let scalar = Raw::new(0, 1).string("k").u32(ty).data(32);
        assert_refused(&scalar.bytes, &["metadata key `k`", &format!("value type {ty}")]);
        let element = Raw::new(0, 1).array("k", ty, 0).data(32);
        assert_refused(&element.bytes, &["metadata key `k`", &format!("value type {ty}")]);
    }
}

// Truncated downloads (llama.cpp #6774).

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = sample().to_bytes().unwrap();
    assert!(read(&bytes).is_ok());
    for len in 0..bytes.len() {
        let message = refusal(&bytes[..len]);
        let names_it = ["cut short", "1 to 65535", "1 to 64"].iter().any(|part| message.contains(part));
        assert!(names_it, "cut to {len}: {message}");
    }
}

#[test]
fn a_cut_names_what_is_incomplete() {
    let bytes = sample().to_bytes().unwrap();
    let find = |s: &str| bytes.windows(s.len()).position(|w| w == s.as_bytes()).unwrap();
    assert_refused(&bytes[..3], &["only 3 bytes"]);
    assert_refused(&bytes[..find("<0x0A>") + 3], &["metadata key `strings`, element 3", "only 3 left"]);
    assert_refused(&bytes[..find("q8") + 7], &["tensor `q8`", "needs 8 bytes"]);
    assert_refused(&bytes[..bytes.len() - 1], &["tensor `last` needs 32 bytes", "cut short"]);
}

#[test]
fn a_file_that_becomes_shorter_while_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    sample().write(&path).unwrap();
    let file = GgufFile::open(&path).unwrap();
    let last = file.tensor("last").unwrap().clone();
    assert_eq!(file.read_tensor(&last).unwrap().len(), 32);

    OpenOptions::new().write(true).open(&path).unwrap().set_len(file.len_bytes() - 1).unwrap();
    let message = file.read_tensor(&last).unwrap_err().to_string();
    for part in ["m.gguf", "tensor `last`", "should end at byte", "changed while in use"] {
        assert!(message.contains(part), "{message}");
    }
    let message = file.read("last").unwrap_err().to_string();
    assert!(message.starts_with("tensor `last`: ") && message.contains("changed while in use"), "{message}");
    assert_eq!(file.read("norm").unwrap().len(), 12);
}

#[test]
fn a_file_that_becomes_shorter_while_its_header_is_read_is_an_error() {
    let bytes = sample().to_bytes().unwrap();
    for len in [0, 10, 100, 700] {
        let message = GgufHeader::read(&bytes[..len], bytes.len() as u64).unwrap_err().to_string();
        assert!(message.contains("became shorter"), "{message}");
    }
}

// Wrong magic, version and byte order.

#[test]
fn other_kinds_of_files_are_refused_with_what_they_are() {
    let with = |magic: &[u8]| [magic, &[0; 60]].concat();
    assert_refused(&with(b"ggjt"), &["`ggjt`", "another kind"]);
    assert_refused(&with(b"tjgg"), &["`tjgg`", "before GGUF"]);
    assert_refused(&with(b"version https://git-lfs"), &["`vers`", "git lfs pull"]);
    assert_refused(&with(b"<!DOCTYPE html>"), &["web page"]);
    assert_refused(&with(b"\0\x01\xff\n"), &[r"`\x00\x01\xff\n`"]);
}

#[test]
fn only_versions_2_and_3_are_read() {
    for version in [0, 1, 4, 1000, u32::MAX] {
        let bytes = Raw::default().bytes(b"GGUF").u32(version).u64(0).u64(0).bytes;
        assert_refused(&bytes, &[&format!("version {version},"), "2 and 3"]);
    }
    for version in [2, 3] {
        let bytes = Raw::default().bytes(b"GGUF").u32(version).u64(0).u64(0).bytes;
        assert_eq!(read(&bytes).unwrap().version, version);
    }
}

#[test]
fn big_endian_files_are_refused_by_name() {
    let swapped_version = Raw::default().bytes(b"GGUF").bytes(&3u32.to_be_bytes()).bytes(&[0; 16]).bytes;
    let swapped_magic = Raw::default().bytes(b"FUGG").u32(3).bytes(&[0; 16]).bytes;
    for bytes in [swapped_version, swapped_magic] {
        assert_refused(&bytes, &["big-endian", "gguf-convert-endian"]);
    }
}

#[test]
fn files_that_are_no_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = GgufFile::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("is not a regular file"), "{message}");
    let absent = folder.path().join("absent.gguf");
    assert!(matches!(GgufFile::open(&absent), Err(FormatError::Open { path, .. }) if path == absent));
    let empty = folder.path().join("empty.gguf");
    fs::write(&empty, b"").unwrap();
    let message = GgufFile::open(&empty).unwrap_err().to_string();
    assert!(message.contains("empty.gguf: the file has only 0 bytes"), "{message}");
}

// Names, text, booleans, nesting.

#[test]
fn duplicate_names_are_refused() {
    let keys = Raw::new(0, 2).entry("a.b", &Value::U8(1)).entry("a.b", &Value::U8(1));
    assert_refused(&keys.bytes, &["metadata key `a.b` appears twice"]);
    let tensors = Raw::new(2, 0).tensor("w", &[8], F32, 0).tensor("w", &[8], F32, 32).data(64);
    assert_refused(&tensors.bytes, &["tensor `w` appears twice"]);
}

#[test]
fn empty_and_long_names_are_refused() {
    let key = |len| Raw::new(0, 1).entry(&"k".repeat(len), &Value::U8(1)).bytes;
    assert!(read(&key(65_535)).is_ok());
    assert_refused(&key(65_536), &["metadata entry 0", "65536 bytes"]);
    assert_refused(&[&key(0)[..], &[0]].concat(), &["metadata entry 0", "name of 0 bytes"]);
    let tensor = |len| Raw::new(1, 0).tensor(&"t".repeat(len), &[8], F32, 0).data(32).bytes;
    assert!(read(&tensor(64)).is_ok());
    assert_refused(&tensor(65), &["entry 0 of the tensor table", "65 bytes"]);
    assert_refused(&tensor(0), &["entry 0 of the tensor table", "name of 0 bytes"]);
}

#[test]
fn text_that_is_not_utf8_is_refused_with_key_and_index() {
    let bad = |raw: Raw| raw.count(2).bytes(b"\xc3\x28").data(32).bytes;
    assert_refused(&bad(Raw::new(0, 1)), &["metadata entry 0", "UTF-8"]);
    assert_refused(&bad(Raw::new(0, 1).string("k").u32(8)), &["metadata key `k` is not valid UTF-8"]);
    let element = Raw::new(0, 1).array("tokens", 8, 3).string("a").string("b");
    assert_refused(&bad(element), &["metadata key `tokens`, element 2 is not valid UTF-8"]);
    assert_refused(&bad(Raw::new(1, 0)), &["entry 0 of the tensor table", "UTF-8"]);
}

#[test]
fn booleans_other_than_0_and_1_are_refused() {
    let scalar = Raw::new(0, 1).string("k").u32(7).bytes(&[2]);
    assert_refused(&scalar.bytes, &["metadata key `k`", "value 2"]);
    let element = Raw::new(0, 1).array("k", 7, 3).bytes(&[0, 1, 255]);
    assert_refused(&element.bytes, &["metadata key `k`, element 2", "value 255"]);
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |levels: u32| {
        let outer = Raw::new(0, 1).string("k").u32(9);
        (1..levels).fold(outer, |raw, _| raw.u32(9).u64(1)).u32(0).u64(0).data(32).bytes
    };
    assert!(read(&nested(MAX_NESTING)).is_ok());
    for levels in [MAX_NESTING + 1, 100_000] {
        assert_refused(&nested(levels), &["metadata key `k`", "nested more than 8 deep"]);
    }
}

#[test]
fn names_from_a_file_cannot_write_to_the_terminal() {
    let key = format!("\x1b[31m\n{}", "x".repeat(5000));
    let message = refusal(&Raw::new(0, 1).string(&key).u32(99).bytes);
    assert!(message.contains(r"\u{1b}[31m\nxxx") && message.contains('…'), "{message}");
    assert!(message.len() < 300 && !message.contains(['\x1b', '\n']), "{message}");
}

// Places of tensors.

#[test]
fn misaligned_tensors_are_refused() {
    for offset in [1, 8, 33, 48] {
        let file = Raw::new(1, 0).tensor("w", &[1], F32, offset).data(64);
        assert_refused(&file.bytes, &["tensor `w`", &format!("offset {offset}"), "alignment 32"]);
    }
}

#[test]
fn overlapping_tensors_are_refused_and_gaps_are_not() {
    let two = |a_len, b_offset| {
        Raw::new(2, 0).tensor("b", &[8], F32, b_offset).tensor("a", &[a_len], F32, 0).data(512).bytes
    };
    for (a_len, b_offset) in [(8, 0), (9, 32), (64, 128)] {
        let message = refusal(&two(a_len, b_offset));
        assert!(
            message.contains("overlap") && message.contains("`a`") && message.contains("`b`"),
            "{message}"
        );
    }
    for (a_len, b_offset) in [(8, 32), (8, 64), (64, 256)] {
        assert!(read(&two(a_len, b_offset)).is_ok());
    }
}

proptest! {
    /// Whatever is in a file, reading it ends with an error or with tensors that lie in the file.
    #[test]
    fn flipped_bytes_never_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = sample().to_bytes().unwrap();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check_whatever(&bytes)?;
    }

    #[test]
    fn extreme_words_never_panic(
        at in any::<prop::sample::Index>(),
        word in prop::sample::select(vec![0, 1, 1 << 31, 1 << 32, 1 << 42, 1 << 62, u64::MAX - 7, u64::MAX]),
    ) {
        let mut bytes = sample().to_bytes().unwrap();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
        check_whatever(&bytes)?;
    }

    #[test]
    fn random_headers_never_panic(rest in proptest::collection::vec(any::<u8>(), 0..200)) {
        check_whatever(&Raw::new(1, 1).bytes(&rest).bytes)?;
    }
}

fn check_whatever(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(header) = read(bytes) else { return Ok(()) };
    for t in &header.tensors {
        prop_assert!(
            t.offset_bytes >= header.len_bytes && t.offset_bytes + t.len_bytes <= bytes.len() as u64
        );
        prop_assert_eq!(t.row_len() / t.ty.block_elems() * t.rows() * t.ty.block_len_bytes(), t.len_bytes);
    }
    Ok(())
}
