//! Everything that the other tests emit, assembled by NVIDIA's `ptxas` for each target; and the registers of
//! templates.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use support::{emit_legal, ptxas};
use unisonic_core::kir::Kernel;
use unisonic_cuda::ptx::{Target, dynamic_shared_len_bytes, emit, entry_name};
use unisonic_planner::kernels::samples::{Extent, samples};

#[test]
fn every_kernel_is_assembled() {
    let Some(ptxas) = ptxas::find() else { return };
    for target in Target::ALL {
        assemble_together(&ptxas, support::kernels(target), target);
    }
}

/// Samples of templates: in the tier `full` each for every target, else for each target in turn. Targets
/// without matrix products get those without them: on such a device these forms are chosen.
#[test]
fn samples_are_assembled() {
    const TOGETHER: usize = 32;
    let Some(ptxas) = ptxas::find() else { return };
    let full = ptxas::leaves_out_nothing("assembling each sample for every target, not for one in turn");
    let mut waiting: BTreeMap<Target, Vec<Kernel>> = BTreeMap::new();
    for (number, sample) in samples(Extent::Pairs).enumerate() {
        let kernel = Kernel { name: format!("{}_{number}", sample.kernel.name), ..sample.kernel };
        let has_matrices = kernel.to_string().contains("= mma");
        let in_turn = Target::ALL[number % Target::ALL.len()];
        let in_turn = if has_matrices && !in_turn.caps().mma32 { Target::Sm86 } else { in_turn };
        let can_run = |target: &Target| !has_matrices || target.caps().mma32;
        for target in Target::ALL.into_iter().filter(|target| *target == in_turn || full && can_run(target)) {
            let of_target = waiting.entry(target).or_default();
            of_target.push(kernel.clone());
            if of_target.len() == TOGETHER {
                assemble_together(&ptxas, std::mem::take(of_target), target);
            }
        }
    }
    for (target, kernels) in waiting.into_iter().filter(|(_, kernels)| !kernels.is_empty()) {
        assemble_together(&ptxas, kernels, target);
    }
}

/// One module for many kernels, as the assembler takes long to start.
fn assemble_together(ptxas: &Path, kernels: Vec<Kernel>, target: Target) {
    const DYNAMIC: &str = ".extern .shared .align 16 .b8 shared_memory[];\n\n";
    let texts: Vec<String> = kernels.iter().map(|kernel| emit_legal(kernel, target)).collect();
    // The newest version that one of them needs, and the declaration that several have once.
    let head = texts.iter().map(|text| text.split("\n\n").next().unwrap()).max().unwrap();
    let mut module = format!("{head}\n\n{DYNAMIC}");
    for text in &texts {
        module += &text.split_once("\n\n").unwrap().1.replace(DYNAMIC, "");
        module += "\n";
    }
    let result = ptxas::assemble(ptxas, &module, target);
    result.unwrap_or_else(|error| panic!("{}: {error}", target.name()));
}

#[test]
fn every_filetest_is_assembled() {
    let Some(ptxas) = ptxas::find() else { return };
    for file in support::filetests() {
        let text = std::fs::read_to_string(&file).unwrap();
        let (kernel, target) = (support::read(&text), support::target(&text));
        let ptx = emit(&kernel, target);
        let result = ptxas::assemble(&ptxas, &ptx, target);
        result.unwrap_or_else(|error| panic!("{}: {error}\n{ptx}", file.display()));
    }
}

/// Registers and spilled bytes of the templates stay at or below `tests/registers.txt`; `BLESS=1` rewrites
/// the file.
#[test]
fn templates_need_no_more_registers_than_before() {
    let Some(ptxas) = ptxas::find() else { return };
    let path = support::path("tests/registers.txt");
    let before = read_registers(&std::fs::read_to_string(&path).unwrap_or_default());
    let mut now = BTreeMap::new();
    for (name, kernel) in support::templates() {
        for target in [Target::Sm86, Target::Sm90] {
            let registers = registers(&ptxas, &kernel, target);
            now.insert((name.clone(), target.name().to_owned()), registers);
        }
    }
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(&path, registers_text(&now)).unwrap();
    }
    for (key, now) in &now {
        let before = before.get(key).unwrap_or_else(|| panic!("{key:?} is not in {}", path.display()));
        assert!(
            now.count <= before.count && now.spilled_len_bytes <= before.spilled_len_bytes,
            "{key:?} needs {now:?}, before {before:?}; BLESS=1 takes it"
        );
    }
    let gone: Vec<_> = before.keys().filter(|key| !now.contains_key(*key)).collect();
    assert!(gone.is_empty(), "in {} and no template: {gone:?}", path.display());
}

#[derive(Debug, PartialEq, Eq)]
struct Registers {
    count: u32,
    spilled_len_bytes: u32,
}

/// By kernel and target.
type Ratchet = BTreeMap<(String, String), Registers>;

fn registers(ptxas: &Path, kernel: &Kernel, target: Target) -> Registers {
    let report = ptxas::assemble(ptxas, &emit_legal(kernel, target), target);
    let report = report.unwrap_or_else(|error| panic!("{}: {error}", entry_name(kernel)));
    // `Used 32 registers, ...` and `0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads`.
    let before = |what: &str| -> u32 {
        let start = report.split(what).next().filter(|start| start.len() < report.len());
        let start = start.unwrap_or_else(|| panic!("no `{what}` in {report}"));
        start.trim_end().rsplit([' ', ',']).next().unwrap().parse().unwrap()
    };
    Registers {
        count: before("registers"),
        spilled_len_bytes: before("bytes spill stores") + before("bytes spill loads"),
    }
}

fn registers_text(ratchet: &Ratchet) -> String {
    let mut text = "kernel | target | registers | spilled bytes\n".to_owned();
    for ((name, target), Registers { count, spilled_len_bytes }) in ratchet {
        writeln!(text, "{name} | {target} | {count} | {spilled_len_bytes}").unwrap();
    }
    text
}

fn read_registers(text: &str) -> Ratchet {
    let rows = text.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [name, target, count, spilled] = cells[..] else { panic!("`{line}` is no row") };
        let registers =
            Registers { count: count.parse().unwrap(), spilled_len_bytes: spilled.parse().unwrap() };
        ((name.to_owned(), target.to_owned()), registers)
    });
    rows.collect()
}

/// More shared memory than a module may declare is asked for at the launch.
#[test]
fn large_shared_memory_is_dynamic() {
    let kernel = |len: u32| {
        support::read(&format!(
            "kernel k workgroup 32 {{\n  shared small: i8x4[3]\n  shared large: f32[{len}]\n  %0 = local_id\n  \
             %1 = const.f32 1.0\n  %2 = const.i8x4 0x3c00\n  store large[%0], %1\n  store small[%0], %2\n}}"
        ))
    };
    let (fits, exceeds) = (kernel(12284), kernel(12285));
    assert_eq!((dynamic_shared_len_bytes(&fits), dynamic_shared_len_bytes(&exceeds)), (0, 49168));
    let Some(ptxas) = ptxas::find() else { return };
    for kernel in [fits, exceeds] {
        let result = ptxas::assemble(&ptxas, &emit(&kernel, Target::Sm75), Target::Sm75);
        result.unwrap_or_else(|error| panic!("{error}"));
    }
}
