//! The results as a chart: a bar up to the median of each test, with its quartiles as an interval.

use std::fmt::Write;

use super::measure::Work;
use super::results::{Results, Row, digits};

const WIDTH: u32 = 760;
/// Where bars begin, right of their labels.
const BAR_LEFT: u32 = 190;
/// Longest bar.
const BAR_LEN: f64 = 400.0;
const ROW_HEIGHT: u32 = 28;
const BAR_HEIGHT: u32 = 16;
const TITLE_HEIGHT: u32 = 64;

/// Colours that can be read on light and dark pages alike; the page's own colour shows through.
pub const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#24292f}.note{fill:#57606a}.prefill{fill:#2f81f7}.decode{fill:#2da44e}\
.quartiles{stroke:#24292f;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#8b949e}.quartiles{stroke:#e6edf3}}";

/// A stand-alone SVG document. Prefill and decode have scales of their own: they differ by orders of magnitude.
pub fn svg(results: &Results) -> String {
    let height = TITLE_HEIGHT + ROW_HEIGHT * results.rows.len() as u32 + 12;
    let name = results.model.name.as_deref().unwrap_or(&results.model.architecture);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>unisonic bench: {0}</title>\n<style>{STYLE}</style>\n\
         <text x=\"12\" y=\"24\" font-weight=\"bold\">{0}</text>\n\
         <text x=\"12\" y=\"44\" class=\"note\">{1}; tokens/s, median and quartiles; prefill and decode each to its own scale</text>\n",
        escaped(name),
        escaped(&results.device.name),
    );
    let fastest = |work: Work| {
        let rates = results.rows.iter().filter(|row| row.test.work == work);
        rates.map(|row| row.tokens_per_second().q3).max_by(f64::total_cmp).unwrap_or(1.0)
    };
    for (index, row) in (0u32..).zip(&results.rows) {
        bar(&mut out, row, TITLE_HEIGHT + ROW_HEIGHT * index, fastest(row.test.work));
    }
    out.push_str("</svg>\n");
    out
}

fn bar(out: &mut String, row: &Row, top: u32, fastest: f64) {
    let rate = row.tokens_per_second();
    let x = |rate: f64| f64::from(BAR_LEFT) + rate / fastest * BAR_LEN;
    let (q1, median, q3) = (x(rate.q1), x(rate.median), x(rate.q3));
    let (middle, baseline) = (top + BAR_HEIGHT / 2, top + BAR_HEIGHT - 3);
    let _ = writeln!(
        out,
        "<text x=\"12\" y=\"{baseline}\">{}</text>\n\
         <rect class=\"{}\" x=\"{BAR_LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\"/>\n\
         <path class=\"quartiles\" d=\"M{q1:.1} {middle}H{q3:.1}M{q1:.1} {top}v{BAR_HEIGHT}M{q3:.1} \
         {top}v{BAR_HEIGHT}\"/>\n\
         <text x=\"{:.1}\" y=\"{baseline}\">{}</text>",
        escaped(&row.label()),
        row.test.work.as_str(),
        median - f64::from(BAR_LEFT),
        q3 + 8.0,
        digits(rate.median),
    );
}

/// Text as XML character data; control characters, which XML does not have, are left out.
pub fn escaped(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).fold(String::new(), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
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
    fn a_chart_has_a_bar_for_each_test() {
        expect![[r#"
            <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 160" width="760" height="160" role="img">
            <title>unisonic bench: Small &lt;&amp; quick&gt;</title>
            <style>text{font:13px system-ui,sans-serif;fill:#24292f}.note{fill:#57606a}.prefill{fill:#2f81f7}.decode{fill:#2da44e}.quartiles{stroke:#24292f;stroke-width:1.5}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#8b949e}.quartiles{stroke:#e6edf3}}</style>
            <text x="12" y="24" font-weight="bold">Small &lt;&amp; quick&gt;</text>
            <text x="12" y="44" class="note">CPU, AVX2, 2 threads; tokens/s, median and quartiles; prefill and decode each to its own scale</text>
            <text x="12" y="77">prefill 512</text>
            <rect class="prefill" x="190" y="64" width="355.6" height="16"/>
            <path class="quartiles" d="M515.9 72H590.0M515.9 64v16M590.0 64v16"/>
            <text x="598.0" y="77">1024</text>
            <text x="12" y="105">decode 64</text>
            <rect class="decode" x="190" y="92" width="393.7" height="16"/>
            <path class="quartiles" d="M566.8 100H590.0M566.8 92v16M590.0 92v16"/>
            <text x="598.0" y="105">100.0</text>
            <text x="12" y="133">decode 64 at 4096</text>
            <rect class="decode" x="190" y="120" width="229.0" height="16"/>
            <path class="quartiles" d="M402.9 128H430.5M402.9 120v16M430.5 120v16"/>
            <text x="438.5" y="133">58.18</text>
            </svg>
        "#]].assert_eq(&svg(&samples::results()));
    }

    #[test]
    fn names_are_text() {
        assert_eq!(escaped("a<b>&\"\u{1}c"), "a&lt;b&gt;&amp;&quot;c");
    }
}
