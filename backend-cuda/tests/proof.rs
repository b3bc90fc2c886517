//! Holds what the emitter promises about arithmetic, over every operation with every type, the filetests and
//! the templates: which instructions come out, and which never do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;

use unisonic_core::kir::Kernel;
use unisonic_core::kir::cases::{self, Case};
use unisonic_cuda::ptx::Target;

fn kernels(target: Target) -> Vec<Kernel> {
    let texts = support::filetests().into_iter().map(|file| std::fs::read_to_string(file).unwrap());
    let files = texts.map(|text| support::read(&text));
    support::kernels(target).into_iter().chain(files).collect()
}

/// Instructions of a module without their operands: `add.rn.f32`.
fn instructions(ptx: &str) -> impl Iterator<Item = &str> {
    let statements = ptx.lines().skip_while(|line| *line != "{").skip(1);
    statements.filter_map(|line| {
        let line = line.trim().trim_end_matches(';');
        let line = if line.starts_with('@') { line.split_once(' ').unwrap().1 } else { line };
        let is_statement = !line.starts_with('.') && !line.starts_with('}') && !line.ends_with(':');
        is_statement.then(|| line.split(' ').next().unwrap())
    })
}

/// Everything that is ever emitted. Whoever adds an instruction here says that its result is exact on every
/// GPU.
#[test]
fn nothing_is_emitted_but_what_is_exact() {
    let listed = INSTRUCTIONS.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    let mut found = BTreeSet::new();
    for target in Target::ALL {
        for kernel in kernels(target) {
            found.extend(instructions(&support::emit_legal(&kernel, target)).map(str::to_owned));
        }
    }
    let unknown: Vec<_> = found.difference(&listed).collect();
    assert!(unknown.is_empty(), "emitted and not in the list: {unknown:#?}");
    let unused: Vec<_> = listed.difference(&found).collect();
    assert!(unused.is_empty(), "in the list and never emitted: {unused:#?}");
}

const INSTRUCTIONS: &str = "
    add.s32 add.u32 sub.s32 sub.u32 mul.lo.s32 mul.lo.u32 mul.hi.u32 mad.lo.u32 mad.wide.u32
    div.u32 rem.u32
    min.s32 min.u32 max.s32 max.u32 shl.b32 shr.s32 shr.u32
    and.b32 or.b32 xor.b32 and.pred or.pred xor.pred not.pred
    setp.eq.s32 setp.eq.u32 setp.lt.s32 setp.lt.u32 setp.ne.u32 selp.b32 mov.b32 mov.pred prmt.b32
    add.rn.f32 sub.rn.f32 mul.rn.f32 cvt.rn.f32.s32 cvt.f32.f16
    ld.param.b32 ld.param.u64
    ld.global.b32 ld.global.v2.b32 ld.global.v4.b32
    ld.global.nc.b32 ld.global.nc.v2.b32 ld.global.nc.v4.b32
    ld.global.L1::no_allocate.b32 ld.global.L1::no_allocate.v2.b32 ld.global.L1::no_allocate.v4.b32
    ld.global.nc.L1::no_allocate.b32 ld.global.nc.L1::no_allocate.v2.b32 ld.global.nc.L1::no_allocate.v4.b32
    ld.shared.b32 ld.shared.v2.b32 ld.shared.v4.b32
    st.global.b32 st.global.v2.b32 st.global.v4.b32 st.shared.b32 st.shared.v2.b32 st.shared.v4.b32
    cp.async.cg.shared.global cp.async.commit_group cp.async.wait_group
    prefetch.global.L2 griddepcontrol.launch_dependents griddepcontrol.wait
    shfl.sync.bfly.b32 shfl.sync.idx.b32 bar.sync bra ret
    dp4a.s32.s32 dp4a.u32.s32
    mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32";

/// Parts of instructions whose results depend on the GPU or on order, or that flush subnormals.
const INEXACT: [&str; 14] = [
    "fma", "ftz", "approx", "sqrt", "rsqrt", "rcp", "ex2", "lg2", "sin", "cos", "tanh", "atom", "red", "sat",
];

/// Instructions on floats are these four, each rounded to nearest even where it rounds, and flush nothing.
#[test]
fn floats_are_added_subtracted_multiplied_and_converted() {
    for instruction in INSTRUCTIONS.split_whitespace().filter(|instruction| instruction.contains(".f")) {
        let exact = ["add.rn.f32", "sub.rn.f32", "mul.rn.f32", "cvt.rn.f32.s32", "cvt.f32.f16"];
        assert!(exact.contains(&instruction), "{instruction}");
    }
    for instruction in INSTRUCTIONS.split_whitespace() {
        let parts: Vec<&str> = instruction.split('.').collect();
        assert!(!parts.iter().any(|part| INEXACT.contains(part)), "{instruction}");
    }
}

/// Words of the emitter's own sources, where a name could be put together from parts.
#[test]
fn the_sources_do_not_know_inexact_instructions() {
    for entry in std::fs::read_dir(support::path("src/ptx")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            for word in code.split(|c: char| !c.is_ascii_alphanumeric()) {
                assert!(!INEXACT.contains(&word), "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
}

/// Whatever an operation's types: emitting does not fail once it is legal, and gives the same bytes again.
#[test]
fn emitting_is_a_total_function() {
    for Case { kernel, .. } in &cases::all() {
        let [first, second] = [(); 2].map(|()| support::emit_legal(kernel, Target::Sm86));
        assert_eq!(first, second);
    }
}
