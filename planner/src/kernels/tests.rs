//! Launches for the tests of templates.

use unisonic_core::kir::Kernel;
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::legal::{Caps, legalize};
use unisonic_core::kir::verify;

pub use super::samples::data::{bytes, random, rows, word_bytes, words};

/// Verifies a kernel and runs it, on a device that has everything and, legalised, on one that has next to
/// nothing; the buffers afterwards.
pub fn launch_groups(kernel: &Kernel, groups: u32, params: Vec<u32>, buffers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let found = launch_on(Caps::ALL, kernel, groups, params.clone(), buffers.clone());
    let weakest = Caps { subgroup: 8, ..Caps::NONE };
    let alike = launch_on(weakest, kernel, groups, params, buffers) == found;
    assert!(alike, "{}: results differ on {weakest:?}", kernel.name);
    found
}

fn launch_on(
    caps: Caps,
    kernel: &Kernel,
    groups: u32,
    params: Vec<u32>,
    buffers: Vec<Vec<u8>>,
) -> Vec<Vec<u8>> {
    assert_eq!(verify(kernel), [], "{kernel}");
    let legal = legalize(kernel, &caps);
    assert_eq!(verify(&legal), [], "{caps:?}");
    let mut launch = Launch { groups, params, buffers, fuel: u64::MAX };
    run(&legal, &mut launch).unwrap_or_else(|trap| panic!("{}, {caps:?}: {trap}", kernel.name));
    launch.buffers
}
