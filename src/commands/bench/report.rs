//! The results as one Markdown block to paste into an issue.

use std::fmt::Write;

use super::measure::{DIGEST_PROMPT_TOKENS, DIGEST_TOKENS};
use super::results::{Results, digits};
use super::table::{HEAD, cells, memory_text, notes};
use crate::output::bytes;

/// Facts as a list, figures as a table.
pub fn report(results: &Results) -> String {
    let mut out = format!("### unisonic bench {}\n\n", results.version);
    for (key, value) in facts(results) {
        let _ = writeln!(out, "- **{key}**: {}", escaped(&value));
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

fn facts(results: &Results) -> Vec<(&'static str, String)> {
    let Results { model, device, machine, continuation, .. } = results;
    let mut facts: Vec<_> = model
        .files
        .iter()
        .map(|file| {
            let sha256 = file.sha256.as_deref().unwrap_or("not known");
            ("file", format!("{}, {}, sha256 {sha256}", file.name, bytes(file.len_bytes)))
        })
        .collect();
    facts.extend([
        (
            "model",
            format!(
                "{}, {}, {:.1} million parameters, {}",
                model.name.as_deref().unwrap_or("without a name"),
                model.architecture,
                model.parameters as f64 * 1e-6,
                model.types
            ),
        ),
        ("device", format!("{} ({}), chunks of {} tokens", device.name, device.id, results.chunk)),
        // The CPU devices have no driver but the host itself.
        ("driver", "host".to_owned()),
        ("host", format!("{}; {}", machine.cpu.as_deref().unwrap_or("CPU not known"), machine.system)),
        ("profile", device.profile.clone()),
        ("load", format!("{} s", digits(results.load_seconds))),
        ("memory", memory_text(results)),
        (
            "logits",
            format!(
                "sha256 {} ({DIGEST_TOKENS} greedy tokens after {DIGEST_PROMPT_TOKENS} fixed ids)",
                continuation.logits_sha256
            ),
        ),
        ("ids", format!("sha256 {}", continuation.ids_sha256)),
    ]);
    facts
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Text of a file, without a meaning in Markdown.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '\n' | '\r' => out.push(' '),
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '@' => out.extend(['\\', c]),
            c => out.push(c),
        }
        out
    })
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

            - **file**: small.gguf, 98.4 MB, sha256 b179c9
            - **model**: Small \<\& quick\>, llama, 134.5 million parameters, F32 61, Q4_1 210, Q8_0 1
            - **device**: CPU, AVX2, 2 threads (cpu), chunks of 64 tokens
            - **driver**: host
            - **host**: Some CPU; Debian 13, kernel 6.1, linux x86_64
            - **profile**: u1
            - **load**: 0.250 s
            - **memory**: 120.0 MB at most (111 % of file 98.4 MB + KV 10.0 MB)
            - **logits**: sha256 aa11 (64 greedy tokens after 16 fixed ids)
            - **ids**: sha256 bb22

            | test | depth | tokens/s | quartiles | ms/token | GMAC/s | floor ms | share |
            |---|--:|--:|--:|--:|--:|--:|--:|
            | prefill 512 | 0 | 1024 | 930.9-1138 | 0.977 | 102.4 |  |  |
            | decode 64 | 0 | 100.0 | 95.52-101.6 | 10.00 | 10.00 | 5.000 | 50 % |
            | decode 64 | 4096 | 58.18 | 53.78-60.95 | 17.19 | 5.818 | 7.500 | 44 % |

            Medians of 3 interleaved repetitions; half of them lie between the quartiles. GMAC/s: multiplications of linear layers. Floor: what a token has to read, at 20.00 GB/s (fastest pass of 2 threads over 268.4 MB in the same run); share: floor over measured.
        "#]].assert_eq(&report(&samples::results()));
    }

    #[test]
    fn a_name_cannot_break_out_of_its_line() {
        assert_eq!(escaped("a\n# b <c> `d`|"), "a \\# b \\<c\\> \\`d\\`\\|");
    }
}
