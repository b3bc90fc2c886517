//! The text of `/metrics`.

use anyhow::{Context, bail};

/// A number of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl Sample {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// Reads all samples (Prometheus' text format, or OpenMetrics).
pub fn parse(text: &str) -> anyhow::Result<Vec<Sample>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| sample(line).with_context(|| format!("not a line of metrics: {line:?}"))).collect()
}

/// `name{label="value",…} number`; a time after it is left out.
fn sample(line: &str) -> anyhow::Result<Sample> {
    let end = line.find(['{', ' ']).context("there is no value")?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches(',');
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, quoted) = rest.split_once("=\"").context("a label has no value")?;
            let (value, after) = unquote(quoted)?;
            // A terminal would obey them.
            let value = value.replace(char::is_control, "\u{fffd}");
            labels.push((label.to_owned(), value));
            rest = after;
        }
    }
    let value = rest.split_whitespace().next().context("there is no value")?;
    Ok(Sample { name: name.to_owned(), labels, value: value.parse()? })
}

/// A text up to the quote that ends it, and what follows.
fn unquote(text: &str) -> anyhow::Result<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((value, text.get(at + 1..).unwrap_or_default())),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, other)) => value.push(other),
                None => break,
            },
            other => value.push(other),
        }
    }
    bail!("a label has no end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_samples() {
        let text = "# HELP a b\n# TYPE a counter\na_total 3\n\nb{x=\"1\",y=\"q\\\"}, \\\\ \"} 2.5 1700\nc{} +Inf\n# EOF\n";
        let samples = parse(text).unwrap();
        assert_eq!(samples.iter().map(|of| of.value).collect::<Vec<_>>(), [3.0, 2.5, f64::INFINITY]);
        assert_eq!((samples[1].label("x"), samples[1].label("y")), (Some("1"), Some("q\"}, \\ ")));
        for wrong in ["a", "a{x=\"1} 2", "a{x} 2", "a x", "<html>", "a{x=\"1\"}"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
