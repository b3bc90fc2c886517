//! A failing kernel as a text that anybody can read, and run again: what is attached to a report of a fault.
//!
//! ```text
//! unisonic replay 1
//! case: op/fadd fadd_f32_f32_f32_64_0
//! device: vulkan:0
//! ...
//! [kernel]
//! kernel alone_fadd workgroup 64 { ... }
//! [launch]
//! groups 1
//! [buffer]
//! 00000000 3f800000 ...
//! [expected]
//! [found]
//! [code spir-v]
//! ...
//! ```
//!
//! A probe has `[shader]` in the place of `[kernel]`: invocations of a workgroup, whether subgroups exchange, the words of
//! SPIR-V; and sections `[permitted]` with outputs that are as good as what is expected.
//!
//! Buffers are little-endian words in the order of the kernel's objects that are not shared, each in a section of its own;
//! of what is expected and found only those buffers are there that the kernel writes. `read` makes a [`Replay`] of a text, `run` runs it.
//! Start reading at [`Replay`].

mod read;
mod run;

use std::fmt::Write;

use unisonic_core::kir::Kernel;
use unisonic_core::kir::abi::addressed;
use unisonic_shaders::{Probe, Question};
use unisonic_vulkan::driver::Shader;

use crate::kernels::{Code, Facts, Kernels, Shaders};
use crate::open::disassembled;
use crate::outcome::{Difference, words};
use crate::reduce::{Failing, LaunchData};
use crate::suite::Task;

const FIRST_LINE: &str = "unisonic replay 1";
/// Words of a line.
const LINE_WORDS: usize = 8;

/// A failing kernel, where it failed, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Lines `name: value` for people: which case, device, driver.
    pub notes: Vec<(String, String)>,
    /// What runs.
    pub program: Program,
    /// Its launch.
    pub launch: LaunchData,
    /// What has to be in the buffers afterwards.
    pub expected: Vec<Vec<u8>>,
    /// Of a probe, other outputs, of which each word is as good.
    pub permitted: Vec<Vec<u8>>,
    /// What was there; none if the device gave nothing.
    pub found: Option<Vec<Vec<u8>>>,
    /// What the device was given.
    pub code: Option<(String, String)>,
}

/// What runs on a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// A kernel of the kernel IR: on any device.
    Kernel(Kernel),
    /// SPIR-V that people wrote: on Vulkan devices.
    Shader(Shader),
}

impl Program {
    /// Invocations of a workgroup.
    pub fn workgroup(&self) -> u32 {
        match self {
            Self::Kernel(kernel) => kernel.workgroup,
            Self::Shader(shader) => shader.workgroup,
        }
    }

    /// For each buffer its name, and whether it is written.
    fn buffers(&self) -> Vec<(String, bool)> {
        match self {
            Self::Kernel(kernel) => addressed(kernel)
                .map(|id| {
                    let object = &kernel.objects[id.index()];
                    (object.name.clone(), object.space.is_writable())
                })
                .collect(),
            Self::Shader(_) => vec![("input".to_owned(), false), ("output".to_owned(), true)],
        }
    }
}

/// A file that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ReplayError {
    /// Line, from 1.
    pub line: usize,
    /// What was expected, and what was found.
    pub problem: String,
}

impl Replay {
    /// Of a case that failed on a device.
    pub fn new(case: &str, variant: &str, failing: &Failing, kernels: &dyn Kernels) -> Self {
        let facts = kernels.facts();
        let len_bytes = failing.launch.len_bytes();
        let invocations = failing.kernel.workgroup * failing.launch.groups;
        let size = format!("{} operations, {invocations} invocations, {len_bytes} bytes", failing.operations);
        let what = match &failing.found {
            Ok(found) => Difference::of_buffers(&failing.kernel, &failing.expected, found)
                .map_or("no difference".to_owned(), |difference| difference.to_string()),
            Err(error) => error.clone(),
        };
        let notes = [
            ("case", case),
            ("variant", variant),
            ("device", &facts.device),
            ("hardware", &facts.name),
            ("driver", &facts.driver),
            ("size", &size),
            ("difference", &what),
        ];
        let Code { language, text } = kernels.code(&failing.kernel);
        Self {
            notes: notes.map(|(name, value)| (name.to_owned(), value.replace('\n', " "))).into(),
            program: Program::Kernel(failing.kernel.clone()),
            launch: failing.launch.clone(),
            expected: failing.expected.clone(),
            permitted: vec![],
            found: failing.found.clone().ok(),
            code: Some((language.name().to_owned(), text)),
        }
    }

    /// Of a probe that gave wrong results: the first workgroup with one.
    pub fn of_probe(
        task: &Task,
        probe: &Probe,
        question: Option<&Question>,
        found: &[u32],
        shaders: &dyn Shaders,
        facts: &Facts,
    ) -> Self {
        let probe_facts = shaders.probe_facts();
        let (input, groups) = (probe.input(), probe.groups() as usize);
        let wrong = match question {
            Some(question) => question.judge(found, probe_facts).wrong,
            None => (0..found.len()).filter(|&at| found[at] != probe.expected(probe_facts)[at]).collect(),
        };
        let group = wrong.first().copied().unwrap_or(0) / (found.len() / groups).max(1);
        let part = |words: &[u32]| {
            let len = words.len() / groups;
            words[group * len..][..len].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
        };
        let (input, output) = (part(&input), part(&probe.expected(probe_facts)));
        let permitted = question.map(|question| question.permitted(probe_facts)).unwrap_or_default();
        let found = part(found);
        let difference = Difference::of_words([("output", &words(&output)[..], &words(&found)[..])]);
        let shader = Shader::of_probe(probe);
        let Code { language, text } = disassembled(&shader.words);
        let len_bytes = input.len() + output.len();
        let size = format!("1 operation, {} invocations, {len_bytes} bytes", probe.workgroup);
        let difference = difference.map_or("no difference".to_owned(), |difference| difference.to_string());
        let notes = [
            ("case", &task.group[..]),
            ("shown by", &task.group),
            ("variant", &task.variant),
            ("device", &facts.device),
            ("hardware", &facts.name),
            ("driver", &facts.driver),
            ("size", &size),
            ("difference", &difference),
        ];
        Self {
            notes: notes.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            program: Program::Shader(shader),
            launch: LaunchData {
                groups: 1,
                params: vec![],
                buffers: vec![input.clone(), vec![0; output.len()]],
            },
            expected: vec![input.clone(), output],
            permitted: permitted.iter().map(|words| part(words)).collect(),
            found: Some(vec![input, found]),
            code: Some((language.name().to_owned(), text)),
        }
    }

    /// The note of a name.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.iter().find(|note| note.0 == name).map(|note| note.1.as_str())
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (name, value) in &self.notes {
            let _ = writeln!(text, "{name}: {value}");
        }
        match &self.program {
            Program::Kernel(kernel) => drop(writeln!(text, "\n[kernel]\n{kernel}")),
            Program::Shader(Shader { words, workgroup, exchanges }) => {
                let _ = writeln!(text, "\n[shader]\nworkgroup {workgroup}\nexchanges {exchanges}");
                put_words(&mut text, words);
            }
        }
        let _ = writeln!(text, "\n[launch]\ngroups {}", self.launch.groups);
        for word in &self.launch.params {
            let _ = writeln!(text, "param {word:08x}");
        }
        let mut put = |section: &str, buffers: &[Vec<u8>], all: bool| {
            for ((name, is_written), bytes) in self.program.buffers().iter().zip(buffers) {
                if all || *is_written {
                    let _ = writeln!(text, "\n[{section} {name}]");
                    put_words(&mut text, &words(bytes));
                }
            }
        };
        put("buffer", &self.launch.buffers, true);
        put("expected", &self.expected, false);
        for output in &self.permitted {
            put("permitted", &[vec![], output.clone()], false);
        }
        if let Some(found) = &self.found {
            put("found", found, false);
        }
        if let Some((language, code)) = &self.code {
            let _ = write!(text, "\n[code {language}]\n{code}");
            if !code.ends_with('\n') {
                text.push('\n');
            }
        }
        text
    }
}

fn put_words(text: &mut String, words: &[u32]) {
    for line in words.chunks(LINE_WORDS) {
        let line: Vec<String> = line.iter().map(|word| format!("{word:08x}")).collect();
        let _ = writeln!(text, "{}", line.join(" "));
    }
}
