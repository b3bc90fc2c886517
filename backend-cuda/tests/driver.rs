//! A machine over the driver. What begins with `device_` and `loss_` runs on the GPU of this machine if it
//! has one, and is left out, with a line that says so, if not; the tests at the end run all of it on a
//! stand-in for the driver.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/fake.rs"]
mod fake;
#[path = "driver/on_fake_driver.rs"]
mod on_fake_driver;

use std::sync::Arc;

use unisonic_cache::Cache;
use unisonic_core::kir::build::kernel;
use unisonic_core::kir::{Kernel, Scalar, verify};
use unisonic_core::launch::Workgroups;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::plan::Rows;
use unisonic_cuda::driver::{Buffer, CudaMachine, NoCuda, OpenOptions, Without, enumerate, open};
use unisonic_gpu::machine::{CompileCounts, Dispatch, Machine, MachineError, Span, Times, Work};

/// The first GPU, or none and a line that says so.
fn machine(what: &str) -> Option<CudaMachine> {
    machine_with(what, OpenOptions::default())
}

fn machine_with(what: &str, options: OpenOptions) -> Option<CudaMachine> {
    match open(0, options) {
        Ok(machine) => Some(machine),
        Err(error @ (NoCuda::NoLibrary | NoCuda::NoDevice)) => {
            assert!(!fake::is_child(), "{error}");
            fake::skip(what, "no CUDA device");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn verified(kernel: Kernel) -> Kernel {
    assert_eq!(verify(&kernel), [], "{kernel}");
    kernel
}

/// y\[i\] = 2 x\[i\] for i < n.
fn double() -> Kernel {
    verified(kernel("double", 32, |k| {
        let n = k.param("n", Scalar::U32);
        let (x, y) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let at = k.group_id() * 32 + k.local_id();
        k.when(at.lt(n), || y.store(at, x.load(at) * 2));
    }))
}

/// y\[i\] = x\[i\] + c for i < n.
fn add() -> Kernel {
    verified(kernel("add", 32, |k| {
        let (n, c) = (k.param("n", Scalar::U32), k.param("c", Scalar::U32));
        let (x, y) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let at = k.group_id() * 32 + k.local_id();
        k.when(at.lt(n), || y.store(at, x.load(at) + c));
    }))
}

/// y\[g\] = g + c for each workgroup g.
fn number_groups() -> Kernel {
    verified(kernel("number_groups", 32, |k| {
        let (c, y) = (k.param("c", Scalar::U32), k.write("y", Scalar::U32));
        k.when(k.local_id().eq(k.u32(0)), || y.store(k.group_id(), k.group_id() + c));
    }))
}

/// y\[at\] = 1, wherever that is.
fn far_store() -> Kernel {
    verified(kernel("far_store", 32, |k| {
        let (at, y) = (k.param("at", Scalar::U32), k.write("y", Scalar::U32));
        k.when(k.local_id().eq(k.u32(0)), || y.store(at, k.u32(1)));
    }))
}

/// y\[i\] = x\[31 - i\] by way of the end of more shared memory than a kernel may declare by itself.
fn turn_around() -> Kernel {
    const WORDS: u32 = 99 * 256;
    verified(kernel("turn_around", 32, |k| {
        let (x, y) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let shared = k.shared("s", Scalar::U32, WORDS);
        let id = k.local_id();
        shared.store(id + (WORDS - 32), x.load(id));
        k.barrier();
        y.store(id, shared.load(k.u32(WORDS - 1) - id));
    }))
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

fn span(buffer: &Buffer, offset_bytes: u64, len: usize) -> Span<CudaMachine> {
    Span { buffer: buffer.clone(), offset_bytes, len_bytes: 4 * len as u64 }
}

fn dispatch(
    machine: &CudaMachine,
    kernel: &Kernel,
    spans: Vec<Span<CudaMachine>>,
    params: &[u32],
    workgroups: Workgroups,
) -> Dispatch<CudaMachine> {
    let kernel = machine.compile(kernel).unwrap();
    Dispatch { kernel, spans, params: params.to_vec(), workgroups }
}

const NO_TILES: TileCounts = TileCounts { all: 0, outputs: 0 };

/// z = 2 x + c over 1000 words, in two launches; gives z and the first ten words of 2 x.
fn two_launches(machine: &CudaMachine, c: u32) -> Work<CudaMachine> {
    let [x, y, z] = ["x", "y", "z"].map(|what| machine.allocate(4500, what).unwrap());
    let fixed = Workgroups::Fixed(32);
    Work {
        dispatches: vec![
            dispatch(machine, &double(), vec![span(&x, 256, 1000), span(&y, 0, 1000)], &[1000], fixed),
            dispatch(machine, &add(), vec![span(&y, 0, 1000), span(&z, 256, 1000)], &[1000, c], fixed),
        ],
        inputs: span(&x, 256, 1000),
        results: vec![span(&z, 256, 1000), span(&y, 0, 10)],
    }
}

/// Runs [`two_launches`] some times with other inputs.
fn runs_of_two_launches(machine: &CudaMachine) {
    let mut recording = machine.record(&two_launches(machine, 7)).unwrap();
    for round in 0..3 {
        let inputs: Vec<u32> = (0..1000_u32).map(|at| at.wrapping_mul(0x9E37_79B9) + round).collect();
        let mut results = vec![0; 4 * 1010];
        machine.run(&mut recording, &bytes(&inputs), NO_TILES, &mut results).unwrap();
        let doubled: Vec<u32> = inputs.iter().map(|&x| x.wrapping_mul(2)).collect();
        let sums = doubled.iter().map(|&y| y.wrapping_add(7));
        let expected: Vec<u32> = sums.chain(doubled[..10].iter().copied()).collect();
        assert_eq!(words(&results), expected, "round {round}");
    }
}

#[test]
fn device_says_what_it_is() {
    let options = OpenOptions { multiprocessors: Some(20), ..OpenOptions::default() };
    let Some(machine) = machine_with("what a device is", options) else { return };
    let found = enumerate().unwrap();
    assert_eq!(machine.found(), &found[0]);
    println!("{:?}", found[0]);
    assert_eq!((machine.info().id, machine.info().name), ("cuda:0".to_owned(), found[0].name.clone()));
    let hardware = machine.hardware();
    assert_eq!(hardware.multiprocessors, found[0].multiprocessors.min(20));
    assert!(hardware.shared_len_bytes <= 99 * 1024);
    let free = machine.free_bytes().unwrap();
    assert!(free > 0 && free <= found[0].memory_len_bytes, "{free}");
    let count = found.len() as u32;
    assert_eq!(open(count, OpenOptions::default()).err(), Some(NoCuda::NoSuchDevice { index: count, count }));
}

#[test]
fn device_runs_a_recording_again_with_other_inputs() {
    let Some(machine) = machine("recordings") else { return };
    runs_of_two_launches(&machine);
}

#[test]
fn device_runs_without_what_it_has() {
    let without = Without { dependent_launches: true, ..Without::default() };
    let options = OpenOptions { without, ..OpenOptions::default() };
    let Some(machine) = machine_with("launches that wait for the end of those before them", options) else {
        return;
    };
    runs_of_two_launches(&machine);
}

#[test]
fn device_runs_as_many_workgroups_as_there_are_tiles() {
    let Some(machine) = machine("launches per tile") else { return };
    let [x, all, outputs] = ["x", "all", "outputs"].map(|what| machine.allocate(1024, what).unwrap());
    machine.upload(&outputs, 0, &bytes(&[9; 256])).unwrap();
    let numbers = |y: &Buffer, rows, count, c| {
        let workgroups = Workgroups::PerTile(rows, count);
        dispatch(&machine, &number_groups(), vec![span(y, 0, 256)], &[c], workgroups)
    };
    let work = Work {
        dispatches: vec![
            dispatch(
                &machine,
                &add(),
                vec![span(&x, 0, 256), span(&all, 0, 256)],
                &[256, 0],
                Workgroups::Fixed(8),
            ),
            numbers(&all, Rows::All, 3, 100),
            numbers(&outputs, Rows::Outputs, 2, 200),
        ],
        inputs: span(&x, 0, 256),
        results: vec![span(&all, 0, 256), span(&outputs, 0, 256)],
    };
    let mut recording = machine.record(&work).unwrap();
    // What was numbered before stays where nothing is numbered.
    for (tiles, numbered) in [((5, 1), [15, 2]), ((2, 0), [6, 2]), ((0, 4), [0, 8])] {
        let inputs: Vec<u32> = (0..256).map(|at| at + 1000).collect();
        let mut results = vec![0; 2048];
        let tiles = TileCounts { all: tiles.0, outputs: tiles.1 };
        machine.run(&mut recording, &bytes(&inputs), tiles, &mut results).unwrap();
        let expected_all = (0..256).map(|at| at + if at < numbered[0] { 100 } else { 1000 });
        let expected_outputs = (0..256).map(|at| if at < numbered[1] { at + 200 } else { 9 });
        assert_eq!(words(&results), expected_all.chain(expected_outputs).collect::<Vec<u32>>(), "{tiles:?}");
    }
}

#[test]
fn device_memory_ends_at_the_limit() {
    let options = OpenOptions { memory_limit_bytes: Some(1 << 20), ..OpenOptions::default() };
    let Some(machine) = machine_with("the limit of memory", options) else { return };
    let half = machine.allocate(1 << 19, "half").unwrap();
    let error = machine.allocate((1 << 19) + 1, "a bit too much").err();
    assert!(
        matches!(&error, Some(MachineError::OutOfMemory { what, needed_bytes: 524_289, free_bytes: Some(524_288) })
            if what == "a bit too much"),
        "{error:?}"
    );
    let rest = machine.allocate(1 << 19, "the rest").unwrap();
    assert!(machine.allocate(1, "a byte").is_err());
    assert_eq!(machine.free_bytes(), Some(0));
    let again = half.clone();
    drop(half);
    assert!(machine.allocate(1, "a byte").is_err(), "a handle is left");
    drop((again, rest));
    machine.allocate(1 << 20, "all").unwrap();
    machine.allocate(0, "nothing").unwrap();
}

#[test]
fn device_memory_runs_out_and_the_machine_goes_on() {
    let Some(machine) = machine("memory that runs out") else { return };
    for len_bytes in [1 << 50, u64::MAX, machine.found().memory_len_bytes + 1] {
        let error = machine.allocate(len_bytes, "too much").err();
        assert!(
            matches!(error, Some(MachineError::OutOfMemory { needed_bytes, .. }) if needed_bytes == len_bytes),
            "{error:?}"
        );
    }
    runs_of_two_launches(&machine);
}

#[test]
fn device_uploads_more_than_a_piece() {
    let Some(machine) = machine("uploads") else { return };
    let len = (37 << 20) / 4 + 3;
    let buffer = machine.allocate(4 * len as u64 + 1024, "many words").unwrap();
    let expected: Vec<u32> = (0..len as u32).map(|at| at.wrapping_mul(0x9E37_79B9)).collect();
    machine.upload(&buffer, 768, &bytes(&expected)).unwrap();
    // Small ones after large ones, and two to the same place.
    machine.upload(&buffer, 768, &bytes(&[1, 2, 3])).unwrap();
    machine.upload(&buffer, 768, &bytes(&[4, 5])).unwrap();
    machine.upload(&buffer, 0, &[]).unwrap();
    let x = machine.allocate(4, "x").unwrap();
    let work = Work { dispatches: vec![], inputs: span(&x, 0, 0), results: vec![span(&buffer, 768, len)] };
    let mut recording = machine.record(&work).unwrap();
    let mut results = vec![0; 4 * len];
    machine.run(&mut recording, &[], NO_TILES, &mut results).unwrap();
    let found = words(&results);
    assert_eq!(found[..3], [4, 5, 3]);
    assert!(found[3..] == expected[3..]);
    let error = machine.upload(&buffer, 1024 + 4 * len as u64, &[0; 64]).err();
    assert!(matches!(error, Some(MachineError::Driver { .. })), "{error:?}");
}

#[test]
fn device_gives_kernels_99_kib_of_shared_memory() {
    let Some(machine) = machine("shared memory") else { return };
    if machine.hardware().shared_len_bytes < 99 * 1024 {
        return fake::skip("shared memory", "the GPU has less than 99 KiB");
    }
    let [x, y] = ["x", "y"].map(|what| machine.allocate(128, what).unwrap());
    let spans = vec![span(&x, 0, 32), span(&y, 0, 32)];
    let work = Work {
        dispatches: vec![dispatch(&machine, &turn_around(), spans, &[], Workgroups::Fixed(1))],
        inputs: span(&x, 0, 32),
        results: vec![span(&y, 0, 32)],
    };
    let mut results = vec![0; 128];
    let inputs: Vec<u32> = (0..32).collect();
    let mut recording = machine.record(&work).unwrap();
    machine.run(&mut recording, &bytes(&inputs), NO_TILES, &mut results).unwrap();
    assert_eq!(words(&results), (0..32).rev().collect::<Vec<u32>>());
}

#[test]
fn device_tells_why_it_does_not_take_a_kernel() {
    let Some(machine) = machine("kernels that are not taken") else { return };
    let error = machine.compile(&Kernel { name: "not a name".to_owned(), ..double() }).err().unwrap();
    println!("{error}");
    let text = error.to_string();
    assert!(matches!(error, MachineError::Kernel { .. }), "{text}");
    for part in ["`not a name`", "CUDA_ERROR_INVALID_PTX (218)", "ptxas", "line 5"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    runs_of_two_launches(&machine);
}

#[test]
fn device_refuses_launches_that_do_not_fit_the_kernel() {
    let (Some(machine), Some(other)) = (machine("launches that do not fit"), machine("another machine"))
    else {
        return;
    };
    let x = machine.allocate(4096, "x").unwrap();
    let refused = |change: &dyn Fn(&mut Work<CudaMachine>), expected: &str| {
        let mut work = two_launches(&machine, 1);
        change(&mut work);
        let error = machine.record(&work).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected), "{expected}: {error}");
    };
    refused(
        &|work| drop(work.dispatches[1].spans.pop()),
        "takes 2 buffers and 2 parameters, and got 1 and 2",
    );
    refused(&|work| work.dispatches[0].params.push(1), "takes 2 buffers and 1 parameters, and got 2 and 2");
    refused(&|work| work.dispatches[0].spans[0] = span(&x, 0, 1025), "not in a buffer of 4096 bytes");
    refused(&|work| work.dispatches[0].spans[0] = span(&x, u64::MAX - 255, 64), "not in a buffer");
    refused(&|work| work.dispatches[0].spans[0] = span(&x, 16, 1), "multiple of 256");
    refused(&|work| work.inputs = span(&x, 4096, 1), "recording the inputs");
    refused(&|work| work.results[1] = span(&x, 4096, 1), "recording the results");
    let buffer = other.allocate(4096, "x").unwrap();
    refused(&|work| work.dispatches[0].spans[0] = span(&buffer, 0, 1), "another machine's");
    let kernel = other.compile(&double()).unwrap();
    refused(&|work| work.dispatches[0].kernel = kernel.clone(), "another machine's");
    let mut recording = machine.record(&two_launches(&machine, 1)).unwrap();
    for (inputs, results) in [(3999, 4040), (4001, 4040), (4000, 4036), (4000, 0)] {
        let error = machine.run(&mut recording, &vec![0; inputs], NO_TILES, &mut vec![0; results]).err();
        assert!(matches!(error, Some(MachineError::Driver { .. })), "{error:?}");
    }
    machine.run(&mut recording, &[0; 4000], NO_TILES, &mut [0; 4040]).unwrap();
}

#[test]
fn device_compiles_nothing_at_a_second_start() {
    let folder = tempfile::tempdir().unwrap();
    let opened = |name: &str| {
        let cache = Arc::new(Cache::new(folder.path().join(name), 1 << 20));
        machine_with("kernels that are kept", OpenOptions { cache: Some(cache), ..OpenOptions::default() })
    };
    let counts = |compiled, kept| CompileCounts { compiled, kept };
    for expected in [counts(2, 0), counts(0, 2), counts(0, 2)] {
        let Some(machine) = opened("cache") else { return };
        runs_of_two_launches(&machine);
        assert_eq!(machine.compile_counts(), expected);
    }
    // Damaged, and whole but of no use to the driver.
    let cache = Cache::new(folder.path().join("cache"), 1 << 20);
    assert_eq!(cache.list().unwrap().len(), 2);
    for entry in std::fs::read_dir(folder.path().join("cache/cuda-kernels")).unwrap() {
        std::fs::write(entry.unwrap().path(), "x").unwrap();
    }
    for expected in [counts(2, 0), counts(0, 2)] {
        let machine = opened("cache").unwrap();
        runs_of_two_launches(&machine);
        assert_eq!(machine.compile_counts(), expected);
    }
    // Nothing can be written: the cache would be in a file.
    std::fs::write(folder.path().join("file"), "").unwrap();
    let machine = opened("file/cache").unwrap();
    runs_of_two_launches(&machine);
    assert_eq!(machine.compile_counts(), counts(2, 0));
    let error = machine.compile(&Kernel { name: "not a name".to_owned(), ..double() }).err().unwrap();
    assert!(error.to_string().contains("ptxas"), "{error}");
}

/// The stand-in ends the process if something is left, freed twice or used after it was freed.
#[test]
fn device_handles_go_in_any_order() {
    for order in 0..4 {
        let Some(machine) = machine("the order of handles") else { return };
        let work = two_launches(&machine, 3);
        let recording = machine.record(&work).unwrap();
        machine.upload(&work.inputs.buffer, 0, &[1; 4000]).unwrap();
        match order {
            0 => drop((machine, work, recording)),
            1 => drop((recording, work, machine)),
            2 => drop((work, machine, recording)),
            _ => {
                drop(machine);
                std::thread::spawn(move || drop((recording, work))).join().unwrap();
            }
        }
    }
}

#[test]
fn device_goes_from_thread_to_thread() {
    let Some(machine) = machine("threads") else { return };
    runs_of_two_launches(&machine);
    let machine = std::thread::spawn(move || {
        runs_of_two_launches(&machine);
        machine
    });
    runs_of_two_launches(&machine.join().unwrap());
}

#[test]
fn device_times_each_launch() {
    let Some(machine) = machine("times of launches") else { return };
    let mut work = two_launches(&machine, 7);
    for workgroups in [Workgroups::Fixed(32), Workgroups::PerTile(Rows::All, 8)] {
        work.dispatches[1].workgroups = workgroups;
        let tiles = TileCounts { all: 4, outputs: 0 };
        let times = machine.time(&work, &[1; 4000], tiles, 3).unwrap().unwrap();
        println!("{times:?}");
        assert_eq!(times.len(), 3);
        for Times { whole_ns, empty_ns, launches_ns } in times {
            assert_eq!(launches_ns.len(), 2);
            if fake::is_child() {
                // The stand-in takes a microsecond for each.
                assert_eq!((whole_ns, empty_ns, &launches_ns[..]), (2000, 0, &[1000, 1000][..]));
            }
            assert!(whole_ns > 0 && launches_ns.iter().all(|&ns| ns > 0));
        }
    }
    // What was recorded is not disturbed.
    runs_of_two_launches(&machine);
}

fn is_lost<T>(result: Result<T, MachineError>) -> bool {
    match result {
        Err(MachineError::Lost { reason, .. }) => reason.starts_with("CUDA_ERROR_ILLEGAL_ADDRESS"),
        _ => false,
    }
}

/// In a process of its own, since what the GPU does for this one is at an end after it.
#[test]
fn child_illegal_access() {
    if !fake::is_child() {
        return;
    }
    let machine = machine("").unwrap();
    let second =
        std::env::var_os("FAKE_CUDA_STRICT").is_none().then(|| open(0, OpenOptions::default()).unwrap());
    let mut good = machine.record(&two_launches(&machine, 1)).unwrap();
    let (kernel, x) = (machine.compile(&double()).unwrap(), machine.allocate(4096, "x").unwrap());
    let far = vec![span(&x, 0, 1)];
    let work = Work {
        dispatches: vec![dispatch(&machine, &far_store(), far, &[u32::MAX / 2], Workgroups::Fixed(1))],
        inputs: span(&x, 0, 1),
        results: vec![span(&x, 0, 1)],
    };
    let mut bad = machine.record(&work).unwrap();
    let mut results = [5; 4];
    let error = machine.run(&mut bad, &[0; 4], NO_TILES, &mut results).unwrap_err();
    println!("{error}");
    assert_eq!(results, [5; 4], "nothing is answered");
    assert!(is_lost(Err::<(), _>(error)));
    for _ in 0..2 {
        assert!(is_lost(machine.run(&mut bad, &[0; 4], NO_TILES, &mut results)));
        assert!(is_lost(machine.run(&mut good, &[0; 4000], NO_TILES, &mut [0; 4040])));
        assert!(is_lost(machine.allocate(16, "x")));
        assert!(is_lost(machine.upload(&x, 0, &[1])));
        assert!(is_lost(machine.compile(&double())));
        assert!(is_lost(machine.record(&work)));
        assert_eq!(machine.free_bytes(), None);
    }
    // The context is the process's: no other machine answers either.
    if let Some(second) = second {
        assert!(is_lost(second.allocate(16, "x")));
        assert!(is_lost(second.compile(&double())));
    }
    drop((machine, good, kernel, x, bad, work));
    println!("the process lives");
}

#[test]
fn loss_is_for_ever_and_the_process_lives() {
    if machine("an illegal address").is_none() {
        return;
    }
    let child = fake::run(&["child_illegal_access"], None, &[]);
    assert!(child.is_success && child.text.contains("the process lives"), "{}", child.text);
}

/// Prints what opening says.
#[test]
fn child_opens() {
    if !fake::is_child() {
        return;
    }
    let texts = [enumerate().map(|_| ()), open(0, OpenOptions::default()).map(|_| ())]
        .map(|result| result.map_or_else(|error| format!("{error:?}: {error}"), |()| "opened".to_owned()));
    println!("[{}] [{}]", texts[0], texts[1]);
}

/// Replays what fails on a driver that does not make graphs.
#[test]
fn child_replays() {
    if fake::is_child() {
        runs_of_two_launches(&machine("").unwrap());
    }
}

/// Keeps kernels, with a linker that fails.
#[test]
fn child_keeps_kernels() {
    if fake::is_child() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::new(folder.path(), 1 << 20));
        let machine = open(0, OpenOptions { cache: Some(cache), ..OpenOptions::default() }).unwrap();
        runs_of_two_launches(&machine);
        println!("{:?}", machine.compile_counts());
    }
}

/// Memory that the driver says is damaged.
#[test]
fn child_allocates() {
    if fake::is_child() {
        let machine = machine("").unwrap();
        let errors = [(), ()].map(|()| machine.allocate(16, "x").err());
        println!("{errors:?} {:?}", machine.free_bytes());
    }
}

#[test]
fn opening_is_an_answer_on_any_machine() {
    match enumerate() {
        Ok(found) => assert!(!found.is_empty()),
        Err(error) => {
            println!("{error}");
            assert_eq!(open(0, OpenOptions::default()).err(), Some(error));
        }
    }
}
