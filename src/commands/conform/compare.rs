//! What differs between two reports.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use unisonic_conform::report::{Report, compare};

use super::DIFFERS;
use crate::output::write_stdout;

/// Prints what differs.
pub fn run(a: &Path, b: &Path) -> anyhow::Result<ExitCode> {
    let reports = [a, b].map(read);
    let [a, b] = reports;
    let (a, b) = (a?, b?);
    let changes = compare(&a, &b);
    let mut text = String::new();
    for (name, report) in [("A", &a), ("B", &b)] {
        let device = &report.device;
        let _ = writeln!(
            text,
            "{name}: {}, {}, {}: {}",
            device.device,
            device.name,
            device.driver,
            report.counts.in_words()
        );
    }
    for change in &changes {
        let _ = writeln!(text, "{}", change.case);
        for (name, outcome) in ["A", "B"].iter().zip(&change.outcomes) {
            let _ = writeln!(text, "    {name}: {}", outcome.as_deref().unwrap_or("not in the report"));
        }
    }
    let cases = if changes.len() == 1 { "case differs" } else { "cases differ" };
    let _ = writeln!(text, "{} {cases}", changes.len());
    write_stdout(&text)?;
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) })
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!("{} is no report; `unisonic conform --json FILE` writes one", path.display())
    })
}
