//! Golden tokens across backends: at every step of a sequence the logits of a GPU equal those of the CPU, bit for bit.
//!
//! Software drivers read their settings once, so each is tried in a process of its own: a test starts this program again with the
//! driver's environment, and [`on_the_device_of_this_process`] does the work. GPUs that there are run in [`on_gpus`].
//!
//! Each piece of work prints its seconds, and what it costs in processor time. In the tier `ci`, a cost that has grown by
//! half is a failure: `tests/data/costs.toml` says what they were, and what they are measured in.
//!
//! Start reading at [`cases`], then [`compare`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Tier;
use common::costs::Costs;
use sha2::{Digest as _, Sha256};
use unisonic_core::plan::Device;
use unisonic_devices::DeviceName;
use unisonic_engine::EngineOptions;
use unisonic_gpu::device::GpuDevice;
use unisonic_gpu::pacing::SUBMISSION_LIMIT;
use unisonic_planner::launches::Lowering;
use unisonic_vulkan::driver::{DeviceKind, OpenOptions, VulkanMachine, Without, enumerate, open};

/// Says which driver the process is for.
const DRIVER: &str = "GOLDEN_TOKENS_DRIVER";

/// What the tiny models are made for.
const CONTEXT_LEN: u32 = 512;
/// All numbers of rows that launches are made for (`gpu/src/shapes.rs`), in sequences of 512 tokens with those that are generated. Most chunks
/// have fewer rows than that, so that some only fill up.
const CHUNKS: [&[usize]; 3] = [&[1, 2, 3, 5, 9, 17, 33, 65, 97, 129, 147], &[193, 257], &[508]];
/// The first few of them.
const FEW: [&[usize]; 1] = [&[1, 2, 3]];
/// Only one row at a time.
const ONE: [&[usize]; 1] = [&[1]];

const QUANTS: [&str; 11] =
    ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"];

/// Models that need no kernels beside those of others, which have to be compiled again all the same: left out of `ci`.
const LIKE_OTHERS: [&str; 3] = ["llama-moe", "qwen3moe", "phi3"];

fn fixtures() -> impl Iterator<Item = &'static str> {
    let is_in = |name: &&str| common::tier() == Tier::Full || !LIKE_OTHERS.contains(name);
    common::ARCHITECTURES.into_iter().filter(is_in)
}

/// A way to open a device that changes no bit of a result.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    set: fn(&mut OpenOptions),
}

const AS_IT_IS: Variant = Variant { name: "as it is", set: |_| () };
/// No more fit into an allocation, so that the weights of SmolLM2-135M need several.
const ALLOCATION_LIMIT_BYTES: u64 = 48 << 20;
const SMALL_ALLOCATIONS: Variant = Variant {
    name: "small allocations",
    set: |options| options.allocation_limit_bytes = Some(ALLOCATION_LIMIT_BYTES),
};
/// Less than a device has. With the last a launch counts as slow, so that few share a submission.
const VARIANTS: [Variant; 5] = [
    Variant { name: "no subgroups", set: |options| options.without.subgroups = true },
    Variant { name: "no dot products", set: |options| options.without.integer_dot = true },
    Variant { name: "no matrices", set: |options| options.without.matrices = true },
    Variant {
        name: "nothing",
        set: |options| {
            options.without = Without { subgroups: true, integer_dot: true, matrices: true };
        },
    },
    Variant {
        name: "launches of 50 ms",
        set: |options| options.launch_time = Some(Duration::from_millis(50)),
    },
];

/// What is compared.
struct Case {
    model: PathBuf,
    variant: Variant,
    /// For each sequence the rows that are run at a time.
    sequences: Vec<Vec<usize>>,
    /// Tokens that are generated after each.
    generated: usize,
}

impl Case {
    fn new(model: PathBuf, variant: Variant, sequences: &[&[usize]], generated: usize) -> Self {
        let sequences = sequences.iter().map(|chunks| chunks.to_vec()).collect();
        Self { model, variant, sequences, generated }
    }

    fn model_name(&self) -> String {
        self.model.file_stem().unwrap().to_string_lossy().into_owned()
    }
}

/// Pieces of work for a driver, by name.
fn cases(driver: &str) -> Vec<(&'static str, Vec<Case>)> {
    let tiny = || QUANTS.map(common::quant).into_iter().chain(fixtures().filter_map(common::fixture));
    let of_tiny = |sequences: &[&[usize]]| {
        tiny().map(|model| Case::new(model, AS_IT_IS, sequences, 4)).collect::<Vec<_>>()
    };
    let first = common::quant("Q4_0");
    let variants = |sequences: &[&[usize]]| {
        let of = |&variant: &Variant| Case::new(first.clone(), variant, sequences, 2);
        VARIANTS.iter().map(of).collect::<Vec<_>>()
    };
    let smollm2 = |sequences: &[&[usize]], generated| {
        let model = common::smollm2(Tier::Ci, "SmolLM2-135M on Vulkan devices");
        let of = |model| Case::new(model, SMALL_ALLOCATIONS, sequences, generated);
        model.map(of).into_iter().collect::<Vec<_>>()
    };
    let rows = |sequences: &[&[usize]]| vec![Case::new(first.clone(), AS_IT_IS, sequences, 4)];
    if common::tier() == Tier::Full {
        let gemma3 = common::existing(common::root("models/gemma3-270m-q4_k_m.gguf"), "make test-full");
        // It takes a quarter of a minute to compile what is for chunks of more than 4 rows.
        let is_slow_to_compile = driver == "swiftshader";
        return vec![
            ("rows", rows(if is_slow_to_compile { &CHUNKS[..1] } else { &CHUNKS })),
            ("tiny models", of_tiny(&FEW)),
            ("variants", variants(if is_slow_to_compile { &FEW } else { &CHUNKS[..1] })),
            ("SmolLM2-135M", smollm2(&[&[100, 100, 56]], 256)),
            ("Gemma 3 270M", vec![Case::new(gemma3, AS_IT_IS, &[&[100, 28]], 64)]),
        ];
    }
    match driver {
        "swiftshader" => {
            vec![("rows", rows(&[&[1, 3]])), ("SmolLM2-135M", smollm2(&[&[4]], 4))]
        }
        // Kernels for more rows take minutes to compile.
        "llvmpipe 128" | "llvmpipe 512" => vec![("rows", rows(&FEW))],
        _ => vec![
            ("rows", rows(&CHUNKS[..1])),
            // It takes seconds to compile what is for more rows of a type with superblocks.
            ("tiny models", of_tiny(&ONE)),
            ("variants", variants(&ONE)),
            ("SmolLM2-135M", smollm2(&[&[8]], 8)),
        ],
    }
}

/// The logits after each token, as digests.
fn digests(
    device: &dyn Device,
    model: &Path,
    ids: &mut Vec<u32>,
    chunks: &[usize],
    generated: usize,
) -> Vec<[u8; 32]> {
    let chunk_rows = chunks.iter().copied().max().unwrap_or(1) as u32;
    let options = EngineOptions { chunk_rows, context_len: Some(CONTEXT_LEN), ..common::options() };
    let mut engine = common::load_with(device, model, &options);
    let prompt_len: usize = chunks.iter().sum();
    let generated = generated.min(CONTEXT_LEN as usize - prompt_len);
    if ids.is_empty() {
        *ids = common::some_ids(prompt_len, engine.plan().vocab_len);
    }
    let (mut session, mut digests, mut last) = (engine.session(), vec![], vec![]);
    let mut extend = |ids: &[u32]| {
        for row in common::extend(&mut engine, &mut session, ids) {
            let bits: Vec<u8> = row.iter().flat_map(|z| z.to_bits().to_le_bytes()).collect();
            digests.push(Sha256::digest(bits).into());
            last = row;
        }
        common::golden::argmax(&last) as u32
    };
    let mut start = 0;
    let mut next = 0;
    for len in chunks {
        next = extend(&ids[start..start + len]);
        start += len;
    }
    // Greedily; whoever comes second reads the same tokens, and would choose others only after other logits.
    for step in 0..generated {
        if ids.len() == prompt_len + step {
            ids.push(next);
        }
        next = extend(&ids[prompt_len + step..][..1]);
    }
    digests
}

/// All sequences of a case on a device and on the CPU; how many steps they have.
fn compare(device: &dyn Device, case: &Case, what: &str) -> usize {
    let cpu = unisonic_devices::open(DeviceName::Cpu, Default::default()).unwrap();
    let mut steps = 0;
    for chunks in &case.sequences {
        let mut ids = vec![];
        let found = digests(device, &case.model, &mut ids, chunks, case.generated);
        let right = digests(&*cpu, &case.model, &mut ids, chunks, case.generated);
        assert_eq!(found.len(), ids.len());
        let first = found.iter().zip(&right).position(|(found, right)| found != right);
        let model = case.model_name();
        assert_eq!(
            first, None,
            "{what}: {model}, {}, chunks of {chunks:?}: logits differ from this position on",
            case.variant.name
        );
        steps += found.len();
    }
    steps
}

fn compare_on_vulkan(index: usize, case: &Case, what: &str) -> usize {
    let mut options = OpenOptions::default();
    (case.variant.set)(&mut options);
    let machine = open(index, &options).unwrap();
    let device = GpuDevice::new(machine, Arc::new(Lowering::default()));
    let start = Instant::now();
    let steps = compare(&device, case, what);
    if options.launch_time.is_some() {
        let submitted = device.ask(VulkanMachine::submitted);
        assert!(
            submitted.most_launches > 1 && submitted.longest <= SUBMISSION_LIMIT,
            "{what}: {submitted:?}"
        );
    }
    let (model, seconds) = (case.model_name(), start.elapsed().as_secs_f64());
    common::say(&format!("  {what}: {model}, {}: {steps} steps, {seconds:.2} s", case.variant.name));
    steps
}

/// What the tests of software drivers start.
#[test]
fn on_the_device_of_this_process() {
    let Ok(driver) = std::env::var(DRIVER) else { return };
    let devices = enumerate().unwrap();
    let device = devices.iter().find(|device| device.missing.is_empty()).unwrap();
    let mut costs = Costs::new(&driver);
    for (name, cases) in cases(&driver) {
        costs.measure(name, || {
            let steps: usize = cases.iter().map(|case| compare_on_vulkan(device.index, case, &driver)).sum();
            format!("{} ({}): {} cases, {steps} steps", device.name, device.driver, cases.len())
        });
    }
    costs.check();
}

/// Runs this program again with a driver, by its manifest, and what it reads of the environment.
fn on_driver(driver: &str, manifest: &Path, environment: &[(&str, &str)]) {
    run_again(Command::new(std::env::current_exe().unwrap()), driver, manifest, environment);
}

fn run_again(mut program: Command, driver: &str, manifest: &Path, environment: &[(&str, &str)]) {
    let status = program
        .args(["--exact", "on_the_device_of_this_process", "--nocapture"])
        .env("VK_ICD_FILENAMES", manifest)
        // What it costs is to be the same on any number of processors.
        .env("LP_NUM_THREADS", "1")
        .envs(environment.iter().copied())
        .env(DRIVER, driver)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{driver}: {status}; above is why");
}

fn llvmpipe(bits: &str) {
    let what = format!("golden tokens on llvmpipe, vectors of {bits} bits");
    if !common::runs_in(Tier::Ci, &what) {
        return;
    }
    let folder = std::fs::read_dir("/usr/share/vulkan/icd.d").into_iter().flatten();
    let is_manifest =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lvp_icd"));
    match folder.map(|entry| entry.unwrap().path()).find(is_manifest) {
        Some(manifest) => {
            on_driver(&format!("llvmpipe {bits}"), &manifest, &[("LP_NATIVE_VECTOR_WIDTH", bits)])
        }
        None => common::skipped(&what, "no llvmpipe; on Debian, mesa-vulkan-drivers has it"),
    }
}

#[test]
fn llvmpipe_with_vectors_of_128_bits() {
    llvmpipe("128");
}

#[test]
fn llvmpipe_with_vectors_of_256_bits() {
    llvmpipe("256");
}

#[test]
fn llvmpipe_with_vectors_of_512_bits() {
    llvmpipe("512");
}

#[test]
fn swiftshader() {
    let what = "golden tokens on SwiftShader";
    let manifest = common::root(".fixtures/tools/swiftshader/vk_swiftshader_icd.json");
    match common::runs_in(Tier::Ci, what) {
        true if manifest.exists() => on_driver("swiftshader", &manifest, &[]),
        true => common::skipped(what, "scripts/fetch-swiftshader.sh fetches it"),
        false => (),
    }
}

/// Subgroups of 8, as Debian 12's llvmpipe has, and int8 matrices, which no other driver without a GPU has; it flushes subnormals.
#[test]
fn mesa_26() {
    let what = "golden tokens on Mesa 26's llvmpipe";
    let folder = common::root(".fixtures/tools/mesa");
    if !common::runs_in(Tier::Full, what) {
        return;
    }
    if !folder.join("complete").exists() {
        return common::skipped(what, "scripts/fetch-mesa.sh fetches it");
    }
    // Its C library is newer than the system's may be, and goes with its own loader of programs.
    let libraries = folder.join("usr/lib/x86_64-linux-gnu");
    let mut program = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    program.arg("--library-path").arg(&libraries).arg(std::env::current_exe().unwrap());
    run_again(program, "mesa 26", &folder.join("usr/share/vulkan/icd.d/lvp_icd.json"), &[]);
}

/// GPUs, by Vulkan and by CUDA: the tiny models in full, and SmolLM2-135M where it is there.
#[test]
fn on_gpus() {
    let mut costs = Costs::new("gpu");
    let vulkan = enumerate().unwrap_or_default();
    let vulkan =
        vulkan.iter().filter(|device| device.missing.is_empty() && device.kind != DeviceKind::Software);
    let cuda = unisonic_cuda::driver::enumerate().unwrap_or_default();
    let cuda = cuda.iter().filter(|device| device.target(Default::default()).is_ok());
    let mut cases: Vec<Case> =
        QUANTS.map(common::quant).into_iter().map(|model| Case::new(model, AS_IT_IS, &CHUNKS, 32)).collect();
    cases.extend(VARIANTS.iter().map(|&variant| Case::new(common::quant("Q4_0"), variant, &CHUNKS, 32)));
    let smollm2 = common::smollm2(Tier::Ci, "SmolLM2-135M on GPUs");
    cases.extend(smollm2.map(|model| Case::new(model, AS_IT_IS, &[&[100, 100, 56]], 256)));
    let mut devices = 0;
    for device in vulkan {
        costs.measure(&format!("vulkan:{}", device.index), || {
            let steps: usize =
                cases.iter().map(|case| compare_on_vulkan(device.index, case, &device.name)).sum();
            format!("{} ({}): {} cases, {steps} steps", device.name, device.driver, cases.len())
        });
        devices += 1;
    }
    for device in cuda {
        costs.measure(&format!("cuda:{}", device.index), || {
            let opened = unisonic_devices::open(DeviceName::Cuda(device.index), Default::default()).unwrap();
            // Variants are Vulkan's.
            let cases: Vec<&Case> = cases.iter().filter(|case| case.variant.name == AS_IT_IS.name).collect();
            let steps: usize = cases.iter().map(|case| compare(&*opened, case, &device.name)).sum();
            format!("{} (CUDA {}): {} cases, {steps} steps", device.name, device.driver, cases.len())
        });
        devices += 1;
    }
    if devices == 0 {
        common::skipped("golden tokens on GPUs", "there is none");
    }
}
