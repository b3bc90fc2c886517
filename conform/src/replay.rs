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
//! Buffers are little-endian words in the order of the kernel's objects that are not shared, each in a section of its own;
//! of what is expected and found only those buffers are there that the kernel writes. Start reading at [`Replay`].

use std::fmt::Write;

use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::interp::run;
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::{Kernel, parse, verify};

use crate::kernels::{Code, Kernels};
use crate::outcome::{Difference, Outcome, words};
use crate::reduce::{Failing, LaunchData, REPEATS};

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
    /// The kernel.
    pub kernel: Kernel,
    /// Its launch.
    pub launch: LaunchData,
    /// What has to be in the buffers afterwards.
    pub expected: Vec<Vec<u8>>,
    /// What was there; none if the device gave nothing.
    pub found: Option<Vec<Vec<u8>>>,
    /// What the device was given.
    pub code: Option<(String, String)>,
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
            kernel: failing.kernel.clone(),
            launch: failing.launch.clone(),
            expected: failing.expected.clone(),
            found: failing.found.clone().ok(),
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
        let _ = writeln!(text, "\n[kernel]\n{}\n\n[launch]\ngroups {}", self.kernel, self.launch.groups);
        for word in &self.launch.params {
            let _ = writeln!(text, "param {word:08x}");
        }
        let names: Vec<&str> =
            addressed(&self.kernel).map(|id| self.kernel.objects[id.index()].name.as_str()).collect();
        let mut put = |section: &str, buffers: &[Vec<u8>], all: bool| {
            let is_read =
                addressed(&self.kernel).map(|id| !self.kernel.objects[id.index()].space.is_writable());
            for ((name, bytes), is_read) in names.iter().zip(buffers).zip(is_read) {
                if all || !is_read {
                    let _ = writeln!(text, "\n[{section} {name}]");
                    for line in words(bytes).chunks(LINE_WORDS) {
                        let line: Vec<String> = line.iter().map(|word| format!("{word:08x}")).collect();
                        let _ = writeln!(text, "{}", line.join(" "));
                    }
                }
            }
        };
        put("buffer", &self.launch.buffers, true);
        put("expected", &self.expected, false);
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

    /// Runs it on a device, legalised for it.
    pub fn run(&self, kernels: &mut dyn Kernels) -> Outcome {
        if let Some(fault) = verify(&self.kernel).first() {
            return Outcome::failed(format!("the kernel does not verify: {fault}"));
        }
        let mut launch = self.launch.launch();
        if let Err(trap) = run(&self.kernel, &mut launch) {
            return Outcome::failed(format!("the interpreter does not run the kernel: {trap}"));
        }
        if launch.buffers != self.expected {
            let reason = "the file expects other bits than the interpreter finds: it was changed, or the tool is wrong";
            return Outcome::failed(reason);
        }
        let legal = legalize(&self.kernel, &kernels.facts().hardware.caps);
        if let Some(reason) = kernels.misfit(&legal) {
            return Outcome::not_applicable(reason);
        }
        let mut difference = None;
        let ran = kernels.run(&legal, &self.launch.launch(), REPEATS, &mut |found| {
            difference = Difference::of_buffers(&self.kernel, &self.expected, &found);
            difference.is_none()
        });
        match (ran, difference) {
            (Err(error), _) => Outcome::failed(error.to_string()),
            (Ok(()), None) => Outcome::Passed,
            (Ok(()), difference) => Outcome::Failed { reason: "other bits".to_owned(), difference },
        }
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
        if self.next() != Some("[kernel]") {
            return self.error("expected `[kernel]`");
        }
        let start = self.at;
        let kernel = parse(&self.section().join("\n"))
            .map_err(|error| ReplayError { line: start + error.line, problem: error.problem })?;
        if self.next() != Some("[launch]") {
            return self.error("expected `[launch]`");
        }
        let mut launch = self.launch()?;
        let (mut expected, mut found): (Vec<Vec<u8>>, Vec<Vec<u8>>) = Default::default();
        let mut code = None;
        while let Some(head) = self.next() {
            let head = head.trim_matches(['[', ']']);
            let (section, name) = head.split_once(' ').unwrap_or((head, ""));
            match section {
                "buffer" => launch.buffers.push(self.words()?),
                "expected" => expected.push(self.words()?),
                "found" => found.push(self.words()?),
                "code" => {
                    let rest = self.lines[self.at..].iter().map(|line| format!("{}\n", line.1)).collect();
                    self.at = self.lines.len();
                    code = Some((name.to_owned(), rest));
                }
                _ => return self.error(format!("`[{head}]` is no section")),
            }
        }
        let expected = self.whole(&kernel, &launch, expected)?;
        let found = match found.is_empty() {
            true => None,
            false => Some(self.whole(&kernel, &launch, found)?),
        };
        if launch.params.len() != kernel.params.len() {
            return self.error(format!("expected {} parameters", kernel.params.len()));
        }
        Ok(Replay { notes, kernel, launch, expected, found, code })
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
        kernel: &Kernel,
        launch: &LaunchData,
        written: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, ReplayError> {
        let mut written = written.into_iter();
        let mut all = vec![];
        let mut before = launch.buffers.iter();
        for id in addressed(kernel) {
            let Some(before) = before.next() else { return self.error("a buffer is missing") };
            match kernel.objects[id.index()].space.is_writable() {
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
