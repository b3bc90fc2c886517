//! The tests of a device again, in processes of their own on a stand-in for the driver, and what a driver may lack.

use super::*;

#[test]
fn fake_driver_passes_the_tests_of_a_device() {
    let Some(libraries) = fake::library("the tests of a device on a stand-in for the driver") else { return };
    let child = fake::run(&["device_", "loss_"], Some(libraries), &[]);
    assert!(child.is_success && !child.text.contains("skipped"), "{}", child.text);
}

#[test]
fn fake_driver_is_not_called_after_a_loss() {
    let Some(libraries) = fake::library("calls after a loss") else { return };
    let child = fake::run(&["child_illegal_access"], Some(libraries), &[("FAKE_CUDA_STRICT", "1")]);
    assert!(child.is_success && child.text.contains("the process lives"), "{}", child.text);
    let failing = [("FAKE_CUDA_FAIL", "cuMemAlloc_v2=214")];
    let child = fake::run(&["child_allocates"], Some(libraries), &failing);
    assert!(child.is_success && child.text.contains("CUDA_ERROR_ECC_UNCORRECTABLE"), "{}", child.text);
    assert!(child.text.matches("Lost").count() == 2 && child.text.contains("] None"), "{}", child.text);
}

#[test]
fn fake_driver_without_graphs_runs_launches_one_by_one() {
    let Some(libraries) = fake::library("a driver without graphs") else { return };
    for call in [
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphUpload",
        // Then launches wait for the end of those before them.
        "cuLaunchKernelEx",
    ] {
        let child =
            fake::run(&["child_replays"], Some(libraries), &[("FAKE_CUDA_FAIL", &format!("{call}=801"))]);
        assert!(child.is_success, "{call}: {}", child.text);
    }
}

#[test]
fn fake_driver_without_a_linker_compiles_at_each_start() {
    let Some(libraries) = fake::library("a driver without a linker") else { return };
    for call in ["cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete"] {
        let failing = [("FAKE_CUDA_FAIL", &*format!("{call}=801"))];
        let child = fake::run(&["child_keeps_kernels"], Some(libraries), &failing);
        let expected = "CompileCounts { compiled: 2, kept: 0 }";
        assert!(child.is_success && child.text.contains(expected), "{call}: {}", child.text);
    }
}

#[test]
fn fake_driver_that_cannot_be_used_says_what_to_do() {
    let Some(libraries) = fake::library("drivers that cannot be used") else { return };
    for (variable, value, expected) in [
        (
            "FAKE_CUDA_VERSION",
            "10020",
            "the CUDA driver is too old: it is for CUDA 10.2, and CUDA 11.4 is needed; install",
        ),
        ("FAKE_CUDA_FAIL", "cuInit=100", "the CUDA driver finds no GPU"),
        (
            "FAKE_CUDA_FAIL",
            "cuInit=803",
            "cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); see whether",
        ),
        ("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain=46", "[opened] [Broken"),
        ("FAKE_CUDA_FAIL", "cuMemHostAlloc=2", "cuMemHostAlloc of 8388608 bytes of host memory failed"),
    ] {
        let child = fake::run(&["child_opens"], Some(libraries), &[(variable, value)]);
        assert!(child.is_success && child.text.contains(expected), "{value}: {}", child.text);
    }
}

#[test]
fn another_library_of_the_drivers_name_is_no_driver() {
    let Some(libraries) = fake::other_library() else {
        return fake::skip("another library of the driver's name", "found none to copy");
    };
    let child = fake::run(&["child_opens"], Some(&libraries), &[]);
    let expected = "has no function `cuInit`: it is too old, or not NVIDIA's; install NVIDIA's driver";
    assert!(child.is_success && child.text.contains(expected), "{}", child.text);
}
