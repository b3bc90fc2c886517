//! The process that opens devices and runs groups, told by another what to run.
//!
//! It reads a line of JSON for each thing to do ([`Request`]) and answers with lines ([`Answer`]), the last of which is
//! [`Answer::End`] or [`Answer::Lost`]. What ends it is told by its silence.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use unisonic_devices::DeviceName;

use crate::groups::{self, Event};
use crate::kernels::Facts;
use crate::open::{Opened, Variant, open};
use crate::outcome::{Outcome, Row};
use crate::planted::{Faulty, Planted};
use crate::replay::Replay;
use crate::suite::{Group, Suite, Task};

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
    /// To run a case that is a text ([`crate::replay`]).
    Replay(String),
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
    /// A case that was a text was run.
    Replayed {
        /// What came of it.
        outcome: Outcome,
        /// The text as it is of this device.
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
    let mut server = Server::new(device, planted);
    let mut answer = |answer: &Answer| -> io::Result<()> {
        serde_json::to_writer(&mut answers, answer)?;
        answers.write_all(b"\n")?;
        answers.flush()
    };
    for line in requests.lines() {
        match serde_json::from_str(&line?)? {
            Request::Describe => answer(&server.describe())?,
            Request::Show(task) => {
                if let Some((case, text)) = server.show(&task) {
                    answer(&Answer::Replay { case, text })?;
                }
            }
            Request::Replay(text) => answer(&server.replay(&text))?,
            Request::Run(task) => {
                let mut failed = None;
                let is_there = server.run(&task, &mut |said| {
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

/// A device, of which one variant is open at a time.
pub struct Server {
    device: DeviceName,
    planted: Option<Planted>,
    /// The variant whose memory was taken, in the soak suite.
    taken: Option<String>,
    opened: Option<(String, Result<Opened, String>)>,
}

impl Server {
    /// A device that is opened when it is asked for something.
    pub fn new(device: DeviceName, planted: Option<Planted>) -> Self {
        Self { device, planted, taken: None, opened: None }
    }

    fn open(&mut self, variant: &str) -> &mut Result<Opened, String> {
        if self.opened.as_ref().is_none_or(|opened| opened.0 != variant) {
            // A machine goes before the next comes.
            drop(self.opened.take());
        }
        let (device, planted) = (self.device, self.planted);
        let open = || match Variant::from_name(variant) {
            Some(variant) => open_with(device, variant, planted),
            None => Err(format!("there is no variant `{variant}`")),
        };
        &mut self.opened.get_or_insert_with(|| (variant.to_owned(), open())).1
    }

    /// What the device is.
    pub fn describe(&mut self) -> Answer {
        let device = self.device;
        // Before what it computes is known.
        let variant = match device {
            DeviceName::Vulkan(_) => Variant::AnyArithmetic,
            _ => Variant::AsItIs,
        };
        described(device, self.open(variant.name()))
    }

    /// Runs a group. False if the device is lost.
    pub fn run(&mut self, task: &Task, say: &mut dyn FnMut(Answer)) -> bool {
        if let Some(Group::Tokens(number)) = Group::from_name(&task.group) {
            groups::tokens::run(number, task, self.device, &mut |event| say(answer_of(event)));
            return true;
        }
        let takes_memory = task.suite == Suite::Soak && self.taken.as_ref() != Some(&task.variant);
        let opened = self.open(&task.variant);
        if let (true, Ok(Opened::Kernels(kernels))) = (takes_memory, &mut *opened) {
            kernels.take_memory();
        }
        let is_there = run(task, opened, say);
        self.taken = Some(task.variant.clone());
        is_there
    }

    /// Runs a case that is a text, in the variant that it failed in; where the device does not have that, as it is.
    pub fn replay(&mut self, text: &str) -> Answer {
        let replay = match Replay::parse(text) {
            Ok(replay) => replay,
            Err(error) => return Answer::Refused(error.to_string()),
        };
        let variant = replay.note("variant").and_then(Variant::from_name).unwrap_or(Variant::AsItIs);
        let is_there = !matches!(self.open(variant.name()), Ok(Opened::NoVariant { .. }));
        let variant = if is_there { variant } else { Variant::AsItIs };
        match self.open(variant.name()) {
            Ok(Opened::Kernels(kernels)) => {
                let (outcome, now) = replay.run_again(&mut **kernels);
                Answer::Replayed { outcome, text: now.text() }
            }
            Ok(Opened::Plans { name }) => {
                Answer::Refused(format!("{name} runs whole plans and no kernels; give another --device"))
            }
            Ok(Opened::NoVariant { reason }) | Err(reason) => Answer::Refused(reason.clone()),
        }
    }

    /// The next case of a group with its text.
    pub fn show(&mut self, task: &Task) -> Option<(String, String)> {
        let group = Group::from_name(&task.group)?;
        match self.open(&task.variant) {
            Ok(Opened::Kernels(kernels)) => groups::show(group, task, &mut **kernels),
            _ => None,
        }
    }
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

fn answer_of(event: Event<'_>) -> Answer {
    match event {
        Event::Begin(name) => Answer::Begin(name.to_owned()),
        Event::Row(row) => Answer::Row(Box::new(row)),
        Event::Reducing(name) => Answer::Reducing(name.to_owned()),
        Event::Replay { case, text } => Answer::Replay { case: case.to_owned(), text },
    }
}

/// False if the device is lost.
fn run(task: &Task, opened: &mut Result<Opened, String>, say: &mut dyn FnMut(Answer)) -> bool {
    let whole = |outcome: Outcome| Answer::Row(Box::new(task.row("all", outcome, Duration::ZERO)));
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
            return groups::run(group, task, &mut **kernels, &mut |event| say(answer_of(event)));
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

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
