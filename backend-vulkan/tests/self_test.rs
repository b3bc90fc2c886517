//! What a device is found to do, and what becomes of one that computes otherwise, on each Vulkan device that the loader finds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use unisonic_cache::Cache;
use unisonic_gpu::machine::Machine;
use unisonic_vulkan::driver::{Fault, Needs, OpenError, OpenOptions, VulkanMachine, enumerate, open};

fn devices_for(what: &str) -> Vec<usize> {
    let found = match enumerate() {
        Ok(found) => found,
        Err(error) => {
            support::skipped(what, &error.to_string());
            return vec![];
        }
    };
    found.iter().filter(|device| device.missing.is_empty()).map(|device| device.index).collect()
}

fn with_wrong(index: usize, wrong: &[&'static str]) -> Result<VulkanMachine, OpenError> {
    open(index, &OpenOptions { wrong_probes: wrong.to_vec(), ..OpenOptions::default() })
}

/// What is wrong, but for constants: Mesa's llvmpipe takes 0 + x for x where it knows the 0.
fn faults_of(machine: &VulkanMachine) -> Vec<Fault> {
    let faults = &machine.self_test().faults;
    assert_eq!(machine.target().knows_constants, faults.iter().all(|fault| fault.of != Needs::Constants));
    faults.iter().filter(|fault| fault.of != Needs::Constants).cloned().collect()
}

#[test]
fn devices_compute_as_specified() {
    for index in devices_for("the self-test of a Vulkan device") {
        let machine = open(index, &OpenOptions::default()).unwrap();
        assert_eq!(faults_of(&machine), [], "{:?}", machine.info());
    }
}

#[test]
fn what_fails_is_switched_off() {
    for index in devices_for("faults of a Vulkan device") {
        let right = open(index, &OpenOptions::default()).unwrap().hardware().caps;
        let caps = |wrong: &'static str, of: Needs, has: bool| {
            let machine = with_wrong(index, &[wrong]).unwrap();
            let faults = faults_of(&machine);
            // A probe of what the device lacks does not run.
            assert_eq!(faults.iter().map(|fault| fault.of).collect::<Vec<_>>(), vec![of; usize::from(has)]);
            assert!(faults.iter().all(|fault| fault.reason.contains(&format!("the probe `{wrong}`"))));
            assert_eq!(machine.self_test().probes.contains(&wrong), has);
            let off = machine.switched_off().iter().filter(|off| off.reason.contains(&format!("`{wrong}`")));
            assert_eq!(off.count(), usize::from(has), "{:?}", machine.switched_off());
            machine.hardware().caps
        };
        let without_dot = caps("dots", Needs::IntegerDot, right.dot4);
        assert!(!without_dot.dot4);
        assert_eq!((without_dot.subgroup, without_dot.mma32), (right.subgroup, right.mma32));
        let without_subgroups = caps("shuffles", Needs::Subgroups, right.subgroup > 1);
        assert_eq!((without_subgroups.subgroup, without_subgroups.mma32), (1, false));
        assert_eq!(without_subgroups.dot4, right.dot4);
        assert!(!with_wrong(index, &["constants"]).unwrap().target().knows_constants);
        let without_matrices = caps("matrices", Needs::Matrices, right.mma32);
        assert!(!without_matrices.mma32);
        assert_eq!((without_matrices.subgroup, without_matrices.dot4), (right.subgroup, right.dot4));
    }
}

#[test]
fn a_device_whose_answers_would_be_wrong_is_refused() {
    for index in devices_for("wrong answers of a Vulkan device") {
        for wrong in ["rounding", "contraction", "reassociation", "conversions", "integers", "shared"] {
            let error = with_wrong(index, &[wrong, "dots"]).err().unwrap();
            let text = error.to_string();
            assert!(matches!(&error, OpenError::Wrong { faults, .. } if faults.len() == 1), "{error:?}");
            assert!(
                text.contains(&format!("the probe `{wrong}`")) && text.contains("newer driver"),
                "{text}"
            );
        }
    }
}

#[test]
fn what_was_found_is_remembered() {
    for index in devices_for("the memory of self-tests") {
        let folder = tempfile::tempdir().unwrap();
        let opened = |wrong: &[&'static str]| {
            let cache = Some(Arc::new(Cache::new(folder.path(), 1 << 20)));
            open(index, &OpenOptions { cache, wrong_probes: wrong.to_vec(), ..OpenOptions::default() })
        };
        for ran in [true, false, false] {
            assert_eq!(opened(&[]).unwrap().self_test().ran, ran);
        }
        // A fault is remembered as well.
        for _ in 0..2 {
            assert!(matches!(opened(&["rounding"]), Err(OpenError::Wrong { .. })));
        }
        // What is damaged is found out again.
        for entry in std::fs::read_dir(folder.path().join("self-tests")).unwrap() {
            std::fs::write(entry.unwrap().path(), "all is well").unwrap();
        }
        for ran in [true, false] {
            assert_eq!(opened(&[]).unwrap().self_test().ran, ran);
        }
    }
}
