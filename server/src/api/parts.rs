//! The parts of an answer, told apart as its text comes: reasoning, what is said, and calls of tools.

use std::sync::Arc;

use serde::de::IgnoredAny;

use super::tools::{Call, Calls};

const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const TAG: &str = "<tool_call>";
const TAG_END: &str = "</tool_call>";
const MARK: &str = "[TOOL_CALLS]";
const PYTHON: &str = "<|python_tag|>";

/// Control tokens that are text for [`Parts`], where a model has them.
pub const MARKS: [&str; 8] = [THINK, THINK_END, TAG, TAG_END, MARK, "[ARGS]", "[CALL_ID]", PYTHON];

/// Some more of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the model thinks before it answers.
    Reasoning(String),
    /// What it says.
    Content(String),
    /// What it calls, whole.
    Call(Call),
}

/// What an answer may have beside its content.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// How tools are called; none: they are not.
    pub calls: Option<Calls>,
    /// The tools that there are: what has another name is no call.
    pub names: Arc<[String]>,
    /// Whether a call may follow another.
    pub parallel: bool,
    /// Whether reasoning is marked.
    pub reasons: bool,
    /// Whether the prompt has begun it.
    pub begins_reasoning: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before all, where reasoning may begin.
    Start,
    Reasoning,
    /// Before the content, whose white space at the beginning is not part of it.
    BeforeContent,
    Content,
    /// In a call that has an end mark.
    Tagged,
    /// In calls that end with the answer.
    ToTheEnd,
}

/// Tells the parts apart.
pub struct Parts {
    rules: Rules,
    state: State,
    /// Text whose part is not known yet.
    held: String,
    /// Whether reasoning has begun with something else than white space.
    reasoned: bool,
    calls: usize,
}

impl Parts {
    /// Of an answer.
    pub fn new(rules: Rules) -> Self {
        let state = match (rules.begins_reasoning, rules.reasons, rules.calls) {
            (true, ..) => State::Reasoning,
            (_, true, _) => State::Start,
            (.., Some(_)) => State::BeforeContent,
            _ => State::Content,
        };
        Self { rules, state, held: String::new(), reasoned: false, calls: 0 }
    }

    /// Takes some text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.advance(&mut parts) {}
        parts
    }

    /// The answer has ended.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Reasoning => add(&mut parts, Part::Reasoning, held.trim_end()),
            State::Tagged | State::ToTheEnd => self.read_calls(&held, "", &mut parts),
            State::Start | State::BeforeContent if self.calls > 0 => {}
            State::Content if self.calls > 0 => add(&mut parts, Part::Content, held.trim_end()),
            State::Start | State::BeforeContent | State::Content => add(&mut parts, Part::Content, &held),
        }
        parts
    }

    /// Goes on as far as what is held says what it is; whether the state changed.
    fn advance(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.state {
            State::Start => self.start(),
            State::Reasoning => self.reasoning(parts),
            State::BeforeContent => self.before_content(),
            State::Content => self.content(parts),
            State::Tagged => self.tagged(parts),
            State::ToTheEnd => false,
        }
    }

    fn start(&mut self) -> bool {
        let text = self.held.trim_start();
        if let Some(rest) = text.strip_prefix(THINK) {
            (self.held, self.state) = (rest.to_owned(), State::Reasoning);
            return true;
        }
        if THINK.starts_with(text) {
            return false;
        }
        self.state = if self.rules.calls.is_some() { State::BeforeContent } else { State::Content };
        true
    }

    fn reasoning(&mut self, parts: &mut Vec<Part>) -> bool {
        if !self.reasoned {
            self.held = self.held.trim_start().to_owned();
            self.reasoned = !self.held.is_empty();
        }
        if let Some((reasoning, rest)) = self.held.split_once(THINK_END) {
            add(parts, Part::Reasoning, reasoning.trim_end());
            (self.held, self.state) = (rest.trim_start().to_owned(), State::BeforeContent);
            return true;
        }
        let out = self.release(THINK_END);
        add(parts, Part::Reasoning, &out);
        false
    }

    fn before_content(&mut self) -> bool {
        let text = self.held.trim_start();
        if text.is_empty() {
            return false;
        }
        if self.rules.calls == Some(Calls::Bare) {
            if PYTHON.starts_with(text) && text != PYTHON {
                return false;
            }
            if text.starts_with('{') || text.starts_with(PYTHON) {
                self.state = State::ToTheEnd;
                return true;
            }
        }
        (self.held, self.state) = (text.to_owned(), State::Content);
        true
    }

    fn content(&mut self, parts: &mut Vec<Part>) -> bool {
        let mark = match self.rules.calls {
            None | Some(Calls::Bare) => {
                add(parts, Part::Content, &std::mem::take(&mut self.held));
                return false;
            }
            Some(Calls::Marked) => MARK,
            Some(Calls::Tagged | Calls::Told) => TAG,
        };
        if let Some((content, rest)) = self.held.split_once(mark) {
            add(parts, Part::Content, content.trim_end());
            self.state = if mark == MARK { State::ToTheEnd } else { State::Tagged };
            self.held = rest.to_owned();
            return true;
        }
        let out = self.release(mark);
        add(parts, Part::Content, &out);
        false
    }

    fn tagged(&mut self, parts: &mut Vec<Part>) -> bool {
        // Where the JSON has not ended the mark is a part of its text.
        let is_whole = |&(at, _): &(usize, &str)| {
            let call = self.held.get(..at).unwrap_or_default().trim();
            !serde_json::from_str::<IgnoredAny>(call).is_err_and(|error| error.is_eof())
        };
        let Some((at, _)) = self.held.match_indices(TAG_END).find(is_whole) else { return false };
        let rest = self.held.get(at + TAG_END.len()..).unwrap_or_default().to_owned();
        let call = self.held.get(..at).unwrap_or_default().to_owned();
        self.read_calls(&call, TAG_END, parts);
        (self.held, self.state) = (rest, State::BeforeContent);
        true
    }

    /// Calls, or if they are none that can be read, what the model wrote.
    fn read_calls(&mut self, text: &str, end: &str, parts: &mut Vec<Part>) {
        let Some(how) = self.rules.calls else { return };
        let plain = text.trim_start().strip_prefix(PYTHON).unwrap_or(text);
        let is_known = |call: &Call| self.rules.names.contains(&call.name);
        match Call::read(how, plain).filter(|calls| calls.iter().all(is_known)) {
            Some(calls) => {
                for call in calls {
                    if self.calls == 0 || self.rules.parallel {
                        self.calls += 1;
                        parts.push(Part::Call(call));
                    }
                }
            }
            None => {
                let mark = match how {
                    Calls::Tagged | Calls::Told => TAG,
                    Calls::Marked => MARK,
                    Calls::Bare => "",
                };
                add(parts, Part::Content, &format!("{mark}{text}{end}"));
            }
        }
    }

    /// Takes out what cannot belong to a mark, nor be white space in front of one.
    fn release(&mut self, mark: &str) -> String {
        let starts =
            |len: &usize| self.held.as_bytes().ends_with(mark.as_bytes().get(..*len).unwrap_or_default());
        let overlap = (1..mark.len()).rev().find(starts).unwrap_or(0);
        let before = self.held.get(..self.held.len() - overlap).unwrap_or_default();
        let rest = self.held.split_off(before.trim_end().len());
        std::mem::replace(&mut self.held, rest)
    }
}

fn add(parts: &mut Vec<Part>, part: fn(String) -> Part, text: &str) {
    if !text.is_empty() {
        parts.push(part(text.to_owned()));
    }
}

#[cfg(test)]
mod tests;
