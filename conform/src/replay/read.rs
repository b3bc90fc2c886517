//! From a text to a replay. The text may be anybody's.

use unisonic_core::kir::parse;
use unisonic_vulkan::driver::Shader;

use super::{FIRST_LINE, Program, Replay, ReplayError};
use crate::outcome::words;
use crate::reduce::LaunchData;

/// Longest buffer that is read.
const MAX_BUFFER_WORDS: usize = 1 << 24;
/// Most invocations of a launch: a failure that was made small has 64, and a device that is given a billion is gone for a while.
const MAX_INVOCATIONS: u32 = 1 << 22;

impl Replay {
    /// Reads a text.
    pub fn parse(text: &str) -> Result<Self, ReplayError> {
        let mut reader = Reader { lines: text.lines().enumerate().collect(), at: 0 };
        reader.replay()
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
        let invocations = launch.groups.checked_mul(program.workgroup());
        if invocations.is_none_or(|count| count == 0 || count > MAX_INVOCATIONS) {
            let (groups, workgroup) = (launch.groups, program.workgroup());
            return self.error(format!(
                "{groups} workgroups of {workgroup} invocations; expected 1 to {MAX_INVOCATIONS} invocations in all"
            ));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_never_ends_is_refused() {
        let text = |groups: &str| {
            format!(
                "unisonic replay 1\ncase: a\n[kernel]\nkernel nothing workgroup 64 {{\n}}\n[launch]\ngroups {groups}\n"
            )
        };
        let replay = Replay::parse(&text("1")).expect("a kernel without buffers");
        assert_eq!((replay.launch.groups, replay.program.workgroup()), (1, 64));
        for groups in ["0", "65537", "4294967295"] {
            let error = Replay::parse(&text(groups)).expect_err(groups);
            assert!(error.problem.contains("workgroups of 64"), "{error}");
        }
    }
}
