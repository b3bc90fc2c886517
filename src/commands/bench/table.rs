//! The results as a table for people.

use std::fmt::Write;

use super::facts::facts;
use super::results::{Results, Row, digits};
use crate::output::{aligned, bytes};

/// Facts, the table, and what its columns mean.
pub fn table(results: &Results) -> String {
    let mut out = String::new();
    for (key, value) in facts(results, &plain) {
        let _ = writeln!(out, "{key:<8}{value}");
    }
    let _ = writeln!(out);
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    lines.extend(results.rows.iter().map(|row| cells(results, row)));
    out.push_str(&aligned(&lines));
    let _ = writeln!(out, "\n{}", notes(results).join("\n"));
    out
}

/// Text of a file on a line of a terminal.
fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Names of the columns.
pub const HEAD: [&str; 8] =
    ["test", "depth", "tokens/s", "quartiles", "ms/token", "GMAC/s", "floor ms", "share"];

/// A row of the table; empty where there is nothing to say.
pub fn cells(results: &Results, row: &Row) -> Vec<String> {
    let rate = row.tokens_per_second();
    let bandwidth = results.bandwidth.as_ref().ok();
    let floor_ms = bandwidth.and_then(|bandwidth| row.floor_ms_per_token(bandwidth));
    let share = bandwidth.and_then(|bandwidth| row.floor_share(bandwidth));
    vec![
        format!("{} {}", row.test.work.as_str(), row.test.tokens),
        row.test.depth.to_string(),
        digits(rate.median),
        format!("{}-{}", digits(rate.q1), digits(rate.q3)),
        digits(row.ms_per_token().median),
        digits(row.gmacs_per_second()),
        floor_ms.map(digits).unwrap_or_default(),
        share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default(),
    ]
}

/// What the columns mean, for these results: sentences.
pub fn notes(results: &Results) -> Vec<String> {
    let repetitions = results.rows.first().map_or(0, |row| row.seconds.len());
    let floor = match &results.bandwidth {
        Ok(bandwidth) => format!(
            "Floor: time to read a token's weights, keys and values at the measured bandwidth, {}/s ({} thread{} over \
             {}, median of the rounds); share: floor over measured, above 100 % where caches help.",
            bytes(bandwidth.median() as u64),
            bandwidth.threads,
            if bandwidth.threads == 1 { "" } else { "s" },
            bytes(bandwidth.buffer_len_bytes),
        ),
        Err(why) => format!("Floor: not measured: {why}."),
    };
    vec![
        match repetitions {
            1 => "One measurement of each test.".to_owned(),
            _ => format!(
                "Medians of {repetitions} interleaved repetitions; half of them lie between the quartiles."
            ),
        },
        "GMAC/s: multiplications of linear layers.".to_owned(),
        floor,
    ]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::samples;
    use super::*;

    #[test]
    fn a_table_has_facts_rows_and_notes() {
        expect![[r#"
            model   Small <& quick>, llama, 134.5 million parameters, F32 61, Q4_1 210, Q8_0 1
            device  CPU, AVX2, 2 threads, profile u1, chunks of 64 tokens
            load    0.250 s
            memory  peak 120.0 MB, 1.11 x (file 98.4 MB + KV 10.0 MB)
            logits  sha256 aa11 (64 greedy tokens after 16 fixed ids)

            test         depth  tokens/s    quartiles  ms/token  GMAC/s  floor ms  share
            prefill 512      0      1024   938.7-1152     0.977   102.4
            decode 64        0     100.0  95.71-101.6     10.00   10.00     5.000   50 %
            decode 64     4096     58.18  54.09-61.09     17.19   5.818     7.500   47 %

            Medians of 3 interleaved repetitions; half of them lie between the quartiles.
            GMAC/s: multiplications of linear layers.
            Floor: time to read a token's weights, keys and values at the measured bandwidth, 20.00 GB/s (2 threads over 268.4 MB, median of the rounds); share: floor over measured, above 100 % where caches help.
        "#]]
        .assert_eq(&table(&samples::results()));
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        let mut results = samples::results();
        results.bandwidth = Err("no memory".into());
        results.continuation = None;
        results.memory.peak_bytes = None;
        results.rows.truncate(2);
        expect![[r#"
            model   Small <& quick>, llama, 134.5 million parameters, F32 61, Q4_1 210, Q8_0 1
            device  CPU, AVX2, 2 threads, profile u1, chunks of 64 tokens
            load    0.250 s
            memory  peak not known (file 98.4 MB + KV 10.0 MB)
            logits  no digest: it takes more tokens than the model was made for

            test         depth  tokens/s    quartiles  ms/token  GMAC/s  floor ms  share
            prefill 512      0      1024   938.7-1152     0.977   102.4
            decode 64        0     100.0  95.71-101.6     10.00   10.00

            Medians of 3 interleaved repetitions; half of them lie between the quartiles.
            GMAC/s: multiplications of linear layers.
            Floor: not measured: no memory.
        "#]]
        .assert_eq(&table(&results));
    }
}
