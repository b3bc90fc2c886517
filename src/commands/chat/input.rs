//! Messages as they are typed, or as stdin has them.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::Context;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, Config, Editor, EventHandler, Helper, Highlighter, Hinter, KeyCode, KeyEvent, Modifiers,
};

use super::command::NAMES;

const PROMPT: &str = "> ";
/// A line of this alone begins and ends a message of many lines.
const FENCE: &str = "\"\"\"";

/// What was typed.
pub enum Line {
    /// A message or a command.
    Message(String),
    /// Ctrl-C.
    Interrupted,
    /// Nothing more comes.
    End,
}

/// Where messages come from.
pub enum Input {
    /// Lines that can be edited, with those before.
    Terminal {
        editor: Box<Editor<Whole, DefaultHistory>>,
        /// The file that keeps them.
        history: Option<PathBuf>,
    },
    /// Whatever stdin is.
    Stdin,
}

impl Input {
    /// Opens stdin.
    pub fn open(history: Option<PathBuf>) -> anyhow::Result<Self> {
        // What is typed has to be seen: without a terminal to write to there is nothing to edit.
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            return Ok(Self::Stdin);
        }
        let config = Config::builder().history_ignore_dups(true)?.auto_add_history(true).build();
        let mut editor = Editor::with_config(config).context("cannot use the terminal")?;
        editor.set_helper(Some(Whole));
        let alt_enter = KeyEvent(KeyCode::Enter, Modifiers::ALT);
        editor.bind_sequence(alt_enter, EventHandler::Simple(Cmd::Newline));
        if let Some(path) = history.as_ref().filter(|path| path.exists()) {
            editor.load_history(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        Ok(Self::Terminal { editor: Box::new(editor), history })
    }

    /// Whether a person types.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// The next message.
    pub fn next(&mut self) -> anyhow::Result<Line> {
        match self {
            Self::Terminal { editor, .. } => match editor.readline(PROMPT) {
                Ok(line) => Ok(Line::Message(message(&line))),
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(error) => Err(anyhow::Error::new(error).context("cannot read from the terminal")),
            },
            Self::Stdin => {
                let mut text = String::new();
                while text.is_empty() || !is_whole(&text) {
                    let before = text.len();
                    std::io::stdin().lock().read_line(&mut text).context("cannot read from stdin")?;
                    if text.len() == before {
                        break;
                    }
                }
                Ok(if text.is_empty() { Line::End } else { Line::Message(message(&text)) })
            }
        }
    }

    /// Keeps what was typed, if it is to be kept.
    pub fn close(self) -> anyhow::Result<()> {
        let Self::Terminal { mut editor, history: Some(path) } = self else { return Ok(()) };
        editor.save_history(&path).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Whether a message ends with this text.
fn is_whole(text: &str) -> bool {
    let mut lines = text.lines();
    if lines.next().map(str::trim) == Some(FENCE) {
        return lines.any(|line| line.trim() == FENCE);
    }
    !text.lines().next_back().is_some_and(|line| line.ends_with('\\'))
}

/// What is meant by what was typed: without what joins lines.
fn message(text: &str) -> String {
    let text = text.trim_end_matches(['\r', '\n']);
    let mut lines = text.lines();
    if lines.next().map(str::trim) == Some(FENCE) {
        return lines.take_while(|line| line.trim() != FENCE).collect::<Vec<_>>().join("\n");
    }
    let joined = |line: &str| line.strip_suffix('\\').unwrap_or(line).to_owned();
    text.lines().map(joined).collect::<Vec<_>>().join("\n")
}

/// Knows when a message is whole, and the commands.
#[derive(Helper, Highlighter, Hinter)]
pub struct Whole;

impl Validator for Whole {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let whole = is_whole(typed.input());
        Ok(if whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Whole {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = line.get(..at).unwrap_or_default();
        let names = NAMES.iter().filter(|name| !typed.is_empty() && name.starts_with(typed));
        let pair = |name: &&str| Pair { display: name.to_string(), replacement: name.to_string() };
        Ok((0, names.map(pair).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_go_on_are_one_message() {
        for (typed, whole, meant) in [
            ("a\n", true, "a"),
            ("a\\", false, "a"),
            ("a\\\nb\n", true, "a\nb"),
            ("a\nb", true, "a\nb"),
            ("\"\"\"\na\\\n", false, "a\\"),
            ("\"\"\"\na\n\nb\n\"\"\"\n", true, "a\n\nb"),
            ("say \"\"\"", true, "say \"\"\""),
            ("a \\ b", true, "a \\ b"),
            ("a\r\n", true, "a"),
        ] {
            assert_eq!((is_whole(typed), message(typed).as_str()), (whole, meant), "{typed:?}");
        }
    }
}
