//! Every template, over formats, shapes, rows, tuning and devices, equals `core::numerics` bit for bit in the interpreter.
//!
//! The quick and CI tiers go through combinations in which every two choices meet; the full tier through all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;

use unisonic_core::kir::interp::run;
use unisonic_core::kir::legal::{is_legal, legalize};
use unisonic_core::kir::{parse, verify};
use unisonic_planner::kernels::samples::{DEVICES, Extent, FAMILIES, Sample, data};

/// A test for each family, so that they run side by side.
macro_rules! families {
    ($($family:ident,)*) => {
        $(#[test]
        fn $family() {
            equals_the_reference(stringify!($family));
        })*

        #[test]
        fn every_family_is_tested() {
            let tested = [$(stringify!($family)),*];
            assert_eq!(FAMILIES.iter().map(|family| family.0).collect::<Vec<_>>(), tested);
        }
    };
}

families! {
    linear_split_k,
    linear_tiled,
    linear_half_staged,
    quantize_a16,
    gate,
    gelu,
    rms_norm,
    layer_norm,
    embed_blocks,
    embed_floats,
    route,
    expert_linear,
    sum_experts,
    add_shared,
    add,
    soft_cap,
    scale,
    select_rows,
    found_flags,
    argmax_parts,
    argmax_join,
    head_norm,
    rope,
    prepare_query,
    write_kv,
    attention_decode,
    attention_merge,
    attention_prefill,
    joined,
}

fn extent() -> Extent {
    match std::env::var("UNISONIC_TIER").as_deref() {
        Ok("full") => Extent::Full,
        _ => Extent::Pairs,
    }
}

fn equals_the_reference(family: &str) {
    let (_, samples) = FAMILIES.iter().find(|other| other.0 == family).unwrap();
    let (mut count, mut flags, mut has_flags) = (0, HashSet::new(), false);
    for sample in samples(extent()) {
        check(&sample);
        count += 1;
        for (_, buffer) in sample.buffer_names().zip(&sample.expected).filter(|(name, _)| *name == "flags") {
            has_flags = true;
            flags.extend(data::words(buffer));
        }
    }
    println!("{family}: {count} samples");
    assert!(count > 0, "`{family}` has samples");
    assert!(!has_flags || (flags.contains(&0) && flags.contains(&1)), "some of `{family}` is out of range");
}

fn check(sample: &Sample) {
    let Sample { name, kernel, launch, caps, .. } = sample;
    assert_eq!(verify(kernel), [], "{name}\n{kernel}");
    assert_eq!(parse(&kernel.to_string()).as_ref(), Ok(kernel), "{name}");
    let legal = legalize(kernel, caps);
    assert_eq!(verify(&legal), [], "{name}: {caps:?}");
    assert!(is_legal(&legal, caps), "{name}: {caps:?}");
    let mut launch = launch.clone();
    run(&legal, &mut launch).unwrap_or_else(|trap| panic!("{name}: {caps:?}: {trap}"));
    sample.check(&launch.buffers).unwrap_or_else(|difference| panic!("{difference}: {caps:?}"));
}

/// The check can fail.
#[test]
fn a_wrong_bit_is_told() {
    for (_, family) in FAMILIES {
        let sample = family(Extent::Pairs).next().unwrap();
        assert!(DEVICES.contains(&sample.caps));
        let mut wrong = sample.expected.clone();
        wrong.last_mut().unwrap()[0] ^= 1;
        assert!(sample.check(&wrong).unwrap_err().contains("word 0"));
    }
}
