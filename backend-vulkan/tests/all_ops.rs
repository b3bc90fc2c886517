//! Over every operation and type, random kernels and templates: what a module may never hold, and that the
//! validator takes it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;

use rspirv::dr::{Instruction, Module, Operand};
use rspirv::spirv::{self, Capability, CooperativeMatrixOperands, Decoration, GlslStd450Op};
use support::cores::on_all_cores;
use unisonic_core::kir::Kernel;
use unisonic_core::kir::cases;
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::random::random_kernel;
use unisonic_planner::kernels::samples::{Extent, samples};
use unisonic_vulkan::spirv::{Target, emit, matrix_probe};

/// Everything that an instruction of a module may be. What differs between devices is not here: `OpExtInst`
/// is looked into below, and there is no division, remainder or comparison of floats, no conversion of a
/// float to an integer, no group arithmetic, no transpose, no dot product of floats.
const ALLOWED: &[spirv::Op] = {
    use spirv::Op::*;
    &[
        // The module.
        Capability,
        Extension,
        ExtInstImport,
        MemoryModel,
        EntryPoint,
        ExecutionMode,
        Decorate,
        MemberDecorate,
        TypeVoid,
        TypeBool,
        TypeInt,
        TypeFloat,
        TypeVector,
        TypeArray,
        TypeRuntimeArray,
        TypeStruct,
        TypePointer,
        TypeFunction,
        Constant,
        ConstantTrue,
        ConstantFalse,
        ConstantComposite,
        Variable,
        Function,
        FunctionEnd,
        // Flow.
        Label,
        Branch,
        BranchConditional,
        SelectionMerge,
        LoopMerge,
        Phi,
        Return,
        ControlBarrier,
        // Memory.
        AccessChain,
        Load,
        Store,
        // Values as they are.
        Bitcast,
        CompositeConstruct,
        CompositeExtract,
        Select,
        // Integers.
        IAdd,
        ISub,
        IMul,
        UDiv,
        UMod,
        BitwiseAnd,
        BitwiseOr,
        BitwiseXor,
        ShiftLeftLogical,
        ShiftRightLogical,
        ShiftRightArithmetic,
        BitFieldInsert,
        BitFieldSExtract,
        BitFieldUExtract,
        IEqual,
        INotEqual,
        SLessThan,
        ULessThan,
        LogicalAnd,
        LogicalOr,
        LogicalNotEqual,
        SDot,
        SUDot,
        // Floats.
        FAdd,
        FSub,
        FMul,
        ConvertSToF,
        // Other invocations.
        GroupNonUniformShuffle,
        GroupNonUniformShuffleXor,
        // Matrices of integers; looked into below.
        Undef,
        TypeCooperativeMatrixKHR,
        CooperativeMatrixLoadKHR,
        CooperativeMatrixMulAddKHR,
        CompositeInsert,
        UConvert,
        // Looked into below.
        ExtInst,
    ]
};

const EXTENDED: &[GlslStd450Op] =
    &[GlslStd450Op::SMin, GlslStd450Op::UMin, GlslStd450Op::SMax, GlslStd450Op::UMax];

fn targets() -> [Target; 4] {
    let least = Target {
        subgroup_size: 4,
        integer_dot: false,
        rounds_to_even: false,
        preserves_signed_zeros: false,
        knows_constants: false,
        ..support::GPU
    };
    // Matrices with room to stage them and without.
    let matrices = support::matrix_gpu();
    [support::GPU, least, matrices, Target { max_shared_len_bytes: 0, max_pushed_len_bytes: 128, ..matrices }]
}

const MATRIX_PRODUCT: spirv::Op = spirv::Op::CooperativeMatrixMulAddKHR;

fn check(module: &Module) {
    let is_of = |op| move |inst: &&Instruction| inst.class.opcode == op;
    let ids = |op| module.all_inst_iter().filter(is_of(op)).filter_map(|inst| inst.result_id).collect();
    let matrix_types: BTreeSet<u32> = ids(spirv::Op::TypeCooperativeMatrixKHR);
    let float_types: BTreeSet<u32> = ids(spirv::Op::TypeFloat);
    let asks = |capability| {
        module.capabilities.iter().any(|inst| inst.operands == [Operand::Capability(capability)])
    };
    assert_eq!(asks(Capability::CooperativeMatrixKHR), !matrix_types.is_empty());
    assert_eq!(asks(Capability::Int8), !matrix_types.is_empty(), "bytes are for matrices alone");
    let rounded: BTreeSet<u32> = module
        .annotations
        .iter()
        .filter(|inst| inst.operands.contains(&Operand::Decoration(Decoration::NoContraction)))
        .map(|inst| inst.operands[0].unwrap_id_ref())
        .collect();
    for inst in module.all_inst_iter() {
        assert!(ALLOWED.contains(&inst.class.opcode), "{inst:?}");
        match inst.class.opcode {
            spirv::Op::TypeInt | spirv::Op::TypeFloat => {
                let is_byte = !matrix_types.is_empty() && inst.operands[0] == Operand::LiteralBit32(8);
                assert!(is_byte || inst.operands[0] == Operand::LiteralBit32(32), "{inst:?}");
            }
            spirv::Op::TypeCooperativeMatrixKHR => {
                assert!(!float_types.contains(&inst.operands[0].unwrap_id_ref()), "{inst:?}");
            }
            // All components are written over.
            spirv::Op::Undef | spirv::Op::CompositeInsert => {
                assert!(matrix_types.contains(&inst.result_type.unwrap()), "{inst:?}");
            }
            // All four are signed, and sums are modulo 2^32.
            MATRIX_PRODUCT => {
                let signed = CooperativeMatrixOperands::from_bits_retain(0b1111);
                assert_eq!(inst.operands[3], Operand::CooperativeMatrixOperands(signed), "{inst:?}");
            }
            spirv::Op::FAdd | spirv::Op::FSub | spirv::Op::FMul => {
                assert!(rounded.contains(&inst.result_id.unwrap()), "{inst:?} may be contracted");
            }
            spirv::Op::ExtInst => {
                let Operand::LiteralExtInstInteger(number) = inst.operands[1] else { panic!("{inst:?}") };
                assert!(EXTENDED.iter().any(|&op| op as u32 == number), "{inst:?}");
            }
            _ => {}
        }
    }
    assert_eq!(
        module.ext_inst_imports.iter().filter(|inst| !is_glsl(inst)).count(),
        0,
        "one set of extended instructions"
    );
}

fn is_glsl(inst: &Instruction) -> bool {
    inst.operands == [Operand::from("GLSL.std.450")]
}

#[test]
fn no_module_holds_what_differs_between_devices() {
    let cases = cases::all();
    let (mut validated, mut floats, mut matrices) = (BTreeSet::new(), 0, 0);
    for case in &cases {
        for target in &targets() {
            let words = emit(&legalize(&case.kernel, &target.caps()), target);
            let module = rspirv::dr::load_words(&words)
                .unwrap_or_else(|error| panic!("{}: {error}", case.kernel.name));
            check(&module);
            matrices += module.all_inst_iter().filter(|inst| inst.class.opcode == MATRIX_PRODUCT).count();
            floats += module.all_inst_iter().filter(|inst| inst.class.opcode == spirv::Op::FMul).count();
            if validated.insert(words.clone()) {
                support::validate(&case.kernel.name, &words);
            }
        }
    }
    assert!(floats > 0, "the cases hold float operations");
    assert!(matrices > 0, "the cases hold matrix products");
}

/// What no device that CI has can run: random kernels and the templates' samples with cooperative matrices.
#[test]
fn modules_with_matrices_are_valid() {
    let with_matrices: Vec<Target> = targets().into_iter().filter(|target| target.matrix.is_some()).collect();
    let random = (0..30).map(|seed| (format!("random kernel {seed}"), random_kernel(seed, 40).0));
    let samples = samples(Extent::Pairs).filter(|sample| sample.caps.mma32);
    let samples = samples.map(|sample| (sample.name, sample.kernel));
    let kernels: Vec<(String, Kernel)> = random.chain(samples).collect();
    on_all_cores(&kernels, |(name, kernel)| {
        for target in &with_matrices {
            let words = emit(&legalize(kernel, &target.caps()), target);
            check(&rspirv::dr::load_words(&words).map_err(|error| format!("{name}: {error}"))?);
            support::validate(name, &words);
        }
        Ok(())
    });
}

/// The module that asks a device for the map is the one that takes matrices apart by numbers at run time.
#[test]
fn the_probe_is_valid() {
    let words = matrix_probe::words();
    support::validate("the probe", &words);
    let module = rspirv::dr::load_words(&words).unwrap();
    assert!(matrix_probe::kernel().body.stmts.is_empty(), "only its objects count");
    let loads = |inst: &&Instruction| inst.class.opcode == spirv::Op::CooperativeMatrixLoadKHR;
    assert_eq!(module.all_inst_iter().filter(loads).count(), 5);
}
