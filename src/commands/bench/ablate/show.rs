//! The ablation as a table, as JSON and as a chart.

use std::fmt::Write;

use serde_json::{Value as Json, json as object};

use super::super::measure::Test;
use super::super::results::digits;
use super::super::stats::Summary;
use super::super::svg::{STYLE, escaped};
use super::{Ablation, Variant};
use crate::output::aligned;

/// The name of a test.
fn label(test: &Test) -> String {
    let at = if test.depth > 0 { format!(" at {}", test.depth) } else { String::new() };
    format!("{} {}{at}", test.work.as_str(), test.tokens)
}

/// Tokens a second in the rounds of a test.
fn rates<'a>(variant: &'a Variant, test: usize, tests: &'a [Test]) -> impl Iterator<Item = f64> + 'a {
    let tokens = f64::from(tests[test].tokens);
    variant.seconds[test].iter().map(move |seconds| tokens / seconds)
}

/// The speed of a variant over that of the first, round by round.
fn ratios<'a>(ablation: &'a Ablation, variant: &'a Variant, test: usize) -> impl Iterator<Item = f64> + 'a {
    let first = ablation.variants.first().map_or(&[][..], |first| &first.seconds[test]);
    first.iter().zip(&variant.seconds[test]).map(|(first, own)| first / own)
}

/// A row for each switch.
pub fn table(ablation: &Ablation) -> String {
    let Ablation { device, tests, variants, .. } = ablation;
    let mut head = vec!["off".to_owned()];
    for test in tests {
        head.extend([format!("{} t/s", label(test)), "ratio".into(), "quartiles".into()]);
    }
    head.extend(["launches", "MB/token", "logits"].map(str::to_owned));
    let first = variants.first().and_then(|first| first.logits_sha256.as_ref());
    let line = |variant: &Variant| {
        let mut cells = vec![variant.name.clone()];
        for test in 0..tests.len() {
            let Summary { q1, median, q3 } = Summary::of(ratios(ablation, variant, test));
            cells.push(digits(Summary::of(rates(variant, test, tests)).median));
            cells.extend([format!("{median:.3}"), format!("{q1:.3}-{q3:.3}")]);
        }
        cells.push(variant.launches.to_string());
        cells.push(digits(variant.bytes as f64 * 1e-6));
        cells.push(match (first, &variant.logits_sha256) {
            (Some(first), Some(own)) if own == first => "equal".into(),
            (Some(_), _) => "DIFFERENT".into(),
            (None, _) => "not known".into(),
        });
        cells
    };
    let mut lines = vec![head];
    lines.extend(variants.iter().map(line));
    let rounds = variants.first().and_then(|first| first.seconds.first()).map_or(0, Vec::len);
    format!(
        "model   {}\ndevice  {}\n\n{}\nMedians of {rounds} interleaved rounds. Ratio: speed over that of the same round with nothing off; \
         below 1, what is off is worth something. Launches and MB: of one decoded token; on a device without launches \
         the steps of the plan and what they read and write. Logits: of a greedy continuation of 64 tokens, compared \
         by their SHA-256.\n",
        ablation.model.replace(char::is_control, " "),
        device.name.replace(char::is_control, " "),
        aligned(&lines)
    )
}

/// Every measurement.
pub fn json(ablation: &Ablation) -> Json {
    let Ablation { model, device, tests, variants } = ablation;
    let of_variant = |variant: &Variant| {
        let of_test = |(index, test): (usize, &Test)| {
            object!({
                "test": label(test),
                "seconds": variant.seconds[index],
                "tokens_per_second": Summary::of(rates(variant, index, tests)).median,
                "ratio": Summary::of(ratios(ablation, variant, index)).median,
            })
        };
        object!({
            "off": variant.name,
            "launches": variant.launches,
            "bytes": variant.bytes,
            "logits_sha256": variant.logits_sha256,
            "tests": tests.iter().enumerate().map(of_test).collect::<Vec<_>>(),
        })
    };
    object!({
        "model": model,
        "device": device.name,
        "equal": ablation.is_equal(),
        "variants": variants.iter().map(of_variant).collect::<Vec<_>>(),
    })
}

const WIDTH: u32 = 760;
/// Where bars begin.
const LEFT: u32 = 190;
/// The length of a bar of ratio 1.
const ONE: f64 = 400.0;
const ROW_HEIGHT: u32 = 22;
const TOP: u32 = 64;

/// A stand-alone SVG document: for each variant a bar a test, as long as its speed over that with nothing
/// off.
pub fn svg(ablation: &Ablation) -> String {
    let Ablation { model, device, tests, variants } = ablation;
    let rows = (variants.len() * tests.len()) as u32;
    let (height, line) = (TOP + ROW_HEIGHT * rows + 16, f64::from(LEFT) + ONE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\">\n<title>unisonic bench --ablate: {0}</title>\n<style>{STYLE}</style>\n\
         <text x=\"12\" y=\"24\" font-weight=\"bold\">{0}</text>\n<text x=\"12\" y=\"44\" class=\"note\">{1}; speed over \
         that with nothing off, median and quartiles</text>\n<path class=\"quartiles\" d=\"M{line:.1} {TOP}V{2}\"/>\n",
        escaped(model),
        escaped(&device.name),
        height - 16,
    );
    let mut top = TOP;
    for variant in variants {
        for (index, test) in tests.iter().enumerate() {
            let Summary { q1, median, q3 } = Summary::of(ratios(ablation, variant, index));
            // What is more than so much faster reaches the edge.
            let x = |ratio: f64| f64::from(LEFT) + ONE * if ratio < 1.25 { ratio } else { 1.25 };
            let (bar, baseline) = (x(median) - f64::from(LEFT), top + 12);
            let name = if index == 0 { escaped(&variant.name) } else { String::new() };
            let _ = writeln!(
                out,
                "<text x=\"12\" y=\"{baseline}\">{name}</text>\n<rect class=\"{}\" x=\"{LEFT}\" y=\"{top}\" \
                 width=\"{bar:.1}\" height=\"14\"/>\n<path class=\"quartiles\" d=\"M{:.1} {}H{:.1}\"/>\n<text x=\"{:.1}\" \
                 y=\"{baseline}\">{median:.3} {}</text>",
                test.work.as_str(),
                x(q1),
                top + 7,
                x(q3),
                x(q3) + 8.0,
                escaped(&label(test)),
            );
            top += ROW_HEIGHT;
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::super::measure::Work;
    use super::super::super::samples;
    use super::*;

    fn ablation() -> Ablation {
        let variant = |name: &str, launches, seconds: [f64; 3], digest: &str| Variant {
            name: name.into(),
            launches,
            bytes: 1_000_000,
            logits_sha256: Some(digest.into()),
            seconds: vec![seconds.to_vec()],
        };
        Ablation {
            model: "Small <& quick>".into(),
            device: samples::results().device,
            tests: vec![Test { work: Work::Decode, tokens: 10, depth: 0 }],
            variants: vec![
                variant("none", 7, [0.5, 0.4, 0.6], "aa"),
                variant("fuse-heads", 9, [1.0, 0.8, 0.8], "aa"),
                variant("all", 12, [2.0, 0.8, 1.0], "bb"),
            ],
        }
    }

    #[test]
    fn a_table_has_a_row_for_each_switch() {
        expect![[r#"
            model   Small <& quick>
            device  CPU, AVX2, 2 threads

            off         decode 10 t/s  ratio    quartiles  launches  MB/token     logits
            none                20.00  1.000  1.000-1.000         7     1.000      equal
            fuse-heads          12.50  0.500  0.500-0.625         9     1.000      equal
            all                 10.00  0.500  0.375-0.550        12     1.000  DIFFERENT

            Medians of 3 interleaved rounds. Ratio: speed over that of the same round with nothing off; below 1, what is off is worth something. Launches and MB: of one decoded token; on a device without launches the steps of the plan and what they read and write. Logits: of a greedy continuation of 64 tokens, compared by their SHA-256.
        "#]]
        .assert_eq(&table(&ablation()));
    }

    #[test]
    fn json_and_chart_have_every_variant() {
        let found = json(&ablation());
        assert_eq!(found["equal"], false);
        assert_eq!(found["variants"][1]["tests"][0]["ratio"], 0.5);
        assert_eq!(found["variants"][2]["off"], "all");
        let chart = svg(&ablation());
        assert_eq!(chart.matches("<rect class=\"decode\"").count(), 3);
        assert!(chart.contains("Small &lt;&amp; quick&gt;") && chart.contains("0.500 decode 10"), "{chart}");
    }
}
