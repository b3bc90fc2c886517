//! Faults that are known: whether a driver has them, in the table or not.

use std::time::Instant;

use unisonic_vulkan::driver::{KNOWN_FAULTS, KnownFault, known_faults};

use super::{Event, Judged, only_row};
use crate::kernels::Kernels;
use crate::outcome::Outcome;
use crate::replay::Replay;
use crate::suite::Task;

/// Runs the file of a fault by its number. False if the device is lost.
pub fn run(number: usize, task: &Task, kernels: &mut dyn Kernels, say: &mut dyn FnMut(Event<'_>)) -> bool {
    let Some(fault) = KNOWN_FAULTS.get(number).filter(|_| task.skip == 0) else { return true };
    say(Event::Begin(super::ONLY));
    let start = Instant::now();
    let outcome = match Replay::parse(fault.replay).map(|replay| replay.run(kernels)) {
        Ok(outcome) if outcome.is_failure() => {
            of_table(outcome, |known| known.name == fault.name, &kernels.facts().driver)
        }
        Ok(outcome) => outcome,
        Err(error) => Outcome::failed(format!("the file of the fault cannot be read: {error}")),
    };
    only_row(task, start, &Judged { outcome, is_lost: false }, say)
}

/// A failure of a probe, explained where a fault of the driver is known that its file has shown by this probe.
pub fn explained(outcome: Outcome, group: &str, driver: &str) -> Outcome {
    let shows = |fault: &KnownFault| {
        let replay = Replay::parse(fault.replay).ok();
        let shown_by = replay.as_ref().and_then(|replay| replay.note("shown by"));
        shown_by.is_some_and(|groups| groups.split(", ").any(|shown| shown == group))
    };
    of_table(outcome, shows, driver)
}

fn of_table(outcome: Outcome, is_meant: impl Fn(&KnownFault) -> bool, driver: &str) -> Outcome {
    match known_faults(driver).find(|fault| is_meant(fault)) {
        Some(fault) => Outcome::KnownFault {
            fault: fault.name.to_owned(),
            reason: format!("{}; {} are not used", fault.what, fault.off),
        },
        None => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Program;

    #[test]
    fn files_of_faults_are_small_and_say_where_they_are_from() {
        for fault in KNOWN_FAULTS {
            let replay = Replay::parse(fault.replay).expect(fault.name);
            assert_eq!(replay.text(), fault.replay, "{}", fault.name);
            assert!(replay.launch.groups * replay.program.workgroup() <= 64, "{}", fault.name);
            assert!(replay.launch.len_bytes() <= 16 << 10, "{}", fault.name);
            let driver = replay.note("driver").unwrap_or_default();
            assert!(known_faults(driver).any(|known| known.name == fault.name), "{}: {driver}", fault.name);
            assert_ne!(replay.found.as_ref(), Some(&replay.expected), "{}", fault.name);
            if let Program::Kernel(kernel) = &replay.program {
                assert_eq!(unisonic_core::kir::verify(kernel), [], "{}", fault.name);
            }
        }
    }
}
