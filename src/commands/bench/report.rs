//! The results as one Markdown block to paste into an issue.

use std::fmt::Write;

use super::facts::facts;
use super::results::Results;
use super::table::{HEAD, cells, notes};
use crate::output::bytes;

/// Facts as a list, figures as a table.
pub fn report(results: &Results) -> String {
    let mut out = format!("### unisonic bench {}\n\n", results.version);
    for (key, value) in all_facts(results) {
        let _ = writeln!(out, "- **{key}**: {value}");
    }
    let _ = writeln!(out);
    let columns: Vec<String> = HEAD.map(str::to_owned).to_vec();
    let _ = writeln!(out, "{}\n|---|{}", line(&columns), "--:|".repeat(columns.len() - 1));
    for row in &results.rows {
        let _ = writeln!(out, "{}", line(&cells(results, row)));
    }
    let _ = writeln!(out, "\n{}", notes(results).join(" "));
    out
}

/// The facts of every output, with what only somebody elsewhere has to be told.
fn all_facts(results: &Results) -> Vec<(&'static str, String)> {
    let machine = &results.machine;
    let files = results.model.files.iter().map(|file| {
        let sha256 = file.sha256.as_deref().unwrap_or("not known");
        ("file", format!("{}, {}, sha256 {sha256}", code_span(&file.name), bytes(file.len_bytes)))
    });
    let host = format!("{}; {}", machine.cpu.as_deref().unwrap_or("CPU not known"), machine.system);
    let ids = results.continuation.iter().map(|found| ("ids", format!("sha256 {}", found.ids_sha256)));
    files.chain(facts(results, &code_span)).chain(ids).chain([("host", code_span(&host))]).collect()
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Text of a file as a code span, fenced by more backticks than it has in a row, so that nothing in it has a meaning in
/// Markdown.
fn code_span(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // One space at either end is taken off again.
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::samples;
    use super::*;

    #[test]
    fn a_report_is_one_block() {
        expect![[r#"
            ### unisonic bench 0.1.0

            - **file**: `small.gguf`, 98.4 MB, sha256 b179c9
            - **model**: `Small <& quick>`, llama, 134.5 million parameters, F32 61, Q4_1 210, Q8_0 1
            - **device**: `CPU, AVX2, 2 threads`, profile u1, chunks of 64 tokens
            - **load**: 0.250 s
            - **memory**: peak 120.0 MB, 1.11 x (file 98.4 MB + KV 10.0 MB)
            - **logits**: sha256 aa11 (64 greedy tokens after 16 fixed ids)
            - **ids**: sha256 bb22
            - **host**: `Some CPU; Debian 13, kernel 6.1, linux x86_64`

            | test | depth | tokens/s | quartiles | ms/token | GMAC/s | floor ms | share |
            |---|--:|--:|--:|--:|--:|--:|--:|
            | prefill 512 | 0 | 1024 | 938.7-1152 | 0.977 | 102.4 |  |  |
            | decode 64 | 0 | 100.0 | 95.71-101.6 | 10.00 | 10.00 | 5.000 | 50 % |
            | decode 64 | 4096 | 58.18 | 54.09-61.09 | 17.19 | 5.818 | 7.500 | 47 % |

            Medians of 3 interleaved repetitions; half of them lie between the quartiles. GMAC/s: multiplications of linear layers. Floor: time to read a token's weights, keys and values at the measured bandwidth, 20.00 GB/s (2 threads over 268.4 MB, median of the rounds); share: floor over measured, above 100 % where caches help.
        "#]].assert_eq(&report(&samples::results()));
    }

    #[test]
    fn a_name_cannot_break_out_of_its_line() {
        assert_eq!(code_span("a\n# b <c>|"), "`a # b <c>|`");
        assert_eq!(code_span("a `b` ``c"), "```a `b` ``c```");
        assert_eq!(code_span("`a"), "`` `a ``");
    }
}
