//! Over every operation and type: what a module may never hold, and that the validator takes it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;

use rspirv::dr::{Instruction, Module, Operand};
use rspirv::spirv::{self, Decoration, GlslStd450Op};
use unisonic_core::kir::legal::{Caps, legalize};
use unisonic_vulkan::spirv::{Target, emit};

/// Everything that an instruction of a module may be. What differs between devices is not here: `OpExtInst` is looked into
/// below, and there is no division, remainder or comparison of floats, no conversion of a float to an integer, no group
/// arithmetic, no transpose, no dot product of floats.
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
        // Looked into below.
        ExtInst,
    ]
};

const EXTENDED: &[GlslStd450Op] = &[
    GlslStd450Op::SMin,
    GlslStd450Op::UMin,
    GlslStd450Op::SMax,
    GlslStd450Op::UMax,
    GlslStd450Op::UnpackHalf2x16,
];

const TARGETS: [Target; 2] = [
    support::GPU,
    Target { subgroup_size: 4, integer_dot: false, rounds_to_even: false, preserves_signed_zeros: false },
];

fn check(module: &Module) {
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
                assert_eq!(inst.operands[0], Operand::LiteralBit32(32), "{inst:?}");
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
    let cases = support::cases::all();
    let (mut validated, mut floats) = (BTreeSet::new(), 0);
    for case in &cases {
        for target in &TARGETS {
            // Halves as the emitter has them, and in integers.
            let caps = Caps { half: target.integer_dot, ..target.caps() };
            let words = emit(&legalize(&case.kernel, &caps), target);
            let module =
                rspirv::dr::load_words(&words).unwrap_or_else(|error| panic!("{}: {error}", case.text));
            check(&module);
            floats += module.all_inst_iter().filter(|inst| inst.class.opcode == spirv::Op::FMul).count();
            if validated.insert(words.clone()) {
                support::validate(&case.text, &words);
            }
        }
    }
    assert!(floats > 0, "the cases hold float operations");
}
