//! Writing to stdout and stderr without panics: `println!` ends the process when its reader has gone.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// The reader of stdout has gone (`unisonic … | head`): a quiet end, not an error.
#[derive(Debug)]
pub struct StdoutClosed;

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stdout was closed")
    }
}

impl std::error::Error for StdoutClosed {}

/// Writes text to stdout and flushes it, so that it is seen at once.
pub fn write_stdout(text: &str) -> anyhow::Result<()> {
    write_stdout_bytes(text.as_bytes())
}

/// Writes bytes to stdout, such as those of a path, which need not be text.
pub fn write_stdout_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => StdoutClosed.into(),
        _ => anyhow::Error::new(error).context("writing to stdout"),
    })
}

/// Writes one line of JSON to stdout.
pub fn write_json(value: &serde_json::Value) -> anyhow::Result<()> {
    write_stdout(&format!("{value}\n"))
}

/// Writes a line to stderr. A closed stderr is nobody's concern.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A progress bar on stderr of `total` steps; invisible unless stderr is a terminal.
pub fn progress_bar(what: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}");
    visible(ProgressBar::new(total), style, what)
}

/// A progress bar on stderr of `total_bytes` with speed and time left; invisible unless stderr is a terminal.
pub fn bytes_bar(what: &str, total_bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg} [{bar:20}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta} left",
    );
    visible(ProgressBar::new(total_bytes), style, what)
}

/// A sign of life on stderr for work of unknown length; invisible unless stderr is a terminal.
pub fn spinner(what: &str) -> ProgressBar {
    let bar =
        visible(ProgressBar::new_spinner(), ProgressStyle::with_template("{spinner} {msg} {elapsed}"), what);
    if !bar.is_hidden() {
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
    }
    bar
}

fn visible(
    bar: ProgressBar,
    style: Result<ProgressStyle, indicatif::style::TemplateError>,
    what: &str,
) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.with_message(what.to_owned())
}

/// Bytes in the unit that a person reads: powers of 1000.
pub fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{:.1} kB", count as f64 * 1e-3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 * 1e-6),
        _ => format!("{:.2} GB", count as f64 * 1e-9),
    }
}

/// `, 12.3/s`, or nothing where nothing was measured.
pub fn rate(tokens: usize, time: std::time::Duration) -> String {
    let seconds = time.as_secs_f64();
    if tokens > 0 && seconds > 0.0 { format!(", {:.1}/s", tokens as f64 / seconds) } else { String::new() }
}

/// Columns as wide as they need to be, text to the left and numbers to the right.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}
