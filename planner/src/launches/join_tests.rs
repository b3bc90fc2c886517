//! What is joined, and what is not.

use unisonic_core::kir::build::kernel;
use unisonic_core::kir::{Scalar, verify};
use unisonic_core::launch::Area;
use unisonic_core::plan::Rows;

use super::*;

/// Reads `x` and writes `y`.
fn copies(workgroup: u32) -> Kernel {
    kernel("copies", workgroup, |k| {
        let (x, y) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let at = k.group_id() * workgroup + k.local_id();
        y.store(at, x.load(at));
    })
}

fn place(offset_bytes: u64) -> Place {
    Place { area: Area::Arena, offset_bytes, len_bytes: 256 }
}

fn launch(kernel: u32, from: u64, to: u64) -> Launch {
    Launch {
        step: 0,
        kernel,
        places: vec![place(256 * from), place(256 * to)],
        params: vec![],
        workgroups: Workgroups::Fixed(2),
    }
}

/// How many launches become one, over kernels of 64, 64 and 32 invocations.
fn joined(launches: &[Launch]) -> Vec<usize> {
    let mut kernels = vec![copies(64), copies(64), copies(32)];
    let mut launches = launches.to_vec();
    join_launches(&mut kernels, &mut launches, &Hardware::SM_86);
    let used: std::collections::HashSet<u32> = launches.iter().map(|launch| launch.kernel).collect();
    assert_eq!(used.len(), kernels.len(), "kernels that nobody launches");
    launches
        .iter()
        .map(|launch| {
            let kernel = &kernels[launch.kernel as usize];
            assert_eq!(verify(kernel), []);
            assert_eq!(addressed(kernel).count(), launch.places.len());
            kernel.objects.iter().filter(|object| object.space.is_writable()).count()
        })
        .collect()
}

#[test]
fn launches_that_touch_nothing_of_each_other_are_joined() {
    assert_eq!(joined(&[launch(0, 0, 1), launch(1, 0, 2), launch(0, 0, 3)]), [3]);
    // What they read is there once.
    let mut kernels = vec![copies(64)];
    let mut launches = vec![launch(0, 5, 1), launch(0, 5, 2), launch(0, 6, 3)];
    join_launches(&mut kernels, &mut launches, &Hardware::SM_86);
    assert_eq!(launches[0].places, [5, 1, 2, 6, 3].map(|number| place(256 * number)));
    // Of each what it writes is read by the next, or the other way round, or written too.
    assert_eq!(joined(&[launch(0, 0, 1), launch(0, 1, 2)]), [1, 1]);
    assert_eq!(joined(&[launch(0, 0, 1), launch(0, 2, 0)]), [1, 1]);
    assert_eq!(joined(&[launch(0, 0, 1), launch(0, 2, 1)]), [1, 1]);
    // With one that is further back.
    assert_eq!(joined(&[launch(0, 0, 1), launch(0, 0, 2), launch(0, 1, 3)]), [2, 1]);
    assert_eq!(joined(&[launch(0, 0, 1), launch(2, 0, 2), launch(0, 0, 3)]), [1, 1, 1]);
    assert_eq!(joined(&(0..11).map(|to| launch(0, 20, to)).collect::<Vec<_>>()), [8, 3]);
}

/// A byte of both is enough.
#[test]
fn places_that_overlap_are_not_joined() {
    let mut launches = [launch(0, 0, 1), launch(0, 0, 3)];
    launches[0].places[1].len_bytes = 2 * 256;
    assert_eq!(joined(&launches), [2]);
    launches[0].places[1].len_bytes += 1;
    assert_eq!(joined(&launches), [1, 1]);
    launches[1].places[1].area = Area::Inputs;
    assert_eq!(joined(&launches), [2]);
}

#[test]
fn launches_of_unknown_or_great_size_stay_alone() {
    let mut launches = [launch(0, 0, 1), launch(0, 0, 2)];
    launches[1].workgroups = Workgroups::PerTile(Rows::All, 2);
    assert_eq!(joined(&launches), [1, 1]);
    launches[1].workgroups = Workgroups::Fixed(1 << 20);
    assert_eq!(joined(&launches), [2]);
    launches[0].workgroups = Workgroups::Fixed(1 << 20);
    assert_eq!(joined(&launches), [1, 1]);
    launches[0].workgroups = Workgroups::Fixed(2);
    launches[1].workgroups = Workgroups::Fixed(i32::MAX as u32);
    assert_eq!(joined(&launches), [1, 1]);
}

/// Launches of other layers share the kernel.
#[test]
fn equal_joins_share_a_kernel() {
    let mut kernels = vec![copies(64)];
    // Each layer reads what the one before it wrote; the last reads two places.
    let reads = [[9, 9], [1, 1], [3, 3], [5, 9]];
    let mut launches: Vec<Launch> = (0..)
        .zip(reads)
        .flat_map(|(layer, [a, b])| [launch(0, a, 2 * layer), launch(0, b, 2 * layer + 1)])
        .collect();
    join_launches(&mut kernels, &mut launches, &Hardware::SM_86);
    assert_eq!((launches.len(), kernels.len(), &kernels[0].name[..]), (4, 2, "copies_x2"));
}
