//! Groups of cases: each makes its cases one after the other, and says what has to come out.
//!
//! [`made`] is the list; [`run`] runs one on what is tested. A case is a [`Case`]; `judge.rs` says what came of it.

mod flush;
mod judge;
mod known;
mod limits;
mod made;
mod probe;
pub mod tokens;

use std::time::Instant;

use unisonic_core::kir::Kernel;
use unisonic_core::kir::interp::{Launch, run as run_in_interpreter};
use unisonic_core::kir::legal::legalize;

pub use judge::{Judged, judge};
pub use made::made;

use crate::kernels::{Facts, Kernels};
use crate::outcome::{Outcome, Row};
use crate::reduce::{Failing, LaunchData, reduce};
use crate::replay::Replay;
use crate::suite::{Group, Task};

/// A kernel with a launch, and what has to be in its buffers afterwards.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in the group.
    pub name: String,
    /// The kernel, of any operations.
    pub kernel: Kernel,
    /// A launch of it.
    pub launch: Launch,
    /// What has to come out.
    pub expected: Expected,
}

impl Case {
    /// Whether it has subnormal operands, which a device may flush.
    pub fn may_flush(&self) -> bool {
        self.name.ends_with(WITH_SUBNORMALS)
    }
}

/// How names of cases with subnormal operands end.
const WITH_SUBNORMALS: &str = " with subnormals";

/// Where it is known from what has to come out.
#[derive(Clone, Debug)]
pub enum Expected {
    /// The interpreter says it.
    Interpreter,
    /// `core::numerics` said it: these buffers.
    Reference(Vec<Vec<u8>>),
}

/// Something to run, or the name of what is not for a device, and why.
pub type Made = Result<Case, (String, String)>;

/// What a group has to say while it runs.
pub enum Event<'a> {
    /// A case begins: if nothing more is heard, this is what ended the process.
    Begin(&'a str),
    /// A case has ended.
    Row(Row),
    /// A case that failed is made smaller.
    Reducing(&'a str),
    /// A case that failed, as a text ([`crate::replay`]).
    Replay {
        /// Its name.
        case: &'a str,
        /// The text.
        text: String,
    },
}

/// Failing cases of a group that are made smaller; of a device that fails everywhere nobody reads more.
const MOST_REDUCED: usize = 2;
/// Runs that making one smaller may take.
const MOST_RUNS: u32 = 600;

/// Runs a group, but for the cases that have been run already. False if the device is lost: nothing more can be run in
/// this process.
pub fn run(group: Group, task: &Task, kernels: &mut dyn Kernels, say: &mut dyn FnMut(Event<'_>)) -> bool {
    match group {
        Group::Probe(number) => return probe::run(number, task, kernels, say),
        Group::Known(number) => return known::run(number, task, kernels, say),
        Group::Op(_) | Group::Random(_) | Group::Template(_) | Group::Tokens(_) | Group::Limits => {}
    }
    let mut reduced = 0;
    for made in of_task(group, task, kernels.facts()) {
        let name = match &made {
            Ok(case) => &case.name,
            Err((name, _)) => name,
        };
        say(Event::Begin(name));
        let (name, start) = (name.clone(), Instant::now());
        let judged = match &made {
            Ok(case) => judge(kernels, case, task.suite),
            Err((_, reason)) => Judged { outcome: Outcome::not_applicable(reason.clone()), is_lost: false },
        };
        let is_failure = judged.outcome.is_failure();
        say(Event::Row(task.row(&name, judged.outcome, start.elapsed())));
        if judged.is_lost {
            return false;
        }
        if let Ok(case) = made
            && is_failure
            && reduced < MOST_REDUCED
        {
            reduced += 1;
            say(Event::Reducing(&name));
            let legal = legalize(&case.kernel, &kernels.facts().hardware.caps);
            if let Some(failing) = reduce(kernels, &legal, &case.launch, MOST_RUNS) {
                let replay = Replay::new(&full_name(task, &name), &task.variant, &failing, kernels);
                say(Event::Replay { case: &name, text: replay.text() });
            }
        }
    }
    true
}

/// The row of a group's only case. False if the device is lost.
fn only_row(task: &Task, start: Instant, judged: &Judged, say: &mut dyn FnMut(Event<'_>)) -> bool {
    say(Event::Row(task.row(ONLY, judged.outcome.clone(), start.elapsed())));
    !judged.is_lost
}

/// Name of a group's only case.
const ONLY: &str = "all";

fn of_task(group: Group, task: &Task, facts: &Facts) -> impl Iterator<Item = Made> + use<> {
    let cases = made(group, task.suite, &facts.hardware.caps, facts);
    cases.step_by(task.suite.stride(group)).skip(task.skip)
}

fn full_name(task: &Task, case: &str) -> String {
    format!("{} {case}", task.group)
}

/// The next case of a task as a text, without running it on the device: for one that ended a process.
pub fn show(group: Group, task: &Task, kernels: &mut dyn Kernels) -> Option<(String, String)> {
    let case = of_task(group, task, kernels.facts()).next()?.ok()?;
    let kernel = legalize(&case.kernel, &kernels.facts().hardware.caps);
    let mut launch = case.launch.clone();
    run_in_interpreter(&kernel, &mut launch).ok()?;
    let data = LaunchData::of(&case.launch);
    let failing = Failing::untried(kernel, data, launch.buffers, "the process ended");
    let replay = Replay::new(&full_name(task, &case.name), &task.variant, &failing, kernels);
    Some((case.name, replay.text()))
}
