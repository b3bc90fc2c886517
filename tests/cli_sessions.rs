//! What outlives a process: `--save-session`, `--load-session` and `--kv-dir`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::program::{assert_says, failed, last_line_json, model, names, succeeded, unisonic};
use serde_json::Value as Json;

/// The line and what it said on stderr.
fn run(args: &[&str]) -> (Json, String) {
    let output = unisonic(&[&["run", "--json"], args].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (last_line_json(&succeeded(output)), stderr)
}

fn ids(line: &Json) -> Vec<u64> {
    line["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// The model's end token is not drawn.
const NO_END: &str = "2=-inf";

#[test]
fn twenty_and_twenty_tokens_are_forty_in_another_process_on_another_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    let (path, model) = (path.to_str().unwrap(), model());
    let prompt = "A prompt that is longer than one page of keys and values, which has sixty-four of them.";
    let choices: [&[&str]; 3] = [
        &[],
        &["--temperature", "0.9", "--seed", "5", "--logit-bias", NO_END],
        &[
            "--temperature",
            "1.1",
            "--repeat-penalty",
            "1.4",
            "--repeat-last-n",
            "30",
            "--top-k",
            "40",
            "--logit-bias",
            NO_END,
        ],
    ];
    for choice in choices {
        let (forty, _) = run(&[&["-n", "40", &model, prompt], choice].concat());
        let (twenty, _) = run(&[&["-n", "20", "--save-session", path, &model, prompt], choice].concat());
        assert_eq!(names(folder.path()), ["session"]);
        // The interpreter runs what GPUs run, and takes its time.
        let devices: &[&str] =
            if choice.is_empty() { &["cpu", "cpu-scalar", "interpreter"] } else { &["cpu"] };
        for device in devices {
            let (rest, stderr) = run(&["-n", "20", "--load-session", path, "--device", device, &model]);
            assert_eq!([ids(&twenty), ids(&rest)].concat(), ids(&forty), "{choice:?} {device}");
            assert_says(&stderr, &["(128 known)"]);
            assert_eq!(rest["prompt_tokens"].as_u64(), forty["prompt_tokens"].as_u64().map(|n| n + 20));
        }
    }
    // In ten pieces, each of its own process.
    let (forty, _) = run(&["-n", "40", &model, "Hi"]);
    let mut pieces = ids(&run(&["-n", "4", "--save-session", path, &model, "Hi"]).0);
    while pieces.len() < 40 {
        pieces.extend(ids(&run(&["-n", "4", "--load-session", path, "--save-session", path, &model]).0));
    }
    assert_eq!(pieces, ids(&forty));
}

#[test]
fn a_prompt_is_appended_to_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    let (path, model) = (path.to_str().unwrap(), model());
    let (first, _) = run(&["-n", "5", "--save-session", path, "--ids", "1,2,3", &model]);
    let all = [vec![1, 2, 3], ids(&first), vec![9, 8]].concat();
    let all: Vec<String> = all.iter().map(u64::to_string).collect();
    let (right, _) = run(&["-n", "5", "--ids", &all.join(","), &model]);
    let (more, _) = run(&["-n", "5", "--load-session", path, "--ids", "9,8", &model]);
    assert_eq!(ids(&more), ids(&right));
    let (text, _) = run(&["-n", "1", "--load-session", path, &model, "Hi"]);
    assert_eq!(text["prompt_tokens"], 3 + 5 + 2, "no second BOS");
}

#[test]
fn a_session_that_cannot_be_used_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    let (path, model) = (path.to_str().unwrap(), model());
    run(&["-n", "5", "--save-session", path, &model, "Hi"]);
    let other = common::quant("Q8_0");
    let stderr = failed(unisonic(&["run", "--load-session", path, other.to_str().unwrap()]), 1);
    assert_says(&stderr, &["another model", "SHA-256"]);
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    assert_says(&failed(unisonic(&["run", "--load-session", path, &model]), 1), &[path, "damaged"]);
    assert_says(&failed(unisonic(&["run", "--load-session", &model, &model]), 1), &["no session"]);
    failed(unisonic(&["run", "--load-session", path, "--chat", &model, "Hi"]), 2);
    let stderr = failed(unisonic(&["run", "--save-session", "no/such/folder/s", &model, "Hi"]), 1);
    assert_says(&stderr, &["no/such/folder/s"]);
}

#[test]
fn keys_and_values_outlive_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let (path, model) = (path.to_str().unwrap(), model());
    let prompt = "one two three four five six seven eight nine ten. ".repeat(5);
    let arguments = ["-n", "20", "--logits-digest", &model, &prompt];
    let (right, _) = run(&arguments);
    let kept = [&arguments[..], &["--kv-dir", path]].concat();
    let (first, stderr) = run(&kept);
    assert_eq!(first, right);
    assert!(!stderr.contains("known"), "{stderr}");
    let (second, stderr) = run(&kept);
    assert_eq!(second, right);
    assert_says(&stderr, &["(320 known)"]);
    let (scalar, stderr) = run(&[&kept[..], &["--device", "cpu-scalar"]].concat());
    assert_eq!(
        (&scalar["token_ids"], &scalar["logits_sha256"]),
        (&right["token_ids"], &right["logits_sha256"])
    );
    assert_says(&stderr, &["(320 known)"]);
    let (interpreted, stderr) = run(&[&kept[..], &["--device", "interpreter"]].concat());
    assert_eq!(interpreted["logits_sha256"], right["logits_sha256"]);
    assert_says(&stderr, &["(320 known)"]);
    // Another model has nothing there.
    let other = common::quant("Q8_0");
    let (_, stderr) = run(&["-n", "1", "--kv-dir", path, other.to_str().unwrap(), &prompt]);
    assert!(!stderr.contains("known"), "{stderr}");
    for page in names(&std::path::Path::new(path).join("kv-pages")) {
        std::fs::write(std::path::Path::new(path).join("kv-pages").join(page), "x").unwrap();
    }
    assert_eq!(run(&kept).0, right, "damaged pages are made anew");
    assert_says(&run(&kept).1, &["(320 known)"]);
}

/// What the device of GPU kernels has written, a CPU reads, and the other way round.
#[test]
fn pages_of_gpus_are_those_of_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let model = model();
    let prompt = "sixty-four bytes and one for the beginning are one whole page of it";
    let pages = |device: &str| {
        let path = folder.path().join(device);
        run(&["-n", "1", "--kv-dir", path.to_str().unwrap(), "--device", device, &model, prompt]);
        let pages = path.join("kv-pages");
        let read = |name: &String| (name.clone(), std::fs::read(pages.join(name)).unwrap());
        names(&pages).iter().map(read).collect::<Vec<_>>()
    };
    let right = pages("cpu-scalar");
    assert_eq!(right.len(), 1);
    for device in ["cpu", "interpreter"] {
        assert!(pages(device) == right, "{device}");
    }
}

#[test]
fn many_processes_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let (path, model) = (path.to_str().unwrap(), model());
    let prompt = |n: usize| ["abc ".repeat(30), format!("{} ", n % 2).repeat(60)].concat();
    let right: Vec<Json> = (0..2).map(|n| run(&["-n", "9", &model, &prompt(n)]).0).collect();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (right, model) = (&right[n % 2], &model);
                let prompt = prompt(n);
                // Room for some of the pages only.
                scope.spawn(move || {
                    let small = ["--kv-dir-size", "200KB"];
                    let args =
                        [&["-n", "9", "--kv-dir", path, model, &prompt][..], &small[..n / 2 * 2]].concat();
                    assert_eq!(&run(&args).0, right);
                });
            }
        });
    }
}
