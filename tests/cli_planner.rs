//! What the command line has for the planner: `tune`, `passes`, `bench --ablate`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::program::{assert_says, failed, last_line_json, model, names, succeeded, unisonic};

#[test]
fn a_device_without_kernels_has_nothing_to_tune() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, cache, table) = (model(), path("cache"), path("table.jsonl"));
    let tune = |more: &[&str]| unisonic(&[&["tune", &model, "--cache-dir", &cache], more].concat());
    let said = succeeded(tune(&["--export", &table]));
    assert_says(&said, &["CPU", "no tuning rows", "nothing was measured"]);
    let text = std::fs::read_to_string(&table).unwrap();
    assert_eq!(text.lines().count(), 1);
    assert_says(&text, &["\"tuning_table\":1", "CPU"]);
    let json = last_line_json(&succeeded(tune(&["--import", &table, "--json"])));
    assert_eq!((&json["has_rows"], &json["measured"]), (&false.into(), &0.into()));

    std::fs::write(&table, text.replace("CPU", "Another")).unwrap();
    assert_says(&failed(tune(&["--import", &table]), 1), &["`Another", "`CPU", "measure anew"]);
    std::fs::write(&table, "{}\n").unwrap();
    assert_says(&failed(tune(&["--import", &table]), 1), &["no tuning table", "table.jsonl"]);
    assert_says(&failed(tune(&["--import", &path("none")]), 1), &["none"]);
    assert_says(&failed(tune(&["--export", &path("no/such/table")]), 1), &["no/such/table"]);
    assert_says(&failed(tune(&["--budget", "soon"]), 2), &["such as 30s"]);
    assert_says(&failed(tune(&["--device", "interpreter"]), 1), &["no clock"]);
}

/// What one command measured, another finds in the cache, and a third in an export.
#[test]
fn a_table_is_kept_and_carried() {
    if !succeeded(unisonic(&["devices"])).contains("vulkan:0") {
        return common::skipped("unisonic tune on Vulkan", "no Vulkan device");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, table) = (model(), path("table.jsonl"));
    let tune = |cache: &str, more: &[&str]| {
        let line = ["tune", &model, "--device", "vulkan", "--json", "--chunk", "1", "--cache-dir", cache];
        last_line_json(&succeeded(unisonic(&[&line, more].concat())))
    };
    let first = tune(&path("one"), &["--budget", "10m", "--export", &table]);
    let measured = first["measured"].as_u64().unwrap();
    assert!(measured > 0 && first["unfinished"] == 0 && first["known"] == 0, "{first}");
    assert_eq!(first["steps"].as_array().unwrap().len(), 1, "a chunk is one row: {first}");
    let second = tune(&path("one"), &[]);
    assert_eq!((second["measured"].as_u64(), second["known"].as_u64()), (Some(0), Some(measured)));
    assert_eq!(names(&folder.path().join("one/tuning-tables")).len(), 1);
    let elsewhere = tune(&path("two"), &["--import", &table]);
    assert_eq!((elsewhere["measured"].as_u64(), elsewhere["known"].as_u64()), (Some(0), Some(measured)));

    let run = |more: &[&str]| {
        let line = ["run", &model, "--ids", "1", "--max-tokens", "3", "--speculate", "off"];
        succeeded(unisonic(&[&line, more].concat()))
    };
    let vulkan = ["--device", "vulkan", "--cache-dir"];
    let (two, right) = (path("two"), run(&[]));
    assert_eq!(run(&[&vulkan[..], &[two.as_str()]].concat()), right);
    assert_eq!(run(&[&vulkan[..], &[two.as_str(), "--feature", "tuning-table=off"]].concat()), right);
    let listed = succeeded(unisonic(&["cache", "ls", "--cache-dir", &two]));
    assert_says(&listed, &["tuning-tables", "kernels"]);
}

#[test]
fn passes_are_listed_and_replayed() {
    let listed = succeeded(unisonic(&["passes"]));
    assert_says(&listed, &["quantize-heads", "required", "join-launches", "launches"]);
    let json = last_line_json(&succeeded(unisonic(&["passes", "--json"])));
    assert_eq!(json["passes"].as_array().unwrap().len(), listed.lines().count());

    let folder = tempfile::tempdir().unwrap();
    let (ir, crash) = (folder.path().join("ir"), folder.path().join("crash.txt"));
    let line = ["run", &model(), "--ids", "1", "--max-tokens", "1", "--dump-ir", ir.to_str().unwrap()];
    succeeded(unisonic(&line));
    let dumped = names(&ir);
    let before = |name: &str| {
        let at = dumped.iter().position(|file| file.contains(name)).unwrap();
        std::fs::read_to_string(ir.join(&dumped[at - 1])).unwrap()
    };
    let after = dumped.iter().find(|file| file.contains("fuse-heads")).unwrap();
    std::fs::write(&crash, format!("pass fuse-heads\n{}", before("fuse-heads"))).unwrap();
    let replay = || unisonic(&["passes", "--replay", crash.to_str().unwrap()]);
    assert_eq!(succeeded(replay()), std::fs::read_to_string(ir.join(after)).unwrap());
    std::fs::write(&crash, "graph\n").unwrap();
    assert_says(&failed(replay(), 1), &["crash.txt", "`pass NAME`"]);
}

#[test]
fn ablation_has_a_row_for_each_switch() {
    let folder = tempfile::tempdir().unwrap();
    let (model, svg) = (model(), folder.path().join("chart.svg"));
    let line = ["bench", "--ablate", "--prefill", "8", "--decode", "2", "-r", "2", &model];
    let table = succeeded(unisonic(&[&line[..], &["--svg", svg.to_str().unwrap()]].concat()));
    assert_says(&table, &["off", "none", "fuse-norm-quantize", "all", "ratio", "launches", "equal"]);
    assert!(!table.contains("DIFFERENT") && !table.contains("join-launches"), "{table}");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("fuse-heads"));
    let json = last_line_json(&succeeded(unisonic(&[&line[..], &["--json"]].concat())));
    assert_eq!(json["equal"], true);
    let variants = json["variants"].as_array().unwrap();
    let number = |variant: &serde_json::Value, key: &str| variant[key].as_u64().unwrap();
    let (none, all) = (&variants[0], variants.last().unwrap());
    assert!(number(all, "launches") > number(none, "launches"), "steps are fewer with passes");
    assert!(number(all, "bytes") > number(none, "bytes"), "and move less");
    assert_eq!(all["tests"][1]["seconds"].as_array().unwrap().len(), 2);
    for wrong in [["--ablate", "--profile"], ["--ablate", "--report"]] {
        failed(unisonic(&[&["bench", &model], &wrong[..]].concat()), 2);
    }
}
