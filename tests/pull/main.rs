//! `unisonic pull` against a hub on this machine: whole files, broken ones, refusals, and servers that lie.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod faults;
mod folder;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;
use server::{COMMIT, Faults, Hub, REPO, Response, Server, sha256};
use tempfile::TempDir;

fn data(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// A model that runs, of 0.6 MB.
fn model() -> Vec<u8> {
    data("quants/llama-Q2_K.gguf")
}

/// A user with a home folder, and nothing else in the environment that could matter.
struct User {
    home: TempDir,
}

impl User {
    fn new() -> Self {
        Self { home: TempDir::new().unwrap() }
    }

    fn command(&self, server: &Server, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisonic"));
        command.env_clear().env("HOME", self.home.path()).env("HF_HOME", self.home.path().join("hf"));
        command.args(["pull", "--mirror", &server.url]).args(args);
        command
    }

    fn pull(&self, server: &Server, args: &[&str]) -> Output {
        self.command(server, args).args(["--retries", "0"]).output().unwrap()
    }

    fn cache(&self) -> PathBuf {
        self.home.path().join("hf/hub/models--owner--tiny-GGUF")
    }

    fn blob(&self, bytes: &[u8]) -> PathBuf {
        self.cache().join("blobs").join(sha256(bytes))
    }
}

/// The path that a command printed, and nothing else.
#[track_caller]
fn path(output: &Output) -> PathBuf {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    PathBuf::from(stdout.trim_end())
}

#[track_caller]
fn json(output: &Output) -> Json {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a command said that had to fail with `code`.
#[track_caller]
fn failure(output: &Output, code: i32, parts: &[&str]) -> String {
    let stderr = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty());
    assert!(!stderr.contains("panicked") && !stderr.contains("secret"), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{part:?} is not in: {stderr}");
    }
    stderr
}

#[test]
fn a_model_arrives_in_the_hubs_cache_and_runs() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("README.md", b"x"), ("tiny-Q2_K.gguf", &model)], Faults::default());
    let output = user.pull(&server, &[REPO]);
    let path = path(&output);
    assert_eq!(path, user.cache().join("snapshots").join(COMMIT).join("tiny-Q2_K.gguf"));
    assert_eq!(fs::read(&path).unwrap(), model);
    assert_eq!(fs::read(user.blob(&model)).unwrap(), model);
    assert_eq!(fs::read_to_string(user.cache().join("refs/main")).unwrap(), COMMIT);
    assert!(!user.blob(&model).with_extension("part").exists());
    assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
    let run = ["run", "--max-tokens", "1", path.to_str().unwrap(), "a"];
    assert!(Command::new(env!("CARGO_BIN_EXE_unisonic")).args(run).output().unwrap().status.success());
}

#[test]
fn a_file_that_is_there_is_checked_and_not_fetched_again() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    for received in [model.len(), 0] {
        let json = json(&user.pull(&server, &["--json", REPO]));
        assert_eq!(json["received_bytes"], received);
        assert_eq!(json["size_bytes"], model.len());
        assert_eq!(json["sha256"][0], sha256(&model));
        assert_eq!(json["commit"], COMMIT);
        assert_eq!(json["runs"], true);
    }
    assert_eq!(server.requests("/storage/").len(), 1);
    // A damaged one is.
    fs::write(user.blob(&model), b"damaged").unwrap();
    let output = user.pull(&server, &[REPO]);
    assert!(stderr(&output).contains("damaged"), "{}", stderr(&output));
    assert_eq!(fs::read(path(&output)).unwrap(), model);
}

#[test]
fn a_download_that_broke_off_goes_on_where_it_ended() {
    let (user, model) = (User::new(), model());
    let faults = Faults { cut_first_after: Some(100_000), ..Faults::default() };
    let server = Hub::start(&[("m.gguf", &model)], faults);
    let output = user.pull(&server, &[REPO]);
    failure(&output, 1, &["connection", "lost after 100.00 kB", "run the command again"]);
    assert!(!user.blob(&model).exists());
    assert_eq!(fs::read(user.blob(&model).with_extension("part")).unwrap(), model[..100_000]);

    let json = json(&user.pull(&server, &["--json", REPO]));
    assert_eq!(json["received_bytes"], model.len() - 100_000);
    assert_eq!(fs::read(json["path"].as_str().unwrap()).unwrap(), model);
    let ranges: Vec<_> =
        server.requests("/storage/").iter().map(|r| r.headers.get("range").cloned()).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-".to_owned())]);
}

#[test]
fn wrong_bytes_get_no_name() {
    let (user, model) = (User::new(), model());
    let faults = Faults { sends_other_bytes: true, ..Faults::default() };
    let server = Hub::start(&[("m.gguf", &model)], faults);
    let dir = user.home.path().join("models");
    failure(&user.pull(&server, &[REPO]), 1, &["m.gguf", "not what the server announced", &sha256(&model)]);
    failure(
        &user.pull(&server, &["--dir", dir.to_str().unwrap(), REPO]),
        1,
        &["not what the server announced"],
    );
    let names = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert!(names(&dir).is_empty());
    assert_eq!(names(&user.cache().join("blobs")), [format!("{}.lock", sha256(&model)).as_str()]);
    assert!(!user.cache().join("snapshots").exists());
}

#[test]
fn several_models_are_listed_and_picked_by_quantisation() {
    let (user, small) = (User::new(), data("gguf/all-types.gguf"));
    let files: [(&str, &[u8]); 3] = [("m-Q2_K.gguf", &model()), ("m-Q4_K_M.gguf", &small), ("a.bin", b"x")];
    let server = Hub::start(&files, Faults::default());
    let listed = failure(&user.pull(&server, &[REPO]), 2, &["several models", "639.90 kB", "1.60 kB"]);
    assert!(listed.contains(&format!("unisonic pull {REPO}:m-Q4_K_M.gguf")), "{listed}");
    failure(&user.pull(&server, &[&format!("{REPO}:Q8_0")]), 1, &["Q8_0", "m-Q2_K.gguf", "m-Q4_K_M.gguf"]);
    failure(&user.pull(&server, &[&format!("{REPO}:a.bin")]), 1, &["no GGUF file or quantisation `a.bin`"]);
    assert!(server.requests("/storage/").is_empty());
    assert_eq!(fs::read(path(&user.pull(&server, &[&format!("{REPO}:q4_k_m")]))).unwrap(), small);
}

#[test]
fn a_sharded_model_arrives_whole() {
    let user = User::new();
    let shards: Vec<_> = (1..=3).map(|no| data(&format!("gguf/split-0000{no}-of-00003.gguf"))).collect();
    let names = ["q/s-00001-of-00003.gguf", "q/s-00002-of-00003.gguf", "q/s-00003-of-00003.gguf"];
    let files: Vec<(&str, &[u8])> = names.iter().copied().zip(shards.iter().map(Vec::as_slice)).collect();
    let server = Hub::start(&files, Faults::default());
    let output = user.pull(&server, &["--json", &format!("{REPO}:s-00002-of-00003.gguf")]);
    let json = json(&output);
    let first = json["path"].as_str().unwrap();
    assert!(
        first.ends_with("snapshots/0123456789abcdef0123456789abcdef01234567/q/s-00001-of-00003.gguf"),
        "{first}"
    );
    for (path, shard) in json["paths"].as_array().unwrap().iter().zip(&shards) {
        assert_eq!(&fs::read(path.as_str().unwrap()).unwrap(), shard);
    }
    // It opens as a set; no architecture goes with it.
    assert_eq!(json["runs"], false);
    assert!(stderr(&output).contains("warning: "), "{}", stderr(&output));
    assert!(!stderr(&output).contains("shard"), "{}", stderr(&output));
}

#[test]
fn a_set_with_a_hole_is_refused() {
    let server = Hub::start(&[("s-00001-of-00002.gguf", b"x")], Faults::default());
    failure(&User::new().pull(&server, &[REPO]), 1, &["not complete", "s-00001-of-00002.gguf"]);
}

#[test]
fn refusals_say_what_to_do() {
    let (user, server) = (User::new(), Hub::start(&[("m.gguf", b"x")], Faults::default()));
    failure(&user.pull(&server, &["owner/no-such"]), 1, &["no public repository owner/no-such", "HF_TOKEN"]);
    failure(&user.pull(&server, &["--revision", "v9", REPO]), 1, &["has no revision `v9`"]);
    let server = Hub::start(&[("a.txt", b"x")], Faults::default());
    failure(&user.pull(&server, &[REPO]), 1, &["holds no GGUF file"]);
    for (refusal, says) in [
        ((401, "GatedRepo"), "accept its licence"),
        ((403, "GatedRepo"), "accept its licence"),
        ((429, ""), "too many requests"),
        ((503, ""), "status 503"),
    ] {
        let server = Hub::start(&[], Faults { refuses_with: Some(refusal), ..Faults::default() });
        failure(&user.pull(&server, &[REPO]), 1, &[says]);
    }
    let nobody = Server::nobody();
    failure(&user.pull(&nobody, &[REPO]), 1, &["cannot reach 127.0.0.1:", "--mirror"]);
    for wrong in ["no-owner", "../up/x", "a/b:"] {
        failure(&user.pull(&server, &[wrong]), 2, &["REPO[:FILE]"]);
    }
}

#[test]
fn the_token_goes_to_the_hub_and_nowhere_else() {
    let (user, model) = (User::new(), model());
    let storage = Hub::start(&[("m.gguf", &model)], Faults::default());
    let faults = Faults { storage: Some(storage.url.clone()), ..Faults::default() };
    let server = Hub::start(&[("m.gguf", &model)], faults);
    let token = |server: &Server, part: &str| server.requests(part)[0].headers.get("authorization").cloned();
    let output = user.command(&server, &["-vvv", REPO]).env("HF_TOKEN", "hf_secret").output().unwrap();
    path(&output);
    assert!(!stderr(&output).contains("secret"));
    assert_eq!(token(&server, "/api/").as_deref(), Some("Bearer hf_secret"));
    assert_eq!(token(&server, "/resolve/").as_deref(), Some("Bearer hf_secret"));
    assert_eq!(token(&storage, "/storage/"), None);

    // The file that `hf auth login` writes.
    fs::write(user.home.path().join("hf/token"), "hf_file\n").unwrap();
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    path(&user.pull(&server, &[REPO]));
    assert_eq!(token(&server, "/api/").as_deref(), Some("Bearer hf_file"));
}

#[test]
fn the_mirror_can_be_set_in_the_environment() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisonic"));
    command
        .env_clear()
        .env("HF_HUB_CACHE", user.home.path())
        .env("HF_ENDPOINT", &server.url)
        .args(["pull", REPO]);
    let path = path(&command.output().unwrap());
    assert!(path.starts_with(user.home.path().join("models--owner--tiny-GGUF")), "{}", path.display());
    let output = command.env("HF_ENDPOINT", "ftp://mirror").output().unwrap();
    failure(&output, 2, &["HF_ENDPOINT", "does not begin with https://"]);
    let help = command.env("HF_ENDPOINT", "https://u:secret@a").arg("--help").output().unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains("secret"));
}

#[test]
fn a_mirror_is_no_more_than_a_host_a_port_and_a_path() {
    let pull = |address: &str, from: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisonic"));
        command.env_clear().env("HF_HOME", "/nowhere").env("HF_TOKEN", "hf_secret").args(["pull", REPO]);
        match from {
            "HF_ENDPOINT" => command.env("HF_ENDPOINT", address).output().unwrap(),
            _ => command.args(["--mirror", address]).output().unwrap(),
        }
    };
    for (address, problem) in [
        ("http://127.0.0.1:99999", "port"),
        ("http://user:secret@127.0.0.1:1", "user name"),
        ("http://127.0.0.1:1/#secret", "follows its path"),
        ("http://127.0.0.1:1/?secret", "follows its path"),
    ] {
        for from in ["HF_ENDPOINT", "--mirror"] {
            failure(&pull(address, from), 2, &[from, problem]);
        }
    }
    failure(&pull("", "--mirror"), 2, &["--mirror"]);
}

#[cfg(unix)]
#[test]
fn what_is_set_to_nothing_is_not_set_and_a_token_is_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let mut command = user.command(&server, &[REPO]);
    for name in ["HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT"] {
        command.env(name, "");
    }
    let path = path(&command.current_dir(user.home.path()).output().unwrap());
    assert!(path.starts_with(user.home.path().join(".cache/huggingface/hub")), "{}", path.display());
    fs::write(user.home.path().join(".cache/huggingface/token"), "hf_file").unwrap();
    let asked = server.requests("").len();
    let output = command.env("HF_TOKEN", OsStr::from_bytes(b"hf_secret\xff")).output().unwrap();
    failure(&output, 1, &["the token in HF_TOKEN"]);
    assert_eq!(server.requests("").len(), asked);
}

#[test]
fn a_mirror_that_lists_only_names_is_asked_file_by_file() {
    let (user, model) = (User::new(), model());
    let simple = Faults { tells_names_only: true, ..Faults::default() };
    let server = Hub::start(&[("m.gguf", &model)], simple.clone());
    assert_eq!(fs::read(path(&user.pull(&server, &[REPO]))).unwrap(), model);
    let server = Hub::start(&[("m.gguf", &model)], Faults { sends_no_digest: true, ..simple });
    failure(&user.pull(&server, &[REPO]), 1, &["announces no size and SHA-256", "m.gguf"]);
}

#[test]
fn several_at_once_fetch_a_file_once() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let start =
        || user.command(&server, &[REPO]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started: Vec<_> = (0..4).map(|_| start()).collect();
    for process in started {
        assert_eq!(fs::read(path(&process.wait_with_output().unwrap())).unwrap(), model);
    }
    assert_eq!(server.requests("/storage/").len(), 1);
}
