//! What a server does, from its metrics.

use std::fmt::Write as _;

use serde::Serialize;

use super::exposition::Sample;
use crate::output::{aligned, bytes};

/// What a server does. Rates are over the time since the reading before, and missing in the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct State {
    /// Name of the model; none while it cannot answer.
    pub model: Option<String>,
    /// What it runs on.
    pub device: Option<String>,
    /// Its arithmetic.
    pub profile: Option<String>,
    /// Longest sequence.
    pub context_tokens: Option<u64>,
    /// Answers that are worked on, that wait, and that had no place.
    pub running: u64,
    pub waiting: u64,
    pub refused: u64,
    pub cancelled: u64,
    pub failed_steps: u64,
    /// KV pages by use.
    pub kv_pages_held: u64,
    pub kv_pages_cached: u64,
    pub kv_pages_free: u64,
    /// Sums since the start.
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    /// Generations that came to their end.
    pub answers: u64,
    /// Means since the reading before, or if there was nothing, since the start.
    pub first_token_seconds: Option<f64>,
    pub request_seconds: Option<f64>,
    pub prompt_tokens_per_second: Option<f64>,
    pub generated_tokens_per_second: Option<f64>,
    pub steps_per_second: Option<f64>,
    /// Processors in use.
    pub cpus: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub slots: Vec<SlotState>,
}

/// A request that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SlotState {
    pub slot: u64,
    pub seconds: f64,
    pub prompt_tokens: u64,
    pub known_tokens: u64,
    pub generated_tokens: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
}

impl SlotState {
    /// Guesses that came true, in percent.
    pub fn acceptance(&self) -> Option<f64> {
        percent(self.accepted_tokens, self.drafted_tokens)
    }

    /// Whether the prompt is being read.
    pub fn reads(&self) -> bool {
        self.generated_tokens == 0
    }
}

/// `part` of `whole` in percent.
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// A reading of the metrics.
pub struct Reading(pub Vec<Sample>);

impl Reading {
    fn number(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|sample| sample.name == name).map(|sample| sample.value)
    }

    fn count(&self, name: &str) -> u64 {
        self.number(name).unwrap_or_default() as u64
    }

    /// Whether these are metrics of a server of ours.
    pub fn is_ours(&self) -> bool {
        self.number("unisonic_steps_total").is_some()
    }

    /// What the server does, with the reading so many seconds before.
    pub fn state(&self, before: Option<(&Self, f64)>) -> State {
        let model = self.0.iter().find(|sample| sample.name == "unisonic_model");
        let label = |name| model.and_then(|model| model.label(name)).map(str::to_owned);
        let change = |name: &str| {
            let (before, seconds) = before?;
            Some(((self.number(name)? - before.number(name)?).max(0.0), seconds))
        };
        let rate = |name: &str| change(name).map(|(change, seconds)| change / seconds);
        let mean = |name: &str| {
            let (sum, count) = (format!("{name}_sum"), format!("{name}_count"));
            let since = |of: &str| change(of).map(|(change, _)| change);
            let (sum, count) = match since(&count) {
                Some(new) if new > 0.0 => (since(&sum)?, new),
                _ => (self.number(&sum)?, self.number(&count)?),
            };
            (count > 0.0).then(|| sum / count)
        };
        State {
            model: label("model"),
            device: label("device"),
            profile: label("profile"),
            context_tokens: label("context_tokens").and_then(|tokens| tokens.parse().ok()),
            running: self.count("unisonic_requests_running"),
            waiting: self.count("unisonic_requests_waiting"),
            refused: self.count("unisonic_requests_refused_total"),
            cancelled: self.count("unisonic_requests_cancelled_total"),
            failed_steps: self.count("unisonic_failed_steps_total"),
            kv_pages_held: self.count("unisonic_kv_pages_held"),
            kv_pages_cached: self.count("unisonic_kv_pages_cached"),
            kv_pages_free: self.count("unisonic_kv_pages_free"),
            prompt_tokens: self.count("unisonic_prompt_tokens_total"),
            generated_tokens: self.count("unisonic_generated_tokens_total"),
            drafted_tokens: self.count("unisonic_drafted_tokens_total"),
            accepted_tokens: self.count("unisonic_accepted_tokens_total"),
            answers: self.count("unisonic_request_seconds_count"),
            first_token_seconds: mean("unisonic_time_to_first_token_seconds"),
            request_seconds: mean("unisonic_request_seconds"),
            prompt_tokens_per_second: rate("unisonic_prompt_tokens_total"),
            generated_tokens_per_second: rate("unisonic_generated_tokens_total"),
            steps_per_second: rate("unisonic_steps_total"),
            cpus: rate("process_cpu_seconds_total"),
            memory_bytes: self.number("process_resident_memory_bytes").map(|bytes| bytes as u64),
            slots: self.slots(),
        }
    }

    fn slots(&self) -> Vec<SlotState> {
        let in_slots = |name: &str| {
            let name = format!("unisonic_slot_{name}");
            self.0.iter().filter(move |sample| sample.name == name)
        };
        let number = |sample: &Sample| sample.label("slot")?.parse().ok();
        let mut slots: Vec<u64> = in_slots("seconds").filter_map(number).collect();
        slots.sort_unstable();
        let of = |slot: u64| {
            let value =
                |name| in_slots(name).find(|sample| number(sample) == Some(slot)).map_or(0.0, |of| of.value);
            SlotState {
                slot,
                seconds: value("seconds"),
                prompt_tokens: value("prompt_tokens") as u64,
                known_tokens: value("known_tokens") as u64,
                generated_tokens: value("generated_tokens") as u64,
                drafted_tokens: value("drafted_tokens") as u64,
                accepted_tokens: value("accepted_tokens") as u64,
            }
        };
        slots.into_iter().map(of).collect()
    }
}

/// A number with one decimal, or a dash.
pub fn short(number: Option<f64>) -> String {
    number.map_or_else(|| "-".into(), |number| format!("{number:.1}"))
}

impl State {
    /// The first line: who answers.
    pub fn head(&self) -> String {
        let (Some(model), Some(device)) = (&self.model, &self.device) else {
            return "the server cannot answer now; /health says why".into();
        };
        let context = self.context_tokens.unwrap_or_default();
        format!(
            "{model} on {device}, {} arithmetic, context of {context} tokens",
            self.profile.as_deref().unwrap_or("?")
        )
    }

    /// Pages of the KV cache. A server may say anything.
    pub fn kv_pages(&self) -> u64 {
        self.kv_pages_held.saturating_add(self.kv_pages_cached).saturating_add(self.kv_pages_free)
    }

    /// Names and values, two a line.
    pub fn figures(&self) -> Vec<[(&'static str, String); 2]> {
        let pages = self.kv_pages();
        let seconds = |of: Option<f64>| of.map_or_else(|| "-".into(), |of| format!("{of:.3} s"));
        let acceptance = short(percent(self.accepted_tokens, self.drafted_tokens));
        vec![
            [("running", self.running.to_string()), ("waiting", self.waiting.to_string())],
            [
                ("generated tokens/s", short(self.generated_tokens_per_second)),
                ("prompt tokens/s", short(self.prompt_tokens_per_second)),
            ],
            [
                ("first token after", seconds(self.first_token_seconds)),
                ("answer after", seconds(self.request_seconds)),
            ],
            [
                ("KV pages held", format!("{} of {pages}", self.kv_pages_held)),
                ("kept for prompts to come", self.kv_pages_cached.to_string()),
            ],
            [("guesses right", format!("{acceptance} %")), ("steps/s", short(self.steps_per_second))],
            [
                ("processors", short(self.cpus)),
                ("memory", self.memory_bytes.map_or_else(|| "-".into(), bytes)),
            ],
            [
                ("cancelled, refused", format!("{}, {}", self.cancelled, self.refused)),
                ("failed steps", self.failed_steps.to_string()),
            ],
        ]
    }

    /// The table of what runs: the head, and a row for each request.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let head = ["slot", "seconds", "prompt", "read", "generated", "tokens/s", "guesses right"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for of in &self.slots {
            let speed = (of.seconds > 0.0).then(|| of.generated_tokens as f64 / of.seconds);
            let read = if of.reads() { of.known_tokens.min(of.prompt_tokens) } else { of.prompt_tokens };
            let acceptance = of.acceptance().map_or_else(|| "-".into(), |percent| format!("{percent:.0} %"));
            rows.push(vec![
                of.slot.to_string(),
                format!("{:.1}", of.seconds),
                of.prompt_tokens.to_string(),
                read.to_string(),
                of.generated_tokens.to_string(),
                short(speed.filter(|_| !of.reads())),
                acceptance,
            ]);
        }
        rows
    }

    /// All of it as text.
    pub fn text(&self) -> String {
        let mut text = self.head() + "\n";
        for [(a, a_value), (b, b_value)] in self.figures() {
            let _ = writeln!(text, "{a:<20} {a_value:>12}   {b:<26} {b_value:>12}");
        }
        if !self.slots.is_empty() {
            text.push('\n');
            text.push_str(&aligned(&self.rows()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::exposition::parse;

    #[test]
    fn rates_are_over_the_time_between_two_readings() {
        let text = |tokens: u32, seconds: u32| {
            format!(
                "unisonic_steps_total 1\nunisonic_generated_tokens_total {tokens}\nunisonic_request_seconds_sum {seconds}\n\
                 unisonic_request_seconds_count {seconds}\nprocess_cpu_seconds_total {seconds}\n\
                 unisonic_slot_seconds{{slot=\"10\"}} 2\nunisonic_slot_seconds{{slot=\"2\"}} 4\n\
                 unisonic_slot_generated_tokens{{slot=\"2\"}} 6\nunisonic_slot_drafted_tokens{{slot=\"2\"}} 8\n\
                 unisonic_slot_accepted_tokens{{slot=\"2\"}} 4\n"
            )
        };
        let [before, now] = [text(100, 4), text(150, 5)].map(|text| Reading(parse(&text).unwrap()));
        let first = before.state(None);
        assert_eq!(
            (first.generated_tokens, first.generated_tokens_per_second, first.request_seconds),
            (100, None, Some(1.0))
        );
        let state = now.state(Some((&before, 2.0)));
        assert_eq!((state.generated_tokens_per_second, state.cpus), (Some(25.0), Some(0.5)));
        assert_eq!(state.slots.iter().map(|slot| slot.slot).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(state.slots[0].acceptance(), Some(50.0));
        assert!(state.slots[1].reads());
        assert!(state.text().contains("50 %"), "{}", state.text());
        // A server that was started anew counts from 0.
        assert_eq!(before.state(Some((&now, 1.0))).generated_tokens_per_second, Some(0.0));
    }
}
