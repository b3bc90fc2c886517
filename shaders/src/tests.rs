//! What probes are given is what they are for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;

const FACTS: Facts = Facts { subgroup_size: 32 };

#[test]
fn probes_have_whole_workgroups() {
    for probe in probes() {
        let len = probe.input().len();
        assert!(len > 0 && len.is_multiple_of(probe.words_a_group), "{}: {len} words", probe.name);
        assert_eq!(probe.input(), probe.input());
        let results = probe.expected(FACTS).len();
        assert!(results >= 512, "{}: {results} results", probe.name);
        // SPIR-V 1.5, of a workgroup of that size.
        let words = probe.words();
        assert_eq!(words[..2], [0x0723_0203, 0x0001_0500], "{}", probe.name);
        let local_size = [6 << 16 | 16, probe.workgroup, 1, 1];
        let found =
            words.windows(6).any(|inst| [inst[0], inst[3], inst[4], inst[5]] == local_size && inst[2] == 17);
        assert!(found, "{}: workgroups of {}", probe.name, probe.workgroup);
    }
}

/// Every float operation of the shaders is decorated `NoContraction`, as those of kernels are.
#[test]
fn floats_are_precise() {
    const NO_CONTRACTION: u32 = 42;
    for probe in probes() {
        let words = probe.words();
        let insts = || {
            let mut rest = &words[5..];
            std::iter::from_fn(move || {
                let len = (*rest.first()? >> 16) as usize;
                let (inst, after) = rest.split_at(len);
                rest = after;
                Some(inst)
            })
        };
        let decorated: Vec<u32> = insts()
            .filter(|inst| inst[0] == 3 << 16 | 71 && inst[2] == NO_CONTRACTION)
            .map(|inst| inst[1])
            .collect();
        // OpFNegate, OpFAdd, OpFSub, OpFMul
        let floats = insts().filter(|inst| matches!(inst[0] & 0xFFFF, 127 | 129 | 131 | 133));
        let plain = floats.filter(|inst| !decorated.contains(&inst[2])).count();
        assert_eq!(plain, 0, "{}", probe.name);
    }
}

/// What a wrong device would give is something else.
#[test]
fn faults_show() {
    let floats = |input: &[u32]| input.iter().map(|&word| f32::from_bits(word)).collect::<Vec<_>>();
    let differ = |expected: &[u32], wrong: &[f32]| {
        expected.iter().zip(wrong).filter(|(expected, wrong)| **expected != wrong.to_bits()).count()
    };
    let [rounding, contraction, reassociation, ..] = probes();
    // Rounding towards zero.
    let input = floats(&rounding.input());
    let to_zero = |a: f32, b: f32| {
        let (exact, rounded) = (f64::from(a) * f64::from(b), a * b);
        let is_away = f64::from(rounded).abs() > exact.abs();
        f32::from_bits(rounded.to_bits() - u32::from(is_away))
    };
    let products: Vec<f32> = input.as_chunks::<2>().0.iter().map(|&[a, b]| to_zero(a, b)).collect();
    let expected: Vec<u32> = rounding.expected(FACTS).into_iter().skip(2).step_by(3).collect();
    assert!(differ(&expected, &products) > 200);
    // A fused product and sum.
    let input = floats(&contraction.input());
    let fused = |&[a, b, c]: &[f32; 3]| (f64::from(a) * f64::from(b) + f64::from(c)) as f32;
    let fused: Vec<f32> = input.as_chunks::<3>().0.iter().map(fused).collect();
    let expected: Vec<u32> = contraction.expected(FACTS).into_iter().step_by(3).collect();
    assert!(differ(&expected, &fused) > 500);
    // (t + M) - M taken for t, 0 t for 0, t + 0 for t.
    let input = floats(&reassociation.input());
    let expected = reassociation.expected(FACTS);
    let column = |number: usize| expected.iter().copied().skip(number).step_by(9).collect::<Vec<_>>();
    assert!(differ(&column(0), &input) > 200);
    assert!(differ(&column(1), &input) > 50, "t times 3 times a third");
    assert!(differ(&column(3), &vec![0.0; input.len()]) > 200);
    assert!(differ(&column(4), &input) > 0, "-0 + 0");
    let negated: Vec<f32> = input.iter().map(|t| -t).collect();
    assert!(differ(&column(6), &negated) > 0, "0 - 0");
}

#[test]
fn a_fault_names_the_first_wrong_result() {
    let probe = probes()[0];
    let mut found = probe.expected(FACTS);
    assert_eq!(probe.fault_of(&found, FACTS), None);
    found[5] ^= 1;
    found[9] ^= 1;
    let fault = probe.fault_of(&found, FACTS).unwrap();
    assert!(fault.starts_with("f32 results are not rounded to nearest even (2 of 3072 results"), "{fault}");
    assert!(fault.contains("the first, 5, is 0x"), "{fault}");
    assert!(probe.fault_of(&[], FACTS).is_some());
}

#[test]
fn modes_are_added_to_a_module() {
    let words = probes()[0].words();
    assert_eq!(with_modes(&words, Modes::default()), words);
    let both = with_modes(&words, Modes { rounds_to_even: true, preserves_signed_zeros: true });
    assert_eq!(both.len(), words.len() + 2 * (2 + 4));
    assert_eq!(both[5..9], [2 << 16 | 17, 4467, 2 << 16 | 17, 4466]);
    assert_eq!(with_modes(&[], Modes { rounds_to_even: true, ..Modes::default() }), [0; 0]);
}
