//! What came of a case.

use unisonic_core::kir::interp::run;
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::verify;
use unisonic_gpu::machine::MachineError;

use super::{Case, Expected, flush};
use crate::kernels::Kernels;
use crate::outcome::{Difference, Outcome};
use crate::permitted;
use crate::suite::Suite;

/// What came of a case, and of the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What came of the case.
    pub outcome: Outcome,
    /// Whether nothing more can be run in this process.
    pub is_lost: bool,
}

/// Runs a case and compares every bit of its buffers.
pub fn judge(kernels: &mut dyn Kernels, case: &Case, suite: Suite) -> Judged {
    Judged::of(outcome(kernels, case, suite))
}

impl Judged {
    /// Of an outcome, or of what the device said instead.
    pub fn of(result: Result<Outcome, MachineError>) -> Self {
        let (outcome, is_lost) = match result {
            Ok(outcome) => (outcome, false),
            Err(error @ MachineError::Lost { .. }) => (Outcome::failed(error.to_string()), true),
            Err(error @ MachineError::OutOfMemory { .. }) => {
                (Outcome::not_applicable(error.to_string()), false)
            }
            Err(error) => (Outcome::failed(error.to_string()), false),
        };
        Self { outcome, is_lost }
    }
}

fn outcome(kernels: &mut dyn Kernels, case: &Case, suite: Suite) -> Result<Outcome, MachineError> {
    let facts = kernels.facts();
    let legal = legalize(&case.kernel, &facts.hardware.caps);
    if let Some(fault) = verify(&legal).first() {
        return Ok(Outcome::not_applicable(format!("no kernel without what the device lacks: {fault}")));
    }
    if let Some(reason) = kernels.misfit(&legal) {
        return Ok(Outcome::not_applicable(reason));
    }
    if case.launch.groups > facts.max_groups {
        let (groups, most) = (case.launch.groups, facts.max_groups);
        let reason = format!("{groups} workgroups, of which a launch may have {most}");
        return Ok(Outcome::not_applicable(reason));
    }
    let (values, most) = (legal.types.len(), suite.software_values());
    if facts.is_software && values > most {
        let reason =
            format!("{values} values are more than the {most} that software devices compile quickly");
        return Ok(Outcome::not_applicable(reason));
    }
    let expected = match &case.expected {
        Expected::Reference(expected) => expected.clone(),
        Expected::Interpreter => {
            let mut launch = case.launch.clone();
            if let Err(trap) = run(&case.kernel, &mut launch) {
                return Ok(Outcome::failed(format!("the case is wrong: {trap}")));
            }
            launch.buffers
        }
    };
    let (mut ran, mut wrong) = (0, None);
    kernels.run(&legal, &case.launch, suite.repeats(), &mut |found| {
        ran += 1;
        if found != expected {
            let difference = Difference::of_buffers(&legal, &expected, &found);
            wrong = Some((difference, found));
        }
        wrong.is_none()
    })?;
    let Some((difference, found)) = wrong else { return Ok(Outcome::Passed) };
    if case.may_flush() && flush::explains(&case.kernel, &case.launch, &found) {
        let what = permitted::what("flush").unwrap_or_default().to_owned();
        return Ok(Outcome::Permitted { permission: "flush".to_owned(), reason: what });
    }
    let mut reason = match ran {
        1 => "other bits".to_owned(),
        ran => format!("other bits in run {ran}, after right ones"),
    };
    // Then what was emitted is wrong, and the device right.
    let mut launch = case.launch.clone();
    if run(&legal, &mut launch).is_ok() && launch.buffers == found {
        reason += " (the interpreter has the same for what the device was given: the kernel is wrong)";
    }
    Ok(Outcome::Failed { reason, difference })
}
