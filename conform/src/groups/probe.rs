//! Probes that people wrote.

use std::time::Instant;

use unisonic_gpu::machine::MachineError;
use unisonic_shaders::{Probe, Question, probes, questions};
use unisonic_vulkan::driver::Shader;

use super::{Event, Judged, only_row};
use crate::kernels::{Kernels, Shaders};
use crate::outcome::{Difference, Outcome};
use crate::permitted;
use crate::replay::Replay;
use crate::suite::Task;

/// Runs a probe by its number among all. False if the device is lost.
pub fn run(number: usize, task: &Task, kernels: &mut dyn Kernels, say: &mut dyn FnMut(Event<'_>)) -> bool {
    if task.skip > 0 {
        return true;
    }
    say(Event::Begin(super::ONLY));
    let start = Instant::now();
    let facts = kernels.facts().clone();
    let Some(shaders) = kernels.shaders() else {
        let reason = "probes are SPIR-V, which the device does not take".to_owned();
        let judged = Judged { outcome: Outcome::not_applicable(reason), is_lost: false };
        return only_row(task, start, &judged, say);
    };
    let (probe, question) = match probes().get(number) {
        Some(&probe) => (Some(probe), None),
        None => (None, questions().get(number - probes().len()).copied()),
    };
    let Some(asked) = probe.or(question.map(|question| question.probe)) else { return true };
    let mut found = vec![];
    let outcome = ask(shaders, &asked, question.as_ref(), &mut found);
    let mut judged = Judged::of(outcome);
    let is_failure = judged.outcome.is_failure();
    if is_failure {
        judged.outcome = super::known::explained(judged.outcome, &task.group, &facts.driver);
    }
    let is_there = only_row(task, start, &judged, say);
    if is_failure && !found.is_empty() {
        let text = Replay::of_probe(task, &asked, question.as_ref(), &found, shaders, &facts).text();
        say(Event::Replay { case: super::ONLY, text });
    }
    is_there
}

fn ask(
    shaders: &mut dyn Shaders,
    probe: &Probe,
    question: Option<&Question>,
    found: &mut Vec<u32>,
) -> Result<Outcome, MachineError> {
    if let Some(lacking) = shaders.lacks(probe.needs) {
        return Ok(Outcome::not_applicable(format!("the device has no {lacking}")));
    }
    let facts = shaders.probe_facts();
    let expected = probe.expected(facts);
    let shader = Shader::of_probe(probe);
    *found = shaders.run_shader(&shader, &probe.input(), probe.groups(), expected.len())?;
    let difference = Difference::of_words([("output", &expected[..], &found[..])]);
    let Some(difference) = difference else { return Ok(Outcome::Passed) };
    let failed = |difference| Outcome::Failed { reason: probe.fault.to_owned(), difference };
    let Some(question) = question else { return Ok(failed(Some(difference))) };
    let answers = question.judge(found, facts);
    let Some(&at) = answers.wrong.first() else {
        let permission: Vec<&str> = answers.permitted.iter().copied().collect();
        let reason =
            permission.iter().filter_map(|name| permitted::what(name)).collect::<Vec<_>>().join("; ");
        let count = difference.wrong;
        return Ok(Outcome::Permitted {
            permission: permission.join(", "),
            reason: format!("{reason} ({count} of {} results)", expected.len()),
        });
    };
    let hex = |word: u32| format!("{word:08x}");
    Ok(failed(Some(Difference {
        word: at,
        expected: hex(expected[at]),
        found: hex(found.get(at).copied().unwrap_or_default()),
        wrong: answers.wrong.len(),
        ..difference
    })))
}
