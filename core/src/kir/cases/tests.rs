//! The cases are kernels that verify and have one result, also when they are legalised.

use std::collections::HashSet;

use super::super::interp::run;
use super::super::legal::{Caps, legalize};
use super::super::{parse, verify};
use super::*;

#[test]
fn every_operation_has_cases_of_its_own_name() {
    let cases = all();
    let names: HashSet<&str> = cases.iter().map(|case| &case.kernel.name[..]).collect();
    assert_eq!(names.len(), cases.len(), "names tell cases apart");
    for op in Op::ALL {
        let mnemonic = op.row().mnemonic;
        assert!(cases.iter().any(|case| case.op == *op), "no case of `{mnemonic}`");
        let of_op = |case: &&Case| case.op == *op;
        for case in cases.iter().filter(of_op) {
            assert_eq!(verify(&case.kernel), [], "{}", case.kernel);
            assert!(case.kernel.to_string().contains(mnemonic), "{}", case.kernel);
            assert_eq!(parse(&case.kernel.to_string()).as_ref(), Ok(&case.kernel));
        }
    }
}

/// With everything that a device may lack lacking, and in the interpreter to begin with.
#[test]
fn legal_cases_give_what_the_original_gives() {
    for case in all() {
        let name = &case.kernel.name;
        let launch = case.launch(Floats::Finite);
        let mut expected = launch.clone();
        run(&case.kernel, &mut expected).unwrap_or_else(|trap| panic!("{name}: {trap}\n{}", case.kernel));
        assert!(expected.buffers != launch.buffers, "{name}");
        let legal = legalize(&case.kernel, &Caps::NONE);
        assert_eq!(verify(&legal), [], "{legal}");
        if legal != case.kernel {
            let mut found = launch;
            run(&legal, &mut found).unwrap_or_else(|trap| panic!("{name}: {trap}\n{legal}"));
            assert!(found.buffers == expected.buffers, "{name}\n{legal}");
        }
    }
}
