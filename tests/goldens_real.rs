//! Real models against another runtime that ran the same weights in f32: every limit that profile u1 must keep,
//! teacher-forced over prompts with their answers and over a text.
//!
//! Start reading at [`check`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;

use common::Tier;
use common::golden::{Golden, Nll, argmax, log_sum_exp};
use unisonic_engine::Engine;

/// What a model may differ from its goldens.
struct Limits {
    /// Mean of the absolute differences of the goldens' top-5 log-probabilities.
    top5_mean: f64,
    /// Their 99th percentile.
    top5_p99: f64,
    /// Mean of the absolute differences of the text's log-probabilities.
    logprob_mean: f64,
    /// Difference of the text's mean NLL.
    mean_nll: f64,
}

/// The argmax must be the same where the golden's two largest logits are further apart.
const CLEAR_MARGIN: f64 = 0.10;
/// Of 256 positions of the text, this many must have the same argmax.
const MIN_ARGMAX_AGREEMENT: usize = 252;

#[test]
fn smollm2_135m() {
    let limits = Limits { top5_mean: 0.030, top5_p99: 0.13, logprob_mean: 0.0085, mean_nll: 0.003 };
    if let Some(model) = common::smollm2(Tier::Ci, "goldens of SmolLM2-135M") {
        check(&model, "smollm2-135m-f32deq.json", &limits);
    }
}

#[test]
fn gemma3_270m() {
    let limits = Limits { top5_mean: 0.027, top5_p99: 0.13, logprob_mean: 0.011, mean_nll: 0.005 };
    if common::runs_in(Tier::Full, "goldens of Gemma 3 270M") {
        let model = common::existing(common::root("models/gemma3-270m-q4_k_m.gguf"), "make test-full");
        check(&model, "gemma3-270m-f32deq.json", &limits);
    }
}

#[test]
fn qwen2_5_coder_0_5b() {
    let limits = Limits { top5_mean: 0.010, top5_p99: 0.045, logprob_mean: 0.007, mean_nll: 0.002 };
    let what = "goldens of Qwen2.5-Coder-0.5B";
    if common::runs_in(Tier::Full, what) {
        let model = common::root("models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
        if model.exists() {
            check(&model, "qwen2.5-coder-0.5b-f32deq.json", &limits);
        } else {
            common::skipped(what, "its packages could not be fetched");
        }
    }
}

fn check(model: &Path, golden: &str, limits: &Limits) {
    let right = Golden::read(golden);
    let mut engine = common::load(model, false, &common::options());
    let mut report = Report { golden, failures: Vec::new() };

    let (mut differences, argmax_wrong) = run_differences(&mut engine, &right);
    differences.sort_by(f64::total_cmp);
    report.at_most("top-5 mean", mean(&differences), limits.top5_mean);
    report.at_most("top-5 99th percentile", percentile_99(&differences), limits.top5_p99);
    report.at_most("argmax wrong at a clear margin", argmax_wrong as f64, 0.0);

    let nll = right.nll();
    let found = scores(&mut engine, &nll);
    let logprob_differences: Vec<f64> =
        found.logprobs_of_next.iter().zip(&nll.logprobs_of_next).map(|(a, b)| (a - b).abs()).collect();
    report.at_most("logprob mean", mean(&logprob_differences), limits.logprob_mean);
    report.at_most("mean NLL", (found.mean_nll - nll.mean_nll).abs(), limits.mean_nll);
    let disagreement = found.argmax.iter().zip(&nll.argmax).filter(|(a, b)| a != b).count();
    report.at_most(
        "argmax of the text wrong",
        disagreement as f64,
        (nll.ids.len() - MIN_ARGMAX_AGREEMENT) as f64,
    );

    assert!(report.failures.is_empty(), "{golden}:\n{}", report.failures.join("\n"));
}

/// Differences of the top-5 log-probabilities over all runs, and how often the argmax was wrong at a clear margin.
fn run_differences(engine: &mut Engine, right: &Golden) -> (Vec<f64>, usize) {
    let mut differences = Vec::new();
    let mut argmax_wrong = 0;
    for run in right.runs() {
        // The last output id is chosen, but nothing follows it.
        let ids = [&run.prompt_ids[..], &run.output_ids[..run.output_ids.len() - 1]].concat();
        let first = run.prompt_ids.len() - 1;
        let mut session = engine.session();
        engine
            .extend(&mut session, &ids, first, &mut |index, logits| {
                let step = &run.steps[index - first];
                let lse = log_sum_exp(logits);
                let logprob = |&(id, _): &(u32, f64)| f64::from(logits[id as usize]) - lse;
                differences.extend(step.top5.iter().map(|top| (logprob(top) - (top.1 - step.lse)).abs()));
                if step.margin > CLEAR_MARGIN && argmax(logits) != step.top5[0].0 as usize {
                    argmax_wrong += 1;
                    common::say(&format!("{}: argmax differs at output {}", run.name, index - first));
                }
            })
            .unwrap();
    }
    (differences, argmax_wrong)
}

/// The model's own scores of the golden's text.
fn scores(engine: &mut Engine, nll: &Nll) -> Nll {
    let mut logprobs_of_next = Vec::new();
    let mut argmaxes = Vec::new();
    let mut session = engine.session();
    engine
        .extend(&mut session, &nll.ids, 0, &mut |index, logits| {
            argmaxes.push(u32::try_from(argmax(logits)).unwrap());
            if let Some(&next) = nll.ids.get(index + 1) {
                logprobs_of_next.push(f64::from(logits[next as usize]) - log_sum_exp(logits));
            }
        })
        .unwrap();
    let mean_nll = -mean(&logprobs_of_next);
    Nll { ids: nll.ids.clone(), logprobs_of_next, argmax: argmaxes, mean_nll }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The smallest value that at least 99 of 100 do not exceed; `sorted` ascending.
fn percentile_99(sorted: &[f64]) -> f64 {
    sorted[(sorted.len() * 99).div_ceil(100) - 1]
}

/// Prints measured values next to their limits, and collects those beyond.
struct Report<'a> {
    golden: &'a str,
    failures: Vec<String>,
}

impl Report<'_> {
    fn at_most(&mut self, what: &str, value: f64, limit: f64) {
        let line = format!("{:32} {what:32} {value:.5} (at most {limit})", self.golden);
        common::say(&line);
        if value.is_nan() || value > limit {
            self.failures.push(line);
        }
    }
}
