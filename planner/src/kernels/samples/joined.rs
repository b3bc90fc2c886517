//! Samples of joined kernels (`core::kir::join`): samples of other families that have workgroups of one size,
//! side by side.

use std::collections::BTreeMap;

use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::join::{Joined, Segment, join};
use unisonic_core::kir::verify::MAX_SHARED_LEN_BYTES;

use super::super::fit::shared_len;
use super::{Extent, Family, Sample, heads, linear, quantized};

/// What plans join, and what else has barriers, exchanges, parameters and shared memory.
const FAMILIES: [Family; 5] = [
    linear::split_k_samples,
    linear::tiled_samples,
    heads::prepare_query_samples,
    heads::write_kv_samples,
    quantized::rms_norm_samples,
];

/// Samples of [`join`].
pub fn joined_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    // How many of a family are left out from one to the next.
    let step = match extent {
        Extent::Pairs => 5,
        Extent::Full => 17,
    };
    let all = FAMILIES.into_iter().flat_map(move |family| family(extent).step_by(step));
    // By size, until there are three, or two.
    let mut waiting: BTreeMap<u32, Vec<Sample>> = BTreeMap::new();
    Box::new(all.enumerate().filter_map(move |(number, sample)| {
        let workgroup = sample.kernel.workgroup;
        let of_size = waiting.entry(workgroup).or_default();
        of_size.push(sample);
        let is_enough = of_size.len() >= 2 + number % 2;
        let sample = is_enough.then(|| joined(&std::mem::take(of_size)));
        // Arrays of different types are not overlaid; plans do not join what has no room either.
        sample.filter(|sample| shared_len(&sample.kernel) <= MAX_SHARED_LEN_BYTES)
    }))
}

fn joined(samples: &[Sample]) -> Sample {
    let counts = samples.iter().map(|sample| addressed(&sample.kernel).count() as u32);
    // No two are the same buffer.
    let mut next = 0;
    let buffers: Vec<Vec<u32>> = counts
        .map(|count| {
            next += count;
            (next - count..next).collect()
        })
        .collect();
    let segments = samples.iter().zip(&buffers).map(|(sample, buffers)| Segment {
        kernel: &sample.kernel,
        workgroups: sample.launch.groups,
        buffers,
    });
    let Joined { kernel, .. } = join(&segments.collect::<Vec<_>>());
    let launches = || samples.iter().map(|sample| &sample.launch);
    Sample {
        name: samples.iter().map(|sample| &sample.name[..]).collect::<Vec<_>>().join(" and "),
        kernel,
        launch: Launch {
            groups: launches().map(|launch| launch.groups).sum(),
            params: launches().flat_map(|launch| launch.params.clone()).collect(),
            buffers: launches().flat_map(|launch| launch.buffers.clone()).collect(),
            fuel: u64::MAX,
        },
        expected: samples.iter().flat_map(|sample| sample.expected.clone()).collect(),
        caps: samples[0].caps,
    }
}
