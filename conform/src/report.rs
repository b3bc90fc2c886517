//! Rows in files: JSON for programs, JUnit for what shows tests, and a table for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Row};
use crate::suite::Suite;
use crate::worker::Description;

/// Version of the JSON.
pub const FORMAT: u32 = 1;

/// All rows of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program.
    pub version: String,
    /// Name of the arithmetic.
    pub profile: String,
    /// What was tested.
    pub device: Description,
    /// How much.
    pub suite: Suite,
    /// How long it took.
    pub seconds: f64,
    /// Whether it was ended before all had run.
    pub is_interrupted: bool,
    /// What came of it.
    pub counts: Counts,
    /// A row for each case.
    pub rows: Vec<Row>,
}

/// Rows by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All bits are right.
    pub passed: usize,
    /// Something else came out, and nothing explains it.
    pub failed: usize,
    /// As the table of known faults says.
    pub known_faults: usize,
    /// Left to the device by the contract.
    pub permitted: usize,
    /// Nothing to run.
    pub not_applicable: usize,
}

impl Counts {
    /// Of these rows.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        rows.into_iter().fold(Self::default(), |mut counts, row| {
            *match row.outcome {
                Outcome::Passed => &mut counts.passed,
                Outcome::Failed { .. } => &mut counts.failed,
                Outcome::KnownFault { .. } => &mut counts.known_faults,
                Outcome::Permitted { .. } => &mut counts.permitted,
                Outcome::NotApplicable { .. } => &mut counts.not_applicable,
            } += 1;
            counts
        })
    }

    /// In words, without what is 0.
    pub fn in_words(self) -> String {
        let Self { passed, failed, known_faults, permitted, not_applicable } = self;
        let parts = [
            (failed, "failed"),
            (known_faults, "known faults"),
            (permitted, "permitted differences"),
            (not_applicable, "not applicable"),
        ];
        let rest = parts.into_iter().filter(|part| part.0 > 0);
        let rest = rest.map(|(count, what)| format!(", {count} {what}"));
        format!("{passed} passed{}", rest.collect::<String>())
    }
}

impl Report {
    /// As a JUnit file: a test suite for each group and variant.
    pub fn junit(&self) -> String {
        let mut suites: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            suites.entry((&row.group, &row.variant)).or_default().push(row);
        }
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let name = escape(&format!("unisonic conform {}", self.device.device));
        let counts = self.counts;
        let _ = writeln!(
            xml,
            "<testsuites name=\"{name}\" tests=\"{}\" failures=\"{}\" time=\"{:.3}\">",
            self.rows.len(),
            counts.failed,
            self.seconds
        );
        for ((group, variant), rows) in suites {
            let counts = Counts::of(rows.iter().copied());
            let skipped = counts.not_applicable + counts.known_faults;
            let (group, variant) = (escape(group), escape(variant));
            let _ = writeln!(
                xml,
                "  <testsuite name=\"{group} ({variant})\" tests=\"{}\" failures=\"{}\" skipped=\"{skipped}\">",
                rows.len(),
                counts.failed
            );
            rows.iter().for_each(|row| xml += &junit_case(row, &group));
            xml += "  </testsuite>\n";
        }
        xml + "</testsuites>\n"
    }

    /// For people: a line for each group that is not just right, then the sum.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let shown = !matches!(row.outcome, Outcome::Passed | Outcome::NotApplicable { .. });
            if let Some(reason) = row.outcome.reason().filter(|_| shown) {
                let Row { group, case, variant, .. } = row;
                let _ = writeln!(text, "{} {group} ({variant}) {case}: {reason}", row.outcome.word());
                if let Some(replay) = &row.replay {
                    let _ = writeln!(text, "    replay: {replay}");
                }
            }
        }
        let Description { device, name, driver, .. } = &self.device;
        let driver = if driver.is_empty() { String::new() } else { format!(", {driver}") };
        let ended = if self.is_interrupted { " (interrupted)" } else { "" };
        let _ = writeln!(
            text,
            "{device}: {name}{driver}: {} in {:.1} s{ended}",
            self.counts.in_words(),
            self.seconds
        );
        text
    }
}

/// A case that went otherwise in another report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Variant, group and case.
    pub case: String,
    /// What came of it in either report, with the reason; none where it is not there.
    pub outcomes: [Option<String>; 2],
}

/// Cases of which something else came in another report, or that only one has.
pub fn compare(a: &Report, b: &Report) -> Vec<Change> {
    let mut all: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    for (number, report) in [a, b].into_iter().enumerate() {
        for row in &report.rows {
            let case = format!("{} ({}) {}", row.group, row.variant, row.case);
            let reason = row.outcome.reason().map_or(String::new(), |reason| format!(": {reason}"));
            all.entry(case).or_default()[number] = Some(format!("{}{reason}", row.outcome.word()));
        }
    }
    let differs = |[a, b]: &[Option<String>; 2]| a != b;
    all.into_iter()
        .filter(|(_, outcomes)| differs(outcomes))
        .map(|(case, outcomes)| Change { case, outcomes })
        .collect()
}

fn junit_case(row: &Row, group: &str) -> String {
    let (case, seconds) = (escape(&row.case), row.milliseconds as f64 / 1e3);
    let head = format!("    <testcase name=\"{case}\" classname=\"{group}\" time=\"{seconds:.3}\"");
    let reason = escape(&row.outcome.reason().unwrap_or_default());
    match &row.outcome {
        Outcome::Passed => format!("{head}/>\n"),
        Outcome::Permitted { .. } => {
            format!("{head}><system-out>permitted difference: {reason}</system-out></testcase>\n")
        }
        Outcome::Failed { .. } => format!("{head}><failure message=\"{reason}\"/></testcase>\n"),
        Outcome::KnownFault { .. } => {
            format!("{head}><skipped message=\"known fault: {reason}\"/></testcase>\n")
        }
        Outcome::NotApplicable { .. } => format!("{head}><skipped message=\"{reason}\"/></testcase>\n"),
    }
}

/// Text as XML has it, without what XML does not take at all.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, outcome: Outcome) -> Row {
        let [group, variant] = ["op/fadd", "as-it-is"].map(str::to_owned);
        Row { group, case: case.to_owned(), variant, outcome, milliseconds: 1500, replay: None }
    }

    #[test]
    fn rows_are_counted_and_shown() {
        let rows = vec![
            row("a", Outcome::Passed),
            row("b <&\"\u{1}", Outcome::failed("1 < 2")),
            row("c", Outcome::not_applicable("no room")),
        ];
        let report = Report {
            format: FORMAT,
            version: "1".into(),
            profile: "u1".into(),
            device: Description { device: "vulkan:0".into(), name: "GPU".into(), ..Description::default() },
            suite: Suite::Quick,
            seconds: 1.5,
            is_interrupted: false,
            counts: Counts::of(&rows),
            rows,
        };
        let text = report.text();
        assert_eq!(
            text,
            "failed op/fadd (as-it-is) b <&\"\u{1}: 1 < 2\n\
             vulkan:0: GPU: 1 passed, 1 failed, 1 not applicable in 1.5 s\n"
        );
        let mut other = report.clone();
        assert_eq!(compare(&report, &other), []);
        other.rows[1].outcome = Outcome::Passed;
        other.rows.pop();
        let changes = compare(&report, &other);
        let outcomes = |at: usize| changes[at].outcomes.clone().map(Option::unwrap_or_default);
        assert_eq!(outcomes(0), ["failed: 1 < 2", "passed"]);
        assert_eq!(outcomes(1), ["not applicable: no room", ""]);
        let xml = report.junit();
        assert!(xml.contains("name=\"b &lt;&amp;&quot;?\""), "{xml}");
        assert!(xml.contains("<failure message=\"1 &lt; 2\"/>") && xml.contains("skipped=\"1\""), "{xml}");
        let json = serde_json::to_string(&report).expect("JSON");
        assert_eq!(serde_json::from_str::<Report>(&json).expect("it is read"), report);
    }
}
