//! Joined kernels do what their segments did.

use super::super::abi::addressed;
use super::super::build::{Build, kernel};
use super::super::interp::{Launch, run};
use super::super::legal::{Caps, legalize};
use super::super::waits::early_objects;
use super::super::{parse, verify};
use super::*;

/// `y = x*factor + number of the workgroup`, through shared memory, a loop and a parameter. One of them reads
/// `x` early.
fn scale(name: &str, elem: Scalar, len: u32, resident: Option<u32>) -> Kernel {
    kernel(name, 32, |k: &Build| {
        resident.into_iter().for_each(|workgroups| k.resident(workgroups));
        let factor = k.param("factor", Scalar::U32);
        let (x, y) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let turned = k.shared("turned", elem, len);
        let at = k.group_id() * 32 + k.local_id();
        let word = x.load(at).cast(elem);
        if resident == Some(3) {
            k.wait_launches();
        }
        turned.store(k.local_id(), word);
        k.barrier();
        let other = turned.load(k.local_id() ^ 31).cast(Scalar::U32);
        let [sum] = k.fold(k.u32(0), factor, 1, [k.group_id()], |_, [sum]| [sum + other]);
        k.when(sum.lt(k.u32(1 << 30)), || y.store(at, sum));
    })
}

fn words(of: impl Iterator<Item = u32>) -> Vec<u8> {
    of.flat_map(u32::to_le_bytes).collect()
}

#[test]
fn segments_run_as_they_did_alone() {
    let kernels = [
        scale("one", Scalar::U32, 32, Some(3)),
        scale("one", Scalar::F32, 40, None),
        scale("other", Scalar::U32, 48, Some(2)),
    ];
    let workgroups = [2, 1, 3];
    let launch = |number: usize| Launch {
        groups: workgroups[number],
        params: vec![number as u32 + 2],
        buffers: vec![
            words((0..32 * workgroups[number]).map(|i| 7 * i + number as u32)),
            vec![0xA5; 4 * 32 * 3],
        ],
        fuel: u64::MAX,
    };
    let buffers = [[0, 1], [2, 3], [4, 5]];
    let segments =
        [0, 1, 2].map(|i| Segment { kernel: &kernels[i], workgroups: workgroups[i], buffers: &buffers[i] });
    let Joined { kernel: joined, buffers } = join(&segments);
    assert_eq!(buffers, [0, 1, 2, 3, 4, 5]);
    assert_eq!(verify(&joined), [], "{joined}");
    assert_eq!(early_objects(&joined).len(), 1, "others wait before all else: {joined}");
    assert_eq!(parse(&joined.to_string()).as_ref(), Ok(&joined));
    assert_eq!((&joined.name[..], joined.resident), ("one_and_other", Some(2)));
    let shared: Vec<_> =
        joined.objects.iter().filter(|object| matches!(object.space, Space::Shared { .. })).collect();
    assert_eq!(shared.len(), 2, "overlaid: {shared:?}");
    assert!(shared.iter().any(|object| object.space == Space::Shared { len: 48 }));

    let mut alone: Vec<Launch> = (0..3).map(launch).collect();
    let mut together = Launch {
        groups: workgroups.iter().sum(),
        params: alone.iter().flat_map(|launch| launch.params.clone()).collect(),
        buffers: alone.iter().flat_map(|launch| launch.buffers.clone()).collect(),
        fuel: u64::MAX,
    };
    for (kernel, launch) in kernels.iter().zip(&mut alone) {
        run(kernel, launch).expect("a segment");
    }
    for caps in [Caps::ALL, Caps::NONE] {
        let mut together = together.clone();
        run(&legalize(&joined, &caps), &mut together).expect("joined");
        let expected: Vec<_> = alone.iter().flat_map(|launch| launch.buffers.clone()).collect();
        assert_eq!(together.buffers, expected, "{caps:?}");
    }
    // A workgroup more is one more of the last segment, and finds nothing to read.
    together.groups += 1;
    assert!(run(&joined, &mut together).is_err());
}

/// What is only read is there once, if it is of one type.
#[test]
fn equal_buffers_are_one_object() {
    let reads = |elem: Scalar| {
        kernel("reads", 32, |k| {
            let (x, y) = (k.read("x", elem), k.read_write("y", Scalar::U32));
            y.store(k.local_id(), x.load(k.local_id()).cast(Scalar::U32) + y.load(k.local_id()));
        })
    };
    let kernels = [Scalar::U32, Scalar::U32, Scalar::F32].map(reads);
    let all = [[7, 1], [7, 1], [7, 2]];
    let segments = [0, 1, 2].map(|i| Segment { kernel: &kernels[i], workgroups: 1, buffers: &all[i] });
    let Joined { kernel, buffers } = join(&segments);
    assert_eq!(verify(&kernel), [], "{kernel}");
    assert_eq!(buffers, [7, 1, 1, 7, 2]);
    let names: Vec<&str> = kernel.objects.iter().map(|object| &object.name[..]).collect();
    assert_eq!(names, ["x_0", "y_0", "y_1", "x_2", "y_2"]);
}

/// Every operation, as it stands in random kernels.
#[test]
fn random_kernels_stay_valid() {
    let mut count = 0;
    for seed in 0..40 {
        let kernels = [seed, seed + 100].map(|seed| super::super::random::random_kernel(seed, 30).0);
        if kernels[0].workgroup == kernels[1].workgroup {
            let buffers: [Vec<u32>; 2] =
                kernels.each_ref().map(|kernel| (0..addressed(kernel).count() as u32).collect());
            let segments =
                [0, 1].map(|i| Segment { kernel: &kernels[i], workgroups: 2, buffers: &buffers[i] });
            let joined = join(&segments).kernel;
            assert_eq!(verify(&joined), [], "{joined}");
            count += 1;
        }
    }
    assert!(count > 10, "{count} pairs of like workgroups");
}

#[test]
#[should_panic(expected = "sizes of workgroups differ")]
fn workgroups_of_unlike_size_are_a_bug() {
    let [a, b] = [32, 64].map(|workgroup| kernel("k", workgroup, |_| {}));
    join(&[&a, &b].map(|kernel| Segment { kernel, workgroups: 1, buffers: &[] }));
}
