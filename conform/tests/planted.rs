//! Planted faults are found, made small, and fail again from their files: on the interpreter, and on each Vulkan device that
//! there is.

use unisonic_conform::groups::{self, Event};
use unisonic_conform::planted::{Faulty, Planted};
use unisonic_conform::replay::Replay;
use unisonic_conform::suite::{Suite, Task};
use unisonic_conform::{Kernels, Opened, Outcome, Row, Variant, open};
use unisonic_devices::DeviceName;

/// The first group that has cases for a fault, and how many operations it takes to show it.
fn expected(fault: Planted) -> (&'static str, usize) {
    match fault {
        Planted::WrongLane => ("op/shuffle_xor", 1),
        // A product, and a sum.
        Planted::FusedMultiplyAdd => ("template/soft_cap", 2),
        // In a loop, in which a race is one with the turn before.
        Planted::DroppedBarrier => ("op/barrier", 2),
        Planted::AddByOneUlp => ("op/fadd", 1),
        Planted::IgnoredOffset => ("op/copy_async", 2),
    }
}

fn kernels(device: DeviceName) -> Option<Box<dyn Kernels>> {
    match open(device, Variant::AsItIs) {
        Ok(Opened::Kernels(kernels)) => Some(kernels),
        _ => None,
    }
}

/// Rows of a group, and the texts of what failed.
fn run(group: &str, kernels: &mut dyn Kernels) -> (Vec<Row>, Vec<String>) {
    let variant = "as-it-is".to_owned();
    let task = Task { group: group.to_owned(), variant, suite: Suite::Quick, skip: 0 };
    let (mut rows, mut texts) = (vec![], vec![]);
    let group = unisonic_conform::suite::Group::from_name(group).expect("a group");
    groups::run(group, &task, kernels, &mut |event| match event {
        Event::Row(row) => rows.push(row),
        Event::Replay { text, .. } => texts.push(text),
        Event::Begin(_) | Event::Reducing(_) => {}
    });
    (rows, texts)
}

fn is_found(fault: Planted, device: DeviceName) {
    let Some(right) = kernels(device) else { return };
    let (group, operations) = expected(fault);
    let what = format!("{} on {}", fault.name(), right.facts().name);
    let mut wrong = Faulty::new(right, fault);
    let (rows, texts) = run(group, &mut wrong);
    let failed = rows.iter().filter(|row| row.outcome.is_failure()).count();
    assert!(failed > 0, "{what} is not found: {rows:?}");
    let text = texts.first().unwrap_or_else(|| panic!("{what} has no file"));
    let replay = Replay::parse(text).unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert_eq!(replay.text(), *text, "{what}");
    let launch = &replay.launch;
    assert!(launch.groups * replay.program.workgroup() <= 64, "{what}\n{text}");
    assert!(launch.len_bytes() <= 16 << 10, "{what}\n{text}");
    let size = replay.note("size").unwrap_or_default();
    let found: usize = size.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(usize::MAX);
    assert!(found <= operations, "{what}: {size}\n{text}");
    assert!(replay.run(&mut wrong).is_failure(), "{what}\n{text}");
    let mut right = kernels(device).expect("it was opened before");
    assert_eq!(replay.run(&mut *right), Outcome::Passed, "{what}\n{text}");
}

#[test]
fn on_the_interpreter() {
    for fault in Planted::ALL {
        is_found(fault, DeviceName::Interpreter);
    }
}

#[test]
fn on_a_vulkan_device() {
    if kernels(DeviceName::Vulkan(0)).is_none() {
        eprintln!("skipped: planted faults on a Vulkan device (there is none)");
        return;
    }
    // A kernel that only fails as a whole takes hundreds of compilations to make smaller.
    let is_full = std::env::var("UNISONIC_TIER").as_deref() == Ok("full");
    let quick = [Planted::WrongLane, Planted::AddByOneUlp];
    if !is_full {
        eprintln!("skipped: three of five planted faults on a Vulkan device (runs in tier full)");
    }
    for fault in if is_full { &Planted::ALL[..] } else { &quick } {
        is_found(*fault, DeviceName::Vulkan(0));
    }
}

/// What is planted nowhere changes nothing: a tool that finds faults everywhere is worth nothing either.
#[test]
fn without_a_fault_nothing_is_found() {
    for fault in Planted::ALL {
        let mut right = kernels(DeviceName::Interpreter).expect("the interpreter");
        let (rows, texts) = run(expected(fault).0, &mut *right);
        assert!(rows.iter().all(|row| !row.outcome.is_failure()), "{rows:?}");
        assert!(rows.iter().any(|row| row.outcome == Outcome::Passed), "{rows:?}");
        assert!(texts.is_empty());
    }
}

#[test]
fn the_interpreter_has_no_limits() {
    let mut right = kernels(DeviceName::Interpreter).expect("the interpreter");
    let (rows, _) = run("limits/all", &mut *right);
    assert!(rows.len() > 10 && rows.iter().all(|row| row.outcome == Outcome::Passed), "{rows:#?}");
}
