//! What becomes of workers that crash, hang, say nonsense or lose the device. They are shell scripts here.

#![cfg(unix)]

use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use unisonic_conform::Row;
use unisonic_conform::suite::{Suite, Task};
use unisonic_conform::supervisor::{RunError, Settings, describe, replay, run};

/// What a worker that passes a case says.
const PASSED: &str = r#"echo '{"begin":"good"}'; echo '{"row":{"group":"g","case":"good","variant":"v","outcome":"passed","milliseconds":1}}'"#;

/// A worker that does `first` when it is told to begin with the first case, and `then` when with a later one.
fn script(first: &str, then: &str) -> String {
    format!(
        r#"while read line; do
            case "$line" in
                *show*) echo '{{"replay":{{"case":"bad","text":"the text"}}}}'; echo '"end"';;
                *'"skip":0'*) {first};;
                *) {then}; echo '"end"';;
            esac
        done"#
    )
}

fn tasks() -> Vec<Task> {
    let task =
        |group: &str| Task { group: group.to_owned(), variant: "v".to_owned(), suite: Suite::Quick, skip: 0 };
    vec![task("g"), task("h")]
}

/// Rows of two tasks, and the texts of cases.
fn rows(script: &str, jobs: usize) -> (Vec<Row>, Vec<String>) {
    let texts = Mutex::new(vec![]);
    let settings = Settings {
        worker: &|| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        },
        jobs,
        patience: Duration::from_millis(700),
        progress: &|_, _| (),
        keep_replay: &|task, case, text| {
            texts.lock().expect("no panic").push(format!("{} {case} {text}", task.group));
            Some(format!("{}.txt", task.group))
        },
        is_interrupted: &|| false,
    };
    let rows = run(tasks(), &settings).expect("scripts start");
    (rows, texts.into_inner().expect("no panic"))
}

fn reason(row: &Row) -> String {
    row.outcome.reason().unwrap_or_default()
}

#[test]
fn a_case_that_crashes_fails_and_the_next_runs() {
    let script = script(r#"echo '{"begin":"bad"}'; echo oops >&2; kill -SEGV $$"#, PASSED);
    for jobs in [1, 2] {
        let (rows, texts) = rows(&script, jobs);
        let names: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
        assert_eq!(names, ["bad", "good", "bad", "good"]);
        assert_eq!(
            reason(&rows[0]),
            "the process ended: signal 11 (segmentation fault); its last words: oops"
        );
        assert_eq!(rows[0].replay.as_deref(), Some("g.txt"));
        assert_eq!(reason(&rows[1]), "");
        let mut texts = texts;
        texts.sort();
        assert_eq!(texts, ["g bad the text", "h bad the text"]);
    }
}

#[test]
fn a_case_that_hangs_fails_and_the_next_runs() {
    let (rows, _) = rows(&script(r#"echo '{"begin":"bad"}'; exec sleep 60"#, PASSED), 2);
    let names: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    assert_eq!(names, ["bad", "good", "bad", "good"]);
    assert!(reason(&rows[0]).starts_with("nothing was heard of the process for"), "{}", reason(&rows[0]));
}

#[test]
fn after_the_device_was_lost_another_process_goes_on() {
    let lost = format!("{PASSED}; echo 'a driver talks'; echo '\"lost\"'; exit");
    let (rows, _) = rows(&script(&lost, PASSED), 1);
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert!(rows.iter().all(|row| reason(row).is_empty()), "{rows:?}");
}

/// A failure that crashes while it is made smaller is one failure, and shown as it is.
#[test]
fn what_crashes_when_it_is_reduced_has_failed_once() {
    let failed = r#"echo '{"begin":"bad"}'
        echo '{"row":{"group":"g","case":"bad","variant":"v","outcome":"failed","reason":"bits","milliseconds":1}}'
        echo '{"reducing":"bad"}'; kill -ABRT $$"#;
    let (rows, texts) = rows(&script(failed, PASSED), 1);
    let names: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    assert_eq!(names, ["bad", "good", "bad", "good"]);
    assert_eq!(reason(&rows[0]), "bits");
    assert_eq!(texts.len(), 2);
}

fn settings<'a>(worker: &'a (dyn Fn() -> Command + Sync)) -> Settings<'a> {
    Settings {
        worker,
        jobs: 1,
        patience: Duration::from_secs(1),
        progress: &|_, _| (),
        keep_replay: &|_, _, _| None,
        is_interrupted: &|| false,
    }
}

/// A file of a case that ended a process is run by a process too.
#[test]
fn a_replay_that_crashes_is_a_failure() {
    let script = r#"while read line; do
            case "$line" in
                *describe*) echo '{"device":{"device":"d","name":"n","driver":"","is_software":true}}';;
                *replay*) kill -SEGV $$;;
            esac
        done"#;
    let worker = || {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    };
    let replayed = replay("the text", &settings(&worker)).expect("what became of it");
    assert_eq!((replayed.device.name.as_str(), replayed.text), ("n", None));
    let reason = replayed.outcome.reason().unwrap_or_default();
    assert_eq!(reason, "the process ended: signal 11 (segmentation fault)");
}

#[test]
fn workers_that_end_at_once_are_not_started_for_ever() {
    let (rows, _) = rows("exit 7", 1);
    assert_eq!(rows.len(), 6, "{rows:?}");
    assert_eq!(reason(&rows[0]), "the process ended: exit status: 7");
    let ended = describe(&settings(&|| Command::new("false")));
    assert!(matches!(ended, Err(RunError::Ended(_))), "{ended:?}");
    let absent = describe(&settings(&|| Command::new("/no/such/program")));
    assert!(matches!(absent, Err(RunError::Start(_))), "{absent:?}");
}
