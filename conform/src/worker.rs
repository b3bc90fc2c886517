//! The process that opens devices and runs groups, told by another what to run.
//!
//! It reads a line of JSON for each thing to do ([`Request`]) and answers with lines ([`Answer`]), the last of which is
//! [`Answer::End`] or [`Answer::Lost`]. What ends it is told by its silence.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use unisonic_devices::DeviceName;

use crate::groups::{self, Event};
use crate::kernels::Facts;
use crate::open::{Opened, Variant, open};
use crate::outcome::{Outcome, Row};
use crate::planted::{Faulty, Planted};
use crate::suite::{Group, Task};

/// What a worker is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// What the device is.
    Describe,
    /// To run a group.
    Run(Task),
    /// To show the next case of a group without running it.
    Show(Task),
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What the device is.
    Device(Description),
    /// The device cannot be opened.
    Refused(String),
    /// A case begins.
    Begin(String),
    /// A case has ended.
    Row(Box<Row>),
    /// The case that ended last, and failed, is made smaller.
    Reducing(String),
    /// A case as a text.
    Replay {
        /// Its name.
        case: String,
        /// The text.
        text: String,
    },
    /// All that was asked is done.
    End,
    /// The device is gone, and this process ends.
    Lost,
}

/// A device in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// As `--device` has it.
    pub device: String,
    /// Hardware.
    pub name: String,
    /// Driver and version; empty where there is none.
    pub driver: String,
    /// Whether it is a program on the processor.
    pub is_software: bool,
}

impl From<&Facts> for Description {
    fn from(facts: &Facts) -> Self {
        let Facts { device, name, driver, is_software, .. } = facts.clone();
        Self { device, name, driver, is_software }
    }
}

/// Serves requests until there are no more, or the device is lost.
///
/// # Errors
/// If nobody reads the answers any more, or a request cannot be read.
pub fn serve(
    device: DeviceName,
    planted: Option<Planted>,
    requests: impl BufRead,
    mut answers: impl Write,
) -> io::Result<()> {
    // One variant is open at a time.
    let mut opened: Option<(Variant, Result<Opened, String>)> = None;
    let mut answer = |answer: &Answer| -> io::Result<()> {
        serde_json::to_writer(&mut answers, answer)?;
        answers.write_all(b"\n")?;
        answers.flush()
    };
    for line in requests.lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let variant = match &request {
            Request::Describe => Some(Variant::AsItIs),
            Request::Run(task) | Request::Show(task) => Variant::from_name(&task.variant),
        };
        let variant = variant.ok_or_else(|| io::Error::other("there is no such variant"))?;
        if opened.as_ref().is_none_or(|opened| opened.0 != variant) {
            // A machine goes before the next comes.
            drop(opened.take());
        }
        let (_, now) = opened.get_or_insert_with(|| (variant, open_with(device, variant, planted)));
        match (&request, now) {
            (Request::Describe, now) => answer(&described(device, now))?,
            (Request::Show(task), Ok(Opened::Kernels(kernels))) => {
                let group = Group::from_name(&task.group);
                let shown = group.and_then(|group| groups::show(group, task, &mut **kernels));
                if let Some((case, text)) = shown {
                    answer(&Answer::Replay { case, text })?;
                }
            }
            (Request::Show(_), _) => {}
            (Request::Run(task), now) => {
                let mut failed = None;
                let is_there = run(task, now, &mut |said| {
                    if failed.is_none() {
                        failed = answer(&said).err();
                    }
                });
                if let Some(error) = failed {
                    return Err(error);
                }
                if !is_there {
                    return answer(&Answer::Lost);
                }
            }
        }
        answer(&Answer::End)?;
    }
    Ok(())
}

fn open_with(device: DeviceName, variant: Variant, planted: Option<Planted>) -> Result<Opened, String> {
    let opened = open(device, variant)?;
    Ok(match (opened, planted) {
        (Opened::Kernels(kernels), Some(fault)) => Opened::Kernels(Box::new(Faulty::new(kernels, fault))),
        (opened, _) => opened,
    })
}

fn described(device: DeviceName, opened: &Result<Opened, String>) -> Answer {
    match opened {
        Ok(Opened::Kernels(kernels)) => Answer::Device(kernels.facts().into()),
        Ok(Opened::Plans { name }) => Answer::Device(Description {
            device: device.to_string(),
            name: name.clone(),
            ..Description::default()
        }),
        Ok(Opened::NoVariant { reason }) | Err(reason) => Answer::Refused(reason.clone()),
    }
}

/// False if the device is lost.
fn run(task: &Task, opened: &mut Result<Opened, String>, say: &mut dyn FnMut(Answer)) -> bool {
    let whole = |outcome: Outcome| {
        Answer::Row(Box::new(Row {
            group: task.group.clone(),
            case: "all".to_owned(),
            variant: task.variant.clone(),
            outcome,
            milliseconds: 0,
            replay: None,
        }))
    };
    let Some(group) = Group::from_name(&task.group) else {
        say(whole(Outcome::failed("there is no such group")));
        return true;
    };
    match opened {
        Err(reason) => say(whole(Outcome::failed(format!("the device cannot be opened: {reason}")))),
        Ok(Opened::NoVariant { reason }) => say(whole(Outcome::not_applicable(reason.clone()))),
        Ok(Opened::Plans { .. }) => {
            say(whole(Outcome::not_applicable(
                "the device runs whole plans, without kernels of the kernel IR",
            )));
        }
        Ok(Opened::Kernels(kernels)) => {
            return groups::run(group, task, &mut **kernels, &mut |event| {
                say(match event {
                    Event::Begin(name) => Answer::Begin(name.to_owned()),
                    Event::Row(row) => Answer::Row(Box::new(row)),
                    Event::Reducing(name) => Answer::Reducing(name.to_owned()),
                    Event::Replay { case, text } => Answer::Replay { case: case.to_owned(), text },
                });
            });
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;

    fn answers(device: DeviceName, requests: &[Request]) -> Vec<Answer> {
        let lines: Vec<String> =
            requests.iter().map(|request| serde_json::to_string(request).expect("JSON")).collect();
        let mut output = vec![];
        serve(device, None, lines.join("\n").as_bytes(), &mut output).expect("a worker that ends");
        let text = String::from_utf8(output).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("an answer")).collect()
    }

    #[test]
    fn a_group_is_run_from_a_case_on() {
        let task = |skip| Task {
            group: "op/udiv".to_owned(),
            variant: "as-it-is".to_owned(),
            suite: Suite::Full,
            skip,
        };
        let all = answers(DeviceName::Interpreter, &[Request::Run(task(0))]);
        let rest = answers(DeviceName::Interpreter, &[Request::Describe, Request::Run(task(1))]);
        assert!(all.len() > 5, "{all:?}");
        assert_eq!(all.last(), Some(&Answer::End));
        assert_eq!(rest.len(), all.len() - 2 + 2);
        assert!(matches!(&rest[0], Answer::Device(device) if device.device == "interpreter"));
        let begun = |answers: &[Answer]| {
            let name = |answer: &Answer| match answer {
                Answer::Begin(name) => Some(name.clone()),
                _ => None,
            };
            answers.iter().filter_map(name).collect::<Vec<_>>()
        };
        assert_eq!(begun(&all)[1..], begun(&rest));
        let passed = |answer: &Answer| matches!(answer, Answer::Row(row) if row.outcome == Outcome::Passed);
        assert_eq!(all.iter().filter(|answer| passed(answer)).count(), begun(&all).len());
    }

    #[test]
    fn what_has_no_kernels_says_so() {
        let [group, variant] = ["op/udiv", "as-it-is"].map(str::to_owned);
        let task = Task { group, variant, suite: Suite::Quick, skip: 0 };
        let said = answers(DeviceName::CpuScalar, &[Request::Run(task)]);
        let [Answer::Row(row), Answer::End] = &said[..] else { panic!("{said:?}") };
        assert!(matches!(row.outcome, Outcome::NotApplicable { .. }));
    }
}
