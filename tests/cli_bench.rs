//! `unisonic bench` as people and scripts use it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};
use serde_json::Value as Json;

/// One line of JSON of a small `bench`.
fn bench_json(args: &[&str]) -> Json {
    let model = model();
    let small =
        ["bench", "--json", "--prefill", "8,20", "--decode", "4", "-r", "2", "--no-bandwidth", &model];
    last_line_json(&succeeded(unisonic(&[&small, args].concat())))
}

#[test]
fn bench_measures_what_it_is_asked_for() {
    let json = bench_json(&["--depth", "0,70"]);
    let tests: Vec<_> = json["tests"].as_array().unwrap().iter().collect();
    let names: Vec<_> =
        tests.iter().map(|test| format!("{} {} {}", test["work"], test["tokens"], test["depth"])).collect();
    let expected = [
        "prefill\" 8 0",
        "prefill\" 20 0",
        "decode\" 4 0",
        "prefill\" 8 70",
        "prefill\" 20 70",
        "decode\" 4 70",
    ];
    assert_eq!(names, expected.map(|name| format!("\"{name}")));
    for test in &tests {
        assert_eq!(test["seconds"].as_array().unwrap().len(), 2, "a number for each repetition");
        let rate = &test["tokens_per_second"];
        let [q1, median, q3] = ["q1", "median", "q3"].map(|key| rate[key].as_f64().unwrap());
        assert!(0.0 < q1 && q1 <= median && median <= q3, "{rate}");
        assert!(test["floor_share"].is_null());
    }
    let read = |test: usize| tests[test]["bytes_per_token"].as_f64().unwrap();
    let kv = read(5) - read(2);
    assert_eq!(kv, 70.0 * 3.0 * 2.0 * (3.0 * 64.0 + 8.0), "70 tokens, three layers, two heads of 64");
    assert!(json["bandwidth"].is_null());
    assert_says(json["bandwidth_not_measured"].as_str().unwrap(), &["--no-bandwidth"]);
    let file = &json["model"]["files"][0];
    assert_eq!(file["len_bytes"], json["file_len_bytes"]);
    assert_eq!(file["name"], "llama-Q4_0.gguf");
    assert_eq!(file["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn bench_digests_do_not_depend_on_chunks_or_threads() {
    let digests = |args: &[&str]| {
        let json = bench_json(args);
        (json["logits_sha256"].clone(), json["ids_sha256"].clone())
    };
    let right = digests(&["--chunk", "1", "--threads", "1"]);
    let known = [
        "f7fed35bd54c7cfd1caa94ac66538996a1f4bda02a5497d8aff66df46e69bc0c",
        "bf2f8f6a6a9715e7b7fdfac20d283a30f51b000b2b66a941133a34f7cbca7188",
    ];
    assert_eq!(
        right,
        (known[0].into(), known[1].into()),
        "the same on every machine, while the profile is u1"
    );
    assert_eq!(digests(&["--chunk", "64", "--threads", "3", "--depth", "0,70"]), right);
    assert_eq!(digests(&["--device", "cpu-scalar"]), right);
}

#[test]
fn bench_writes_tables_reports_and_charts() {
    let folder = tempfile::tempdir().unwrap();
    let (model, svg) = (model(), folder.path().join("chart.svg"));
    let small = ["bench", "--prefill", "8", "--decode", "2", "-r", "1", "--no-bandwidth", &model];
    let table = succeeded(unisonic(&[&small[..], &["--svg", svg.to_str().unwrap()]].concat()));
    assert_says(
        &table,
        &["prefill 8", "decode 2", "tokens/s", "share", "thread", "sha256", "Floor: not measured"],
    );
    let chart = std::fs::read_to_string(svg).unwrap();
    assert!(chart.starts_with("<svg") && chart.ends_with("</svg>\n"), "{chart}");
    let report = succeeded(unisonic(&[&small[..], &["--report", "--threads", "2"]].concat()));
    assert_says(&report, &["### unisonic bench", "llama-Q4_0.gguf", "| decode 2 |", "2 threads", "**host**"]);
}

#[test]
fn bench_says_which_option_asks_for_too_much() {
    let model = model();
    let says = |args: &[&str]| failed(unisonic(&[&["bench", &model], args].concat()), 1);
    assert_says(
        &says(&["--depth", "500"]),
        &["--depth 500 with --prefill 512", "1012", "512; lower --depth or --prefill"],
    );
    assert_says(
        &says(&["--prefill", "8", "--depth", "200", "--context", "200"]),
        &["--decode 64", "264", "raise --context 200"],
    );
    assert_says(&says(&["--prefill", "0", "--decode", "0"]), &["nothing to measure"]);
    failed(unisonic(&["bench", "--json", "--report", &model]), 2);
    failed(unisonic(&["bench", "-r", "0", &model]), 2);
    failed(unisonic(&["bench", "--profile", "--report", &model]), 2);
    for device in ["cpu", "interpreter"] {
        let error = says(&["--profile", "--device", device, "--prefill", "0", "--decode", "1"]);
        assert_says(&error, &[device, "no clock", "CUDA or Vulkan"]);
    }
}

#[test]
fn bench_measures_the_bandwidth_or_says_why_not() {
    let model = model();
    let small = ["bench", "--json", "--prefill", "8", "--decode", "4", "-r", "3", "--threads", "2", &model];
    let json = last_line_json(&succeeded(unisonic(&small)));
    let [reads, decodes] = [0, 1].map(|test| &json["tests"][test]);
    assert!(reads["floor_share"].is_null() && reads["floor_ms_per_token"].is_null());
    if let Some(why) = json["bandwidth_not_measured"].as_str() {
        common::skipped("the bandwidth of memory", why);
        return;
    }
    let rounds = json["bandwidth"]["bytes_per_second"].as_array().unwrap();
    assert_eq!((rounds.len(), &json["bandwidth"]["threads"]), (3, &2.into()));
    assert!(rounds.iter().all(|rate| rate.as_f64().unwrap() > 0.0), "{rounds:?}");
    assert!(decodes["floor_share"].as_f64().unwrap() > 0.0, "{decodes}");
}
