//! Every template, over formats, shapes, rows, tuning and devices, equals `core::numerics` bit for bit in the interpreter.
//!
//! The quick and CI tiers go through combinations in which every two choices meet; the full tier through all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use unisonic_core::kir::interp::run;
use unisonic_core::kir::legal::{is_legal, legalize};
use unisonic_core::kir::{parse, verify};
use unisonic_planner::kernels::samples::{DEVICES, Extent, FAMILIES, Sample};

fn extent() -> Extent {
    match std::env::var("UNISONIC_TIER").as_deref() {
        Ok("full") => Extent::Full,
        _ => Extent::Pairs,
    }
}

#[test]
fn samples_equal_the_reference() {
    for (family, samples) in FAMILIES {
        let mut count = 0;
        for sample in samples(extent()) {
            check(&sample);
            count += 1;
        }
        println!("{family}: {count} samples");
        assert!(count > 0, "`{family}` has samples");
    }
}

fn check(sample: &Sample) {
    let Sample { name, kernel, launch, caps, .. } = sample;
    assert_eq!(verify(kernel), [], "{name}\n{kernel}");
    assert_eq!(parse(&kernel.to_string()).as_ref(), Ok(kernel), "{name}");
    let legal = legalize(kernel, caps);
    assert_eq!(verify(&legal), [], "{name}: {caps:?}");
    assert!(is_legal(&legal.body, &legal, caps), "{name}: {caps:?}");
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
