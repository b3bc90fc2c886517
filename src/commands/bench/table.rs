//! The results as a table for people.

use std::fmt::Write;

use super::results::{Results, Row, digits};
use crate::output::{aligned, bytes};

/// A head of facts, the table, and what its columns mean.
pub fn table(results: &Results) -> String {
    let mut out = facts(results);
    let _ = writeln!(out);
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    lines.extend(results.rows.iter().map(|row| cells(results, row)));
    out.push_str(&aligned(&lines));
    let _ = writeln!(out, "\n{}", notes(results).join("\n"));
    out
}

/// Names of the columns.
pub const HEAD: [&str; 8] =
    ["test", "depth", "tokens/s", "quartiles", "ms/token", "GMAC/s", "floor ms", "share"];

/// A row of the table; empty where there is nothing to say.
pub fn cells(results: &Results, row: &Row) -> Vec<String> {
    let rate = row.tokens_per_second();
    let bandwidth = results.bandwidth.as_ref();
    vec![
        format!("{} {}", row.test.work.as_str(), row.test.tokens),
        row.test.depth.to_string(),
        digits(rate.median),
        format!("{}-{}", digits(rate.low), digits(rate.high)),
        digits(row.ms_per_token().median),
        digits(row.gmacs_per_second()),
        row.floor_ms_per_token(bandwidth).map(digits).unwrap_or_default(),
        row.floor_share(bandwidth).map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default(),
    ]
}

/// What the columns mean, for these results: sentences.
pub fn notes(results: &Results) -> Vec<String> {
    let repetitions = results.rows.first().map_or(0, |row| row.seconds.len());
    let mut notes = vec![
        format!("Medians of {repetitions} interleaved repetitions; half of them lie between the quartiles."),
        "GMAC/s: multiplications of linear layers.".to_owned(),
    ];
    if let Some(bandwidth) = results.bandwidth.as_ref().filter(|_| results.has_decode()) {
        notes.push(format!(
            "Floor: what a token has to read, at {}/s (fastest pass of {} thread{} over {} in the same run); share: floor \
             over measured.",
            bytes(bandwidth.bytes_per_second as u64),
            bandwidth.threads,
            if bandwidth.threads == 1 { "" } else { "s" },
            bytes(bandwidth.buffer_len_bytes),
        ));
    }
    notes
}

/// The lines above the table.
fn facts(results: &Results) -> String {
    let Results { model, device, memory, .. } = results;
    let name = model.name.as_deref().or(model.files.first().map(|file| file.name.as_str()));
    let facts = [
        (
            "model",
            format!(
                "{} ({}; {}), {}",
                name.unwrap_or_default(),
                model.architecture,
                model.types,
                bytes(memory.file_bytes)
            ),
        ),
        (
            "device",
            format!("{}; profile {}; chunks of {} tokens", device.name, device.profile, results.chunk),
        ),
        ("load", format!("{} s", digits(results.load_seconds))),
        ("memory", memory_text(results)),
        ("logits", format!("sha256 {}", results.continuation.logits_sha256)),
    ];
    facts.iter().fold(String::new(), |mut out, (key, value)| {
        let _ = writeln!(out, "{key:<8}{value}");
        out
    })
}

/// Peak memory against what the model and its cache take.
pub fn memory_text(results: &Results) -> String {
    let memory = &results.memory;
    let least = memory.file_bytes + memory.kv_bytes;
    let peak = match memory.peak_bytes {
        Some(peak) => format!("{} at most ({:.0} % of", bytes(peak), peak as f64 / least as f64 * 100.0),
        None => "peak not known (".to_owned() + "at least",
    };
    format!("{peak} file {} + KV {})", bytes(memory.file_bytes), bytes(memory.kv_bytes))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::samples;
    use super::*;

    #[test]
    fn a_table_has_facts_rows_and_notes() {
        expect![[r#"
            model   Small <& quick> (llama; F32 61, Q4_1 210, Q8_0 1), 98.4 MB
            device  CPU, AVX2, 2 threads; profile u1; chunks of 64 tokens
            load    0.250 s
            memory  120.0 MB at most (111 % of file 98.4 MB + KV 10.0 MB)
            logits  sha256 aa11

            test         depth  tokens/s    quartiles  ms/token  GMAC/s  floor ms  share
            prefill 512      0      1024   930.9-1138     0.977   102.4
            decode 64        0     100.0  95.52-101.6     10.00   10.00     5.000   50 %
            decode 64     4096     58.18  53.78-60.95     17.19   5.818     7.500   44 %

            Medians of 3 interleaved repetitions; half of them lie between the quartiles.
            GMAC/s: multiplications of linear layers.
            Floor: what a token has to read, at 20.00 GB/s (fastest pass of 2 threads over 268.4 MB in the same run); share: floor over measured.
        "#]]
        .assert_eq(&table(&samples::results()));
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        let mut results = samples::results();
        results.bandwidth = None;
        results.memory.peak_bytes = None;
        results.rows.truncate(2);
        expect![[r#"
            model   Small <& quick> (llama; F32 61, Q4_1 210, Q8_0 1), 98.4 MB
            device  CPU, AVX2, 2 threads; profile u1; chunks of 64 tokens
            load    0.250 s
            memory  peak not known (at least file 98.4 MB + KV 10.0 MB)
            logits  sha256 aa11

            test         depth  tokens/s    quartiles  ms/token  GMAC/s  floor ms  share
            prefill 512      0      1024   930.9-1138     0.977   102.4
            decode 64        0     100.0  95.52-101.6     10.00   10.00

            Medians of 3 interleaved repetitions; half of them lie between the quartiles.
            GMAC/s: multiplications of linear layers.
        "#]]
        .assert_eq(&table(&results));
    }
}
