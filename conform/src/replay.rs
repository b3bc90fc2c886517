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
//! of what is expected and found only those buffers are there that the kernel writes. Start reading at [`Replay`].

use std::fmt::Write;

use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::interp::run;
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::{Kernel, parse, verify};
use unisonic_gpu::machine::MachineError;
use unisonic_shaders::{Probe, Question};
use unisonic_vulkan::driver::Shader;

use crate::kernels::{Code, Facts, Kernels, Shaders};
use crate::open::disassembled;
use crate::outcome::{Difference, Outcome, words};
use crate::reduce::{Failing, LaunchData, REPEATS};
use crate::suite::Task;

const FIRST_LINE: &str = "unisonic replay 1";
/// Words of a line.
const LINE_WORDS: usize = 8;
/// Longest buffer that is read.
const MAX_BUFFER_WORDS: usize = 1 << 24;

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

    /// Reads a text.
    pub fn parse(text: &str) -> Result<Self, ReplayError> {
        let mut reader = Reader { lines: text.lines().enumerate().collect(), at: 0 };
        reader.replay()
    }

    /// Runs it on a device; a kernel legalised for it.
    pub fn run(&self, kernels: &mut dyn Kernels) -> Outcome {
        self.run_again(kernels).0
    }

    /// The same, and the replay as it is of this device.
    pub fn run_again(&self, kernels: &mut dyn Kernels) -> (Outcome, Self) {
        let mut now = Self { found: None, ..self.clone() };
        let ran = match &self.program {
            Program::Kernel(kernel) => now.run_kernel(kernel, kernels),
            Program::Shader(shader) => match kernels.shaders() {
                Some(shaders) => now.run_shader(shader, shaders),
                None => {
                    let reason = "probes are SPIR-V, which the device does not take";
                    Ok(Outcome::not_applicable(reason))
                }
            },
        };
        let outcome = ran.unwrap_or_else(|error| Outcome::failed(error.to_string()));
        let facts = kernels.facts();
        let difference = outcome.reason().unwrap_or_else(|| "none".to_owned()).replace('\n', " ");
        for (name, value) in [
            ("device", &facts.device),
            ("hardware", &facts.name),
            ("driver", &facts.driver),
            ("difference", &difference),
        ] {
            match now.notes.iter_mut().find(|note| note.0 == name) {
                Some(note) => note.1 = value.clone(),
                None => now.notes.push((name.to_owned(), value.clone())),
            }
        }
        (outcome, now)
    }

    fn run_kernel(&mut self, kernel: &Kernel, kernels: &mut dyn Kernels) -> Result<Outcome, MachineError> {
        if let Some(fault) = verify(kernel).first() {
            return Ok(Outcome::failed(format!("the kernel does not verify: {fault}")));
        }
        let mut launch = self.launch.launch();
        if let Err(trap) = run(kernel, &mut launch) {
            return Ok(Outcome::failed(format!("the interpreter does not run the kernel: {trap}")));
        }
        if launch.buffers != self.expected {
            let reason = "the file expects other bits than the interpreter finds: it was changed, or the tool is wrong";
            return Ok(Outcome::failed(reason));
        }
        let legal = legalize(kernel, &kernels.facts().hardware.caps);
        if let Some(reason) = kernels.misfit(&legal) {
            return Ok(Outcome::not_applicable(reason));
        }
        let Code { language, text } = kernels.code(&legal);
        self.code = Some((language.name().to_owned(), text));
        let mut difference = None;
        let expected = &self.expected;
        let mut last = None;
        kernels.run(&legal, &self.launch.launch(), REPEATS, &mut |found| {
            difference = Difference::of_buffers(kernel, expected, &found);
            last = Some(found);
            difference.is_none()
        })?;
        self.found = last;
        Ok(of_difference(difference))
    }

    fn run_shader(&mut self, shader: &Shader, shaders: &mut dyn Shaders) -> Result<Outcome, MachineError> {
        let ([input, _], [_, expected]) = (&self.launch.buffers[..], &self.expected[..]) else {
            return Ok(Outcome::failed("a probe has an input and an output"));
        };
        let expected = words(expected);
        let found = shaders.run_shader(shader, &words(input), self.launch.groups, expected.len())?;
        let others: Vec<Vec<u32>> = self.permitted.iter().map(|output| words(output)).collect();
        // What is permitted is as good as what is expected.
        let right = expected.iter().zip(&found).enumerate().map(|(at, (expected, found))| {
            if others.iter().any(|other| other.get(at) == Some(found)) { *found } else { *expected }
        });
        let right: Vec<u32> = right.collect();
        let bytes = found.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.found = Some(vec![input.clone(), bytes]);
        Ok(of_difference(Difference::of_words([("output", &right[..], &found[..])])))
    }
}

fn of_difference(difference: Option<Difference>) -> Outcome {
    match difference {
        None => Outcome::Passed,
        difference => Outcome::Failed { reason: "other bits".to_owned(), difference },
    }
}

fn put_words(text: &mut String, words: &[u32]) {
    for line in words.chunks(LINE_WORDS) {
        let line: Vec<String> = line.iter().map(|word| format!("{word:08x}")).collect();
        let _ = writeln!(text, "{}", line.join(" "));
    }
}

struct Reader<'a> {
    lines: Vec<(usize, &'a str)>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn error<T>(&self, problem: impl Into<String>) -> Result<T, ReplayError> {
        let line = self.at.min(self.lines.len());
        Err(ReplayError { line, problem: problem.into() })
    }

    fn next(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.at)?.1;
        self.at += 1;
        Some(line)
    }

    /// Lines up to the next section.
    fn section(&mut self) -> Vec<&'a str> {
        let mut lines = vec![];
        while let Some(&(_, line)) = self.lines.get(self.at).filter(|line| !line.1.starts_with('[')) {
            lines.push(line);
            self.at += 1;
        }
        lines
    }

    fn replay(&mut self) -> Result<Replay, ReplayError> {
        if self.next() != Some(FIRST_LINE) {
            return self.error(format!("expected `{FIRST_LINE}`"));
        }
        let notes = self.section().into_iter().filter_map(|line| line.split_once(": "));
        let notes = notes.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let program = match self.next() {
            Some("[kernel]") => {
                let start = self.at;
                let kernel = parse(&self.section().join("\n"))
                    .map_err(|error| ReplayError { line: start + error.line, problem: error.problem })?;
                Program::Kernel(kernel)
            }
            Some("[shader]") => Program::Shader(self.shader()?),
            _ => return self.error("expected `[kernel]` or `[shader]`"),
        };
        if self.next() != Some("[launch]") {
            return self.error("expected `[launch]`");
        }
        let mut launch = self.launch()?;
        let (mut expected, mut found, mut permitted) = (vec![], vec![], vec![]);
        let mut code = None;
        while let Some(head) = self.next() {
            let head = head.trim_matches(['[', ']']);
            let (section, name) = head.split_once(' ').unwrap_or((head, ""));
            match section {
                "buffer" => launch.buffers.push(self.words()?),
                "expected" => expected.push(self.words()?),
                "found" => found.push(self.words()?),
                "permitted" => permitted.push(self.words()?),
                "code" => {
                    let rest = self.lines[self.at..].iter().map(|line| format!("{}\n", line.1)).collect();
                    self.at = self.lines.len();
                    code = Some((name.to_owned(), rest));
                }
                _ => return self.error(format!("`[{head}]` is no section")),
            }
        }
        let expected = self.whole(&program, &launch, expected)?;
        let found = match found.is_empty() {
            true => None,
            false => Some(self.whole(&program, &launch, found)?),
        };
        let params = match &program {
            Program::Kernel(kernel) => kernel.params.len(),
            Program::Shader(_) => 0,
        };
        if launch.params.len() != params {
            return self.error(format!("expected {params} parameters"));
        }
        Ok(Replay { notes, program, launch, expected, permitted, found, code })
    }

    fn shader(&mut self) -> Result<Shader, ReplayError> {
        let [workgroup, exchanges] = ["workgroup ", "exchanges "]
            .map(|name| self.next().and_then(|line| line.strip_prefix(name)).unwrap_or_default());
        let (Ok(workgroup), Ok(exchanges)) = (workgroup.parse(), exchanges.parse()) else {
            return self.error("expected `workgroup` with a number and `exchanges` with true or false");
        };
        Ok(Shader { words: words(&self.words()?), workgroup, exchanges })
    }

    fn launch(&mut self) -> Result<LaunchData, ReplayError> {
        let (mut groups, mut params) = (None, vec![]);
        for line in self.section().into_iter().filter(|line| !line.is_empty()) {
            match line.split_once(' ') {
                Some(("groups", number)) => groups = number.parse().ok(),
                Some(("param", word)) => match u32::from_str_radix(word, 16) {
                    Ok(word) => params.push(word),
                    Err(_) => return self.error(format!("`{word}` is no word in hexadecimal")),
                },
                _ => return self.error(format!("expected `groups` or `param`, found `{line}`")),
            }
        }
        match groups {
            Some(groups) => Ok(LaunchData { groups, params, buffers: vec![] }),
            None => self.error("expected a number of `groups`"),
        }
    }

    fn words(&mut self) -> Result<Vec<u8>, ReplayError> {
        let mut bytes = vec![];
        for word in self.section().into_iter().flat_map(str::split_whitespace) {
            match u32::from_str_radix(word, 16) {
                Ok(word) if bytes.len() / 4 < MAX_BUFFER_WORDS => bytes.extend(word.to_le_bytes()),
                Ok(_) => return self.error(format!("a buffer of more than {MAX_BUFFER_WORDS} words")),
                Err(_) => return self.error(format!("`{word}` is no word in hexadecimal")),
            }
        }
        Ok(bytes)
    }

    /// All buffers, of which those that the kernel writes are given.
    fn whole(
        &self,
        program: &Program,
        launch: &LaunchData,
        written: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, ReplayError> {
        let mut written = written.into_iter();
        let mut all = vec![];
        let mut before = launch.buffers.iter();
        for (_, is_written) in program.buffers() {
            let Some(before) = before.next() else { return self.error("a buffer is missing") };
            match is_written {
                false => all.push(before.clone()),
                true => match written.next() {
                    Some(buffer) if buffer.len() == before.len() => all.push(buffer),
                    _ => return self.error("a buffer after the launch is missing, or of another length"),
                },
            }
        }
        match (before.next(), written.next()) {
            (None, None) => Ok(all),
            _ => self.error("there are more buffers than objects"),
        }
    }
}
