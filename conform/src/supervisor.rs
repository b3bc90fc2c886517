//! Starts workers, gives them groups, and outlives what they do not.
//!
//! Each of some threads has a worker. When one is silent for too long or ends, the case that it had begun has failed, and
//! another worker goes on with the case behind it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use unisonic_devices::DeviceName;

use crate::outcome::{Outcome, Row};
use crate::planted::Planted;
use crate::suite::Task;
use crate::worker::{Answer, Description, Request, Server};

/// Lines of what a worker that ended had printed.
const LAST_LINES: usize = 5;
/// Workers that end at once, one after the other: then there is no use in another.
const MOST_SILENT_ENDS: u32 = 3;

/// How to run tasks.
pub struct Settings<'a> {
    /// The command of a worker ([`crate::worker::serve`]).
    pub worker: &'a (dyn Fn() -> Command + Sync),
    /// Workers at a time.
    pub jobs: usize,
    /// How long a worker may be silent.
    pub patience: Duration,
    /// Is told of each row, and how many of the tasks are done.
    pub progress: &'a (dyn Fn(&Row, usize) + Sync),
    /// Keeps the text of a case that failed ([`crate::replay`]); what the row calls it.
    pub keep_replay: &'a (dyn Fn(&Task, &str, &str) -> Option<String> + Sync),
    /// Whether to end early.
    pub is_interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl Settings<'_> {
    /// What a device in this process is.
    pub fn describe_here(device: DeviceName) -> Result<Description, RunError> {
        match Server::new(device, None).describe() {
            Answer::Device(description) => Ok(description),
            Answer::Refused(reason) => Err(RunError::Refused(reason)),
            other => Err(RunError::Ended(format!("a worker said {other:?}"))),
        }
    }
}

/// Why there are no rows.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A worker cannot be started.
    #[error("a worker process cannot be started: {0}")]
    Start(std::io::Error),
    /// The device cannot be opened.
    #[error("{0}")]
    Refused(String),
    /// The worker ended without an answer.
    #[error("{0}, when the device was opened")]
    Ended(String),
}

/// What the device is.
pub fn describe(settings: &Settings<'_>) -> Result<Description, RunError> {
    let mut worker = Worker::start(settings).map_err(RunError::Start)?;
    worker.ask(&Request::Describe);
    match worker.next(settings.patience) {
        Ok(Answer::Device(description)) => Ok(description),
        Ok(Answer::Refused(reason)) => Err(RunError::Refused(reason)),
        Ok(other) => Err(RunError::Ended(format!("a worker said {other:?}"))),
        Err(silence) => Err(RunError::Ended(worker.end(silence))),
    }
}

/// Runs the text of a case that failed ([`crate::replay`]), in a process of its own.
pub fn replay(text: &str, settings: &Settings<'_>) -> Result<Replayed, RunError> {
    let device = describe(settings)?;
    let mut worker = Worker::start(settings).map_err(RunError::Start)?;
    worker.ask(&Request::Replay(text.to_owned()));
    match worker.next(settings.patience) {
        Ok(Answer::Replayed { outcome, text }) => Ok(Replayed { device, outcome, text: Some(text) }),
        Ok(Answer::Refused(reason)) => Err(RunError::Refused(reason)),
        Ok(other) => Err(RunError::Ended(format!("a worker said {other:?}"))),
        Err(silence) => Ok(Replayed { device, outcome: Outcome::failed(worker.end(silence)), text: None }),
    }
}

/// The same in this process: a driver that crashes ends it.
pub fn replay_here(text: &str, device: DeviceName) -> Result<Replayed, RunError> {
    let description = Settings::describe_here(device)?;
    match Server::new(device, None).replay(text) {
        Answer::Replayed { outcome, text } => Ok(Replayed { device: description, outcome, text: Some(text) }),
        Answer::Refused(reason) => Err(RunError::Refused(reason)),
        other => Err(RunError::Ended(format!("a worker said {other:?}"))),
    }
}

/// What came of a case that ran again.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// Where it ran.
    pub device: Description,
    /// What came of it; that the process ended is a failure like others.
    pub outcome: Outcome,
    /// The text as it is of this device; none where the process ended.
    pub text: Option<String>,
}

/// Runs tasks; rows in the order of the tasks.
pub fn run(tasks: Vec<Task>, settings: &Settings<'_>) -> Result<Vec<Row>, RunError> {
    let shared = Shared {
        waiting: Mutex::new(tasks.into_iter().enumerate().collect()),
        rows: Mutex::new(vec![]),
        done: Mutex::new(0),
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.jobs.max(1))
            .map(|_| scope.spawn(|| Lane { settings, shared: &shared, worker: None }.run()))
            .collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let mut rows = shared.rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(task, _)| *task);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Runs tasks in this process: a driver that crashes ends it. For debuggers, and where a process cannot start itself.
pub fn run_here(
    tasks: &[Task],
    device: DeviceName,
    planted: Option<Planted>,
    settings: &Settings<'_>,
) -> Vec<Row> {
    let mut rows: Vec<Row> = vec![];
    let mut worker = Server::new(device, planted);
    for (done, task) in tasks.iter().enumerate() {
        if (settings.is_interrupted)() {
            break;
        }
        let is_there = worker.run(task, &mut |said| match said {
            Answer::Row(row) => {
                (settings.progress)(&row, done);
                rows.push(*row);
            }
            Answer::Replay { case, text } => {
                let path = (settings.keep_replay)(task, &case, &text);
                if let Some(row) = rows.iter_mut().rev().find(|row| row.case == case) {
                    row.replay = path;
                }
            }
            _ => {}
        });
        if !is_there {
            worker = Server::new(device, planted);
        }
    }
    rows
}

/// What lanes share.
struct Shared {
    waiting: Mutex<VecDeque<(usize, Task)>>,
    rows: Mutex<Vec<(usize, Row)>>,
    done: Mutex<usize>,
}

/// Takes tasks until there are no more.
struct Lane<'a> {
    settings: &'a Settings<'a>,
    shared: &'a Shared,
    worker: Option<Worker>,
}

impl Lane<'_> {
    fn run(mut self) -> Result<(), RunError> {
        let shared = self.shared;
        loop {
            let next = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((number, task)) = next.filter(|_| !(self.settings.is_interrupted)()) else {
                return Ok(());
            };
            self.task(number, task)?;
            *shared.done.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
    }

    /// Runs a task, with as many workers as it takes.
    fn task(&mut self, number: usize, mut task: Task) -> Result<(), RunError> {
        let mut silent_ends = 0;
        loop {
            let mut worker = match self.worker.take() {
                Some(worker) => worker,
                None => Worker::start(self.settings).map_err(RunError::Start)?,
            };
            worker.ask(&Request::Run(task.clone()));
            let (mut begun, mut is_reducing) = (None, false);
            let silence = loop {
                match worker.next(self.settings.patience) {
                    Ok(Answer::Begin(name)) => (begun, is_reducing) = (Some(name), false),
                    Ok(Answer::Reducing(_)) => is_reducing = true,
                    Ok(Answer::Replay { case, text }) => {
                        is_reducing = false;
                        self.keep_replay(number, &task, &case, &text);
                    }
                    Ok(Answer::Row(row)) => {
                        begun = None;
                        task.skip += 1;
                        silent_ends = 0;
                        self.keep(number, *row);
                    }
                    Ok(Answer::End) => {
                        self.worker = Some(worker);
                        return Ok(());
                    }
                    // A new process opens the device again.
                    Ok(Answer::Lost) => break None,
                    Ok(Answer::Device(_) | Answer::Refused(_) | Answer::Replayed { .. }) => {}
                    Err(silence) => break Some(silence),
                }
                if (self.settings.is_interrupted)() {
                    return Ok(());
                }
            };
            let Some(silence) = silence else { continue };
            let reason = worker.end(silence);
            if (self.settings.is_interrupted)() {
                return Ok(());
            }
            if is_reducing {
                // The case has its row; it was only not to be made smaller.
                self.show(number, &Task { skip: task.skip.saturating_sub(1), ..task.clone() });
                continue;
            }
            silent_ends += u32::from(begun.is_none());
            let case = begun.unwrap_or_else(|| "between cases".to_owned());
            self.keep(number, task.row(&case, Outcome::failed(reason), Duration::ZERO));
            self.show(number, &task);
            task.skip += 1;
            if silent_ends == MOST_SILENT_ENDS {
                return Ok(());
            }
        }
    }

    /// Has another worker write down the case that ended the last one.
    fn show(&self, number: usize, task: &Task) {
        let Ok(mut worker) = Worker::start(self.settings) else { return };
        worker.ask(&Request::Show(task.clone()));
        while let Ok(answer) = worker.next(self.settings.patience) {
            match answer {
                Answer::Replay { case, text } => self.keep_replay(number, task, &case, &text),
                Answer::End => return,
                _ => {}
            }
        }
    }

    fn keep_replay(&self, number: usize, task: &Task, case: &str, text: &str) {
        let Some(path) = (self.settings.keep_replay)(task, case, text) else { return };
        let mut rows = self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.iter_mut().rev().find(|(of, row)| *of == number && row.case == case);
        if let Some((_, row)) = row {
            row.replay = Some(path);
        }
    }

    fn keep(&self, number: usize, row: Row) {
        let done = *self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
        (self.settings.progress)(&row, done);
        self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner).push((number, row));
    }
}

/// Why nothing more is heard of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// It has ended.
    Ended,
    /// It takes longer than it may.
    TooLong(Duration),
}

/// A process, and threads that read what it says.
struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Answer>,
    printed: Option<JoinHandle<Vec<String>>>,
}

impl Worker {
    fn start(settings: &Settings<'_>) -> std::io::Result<Self> {
        let mut command = (settings.worker)();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (sender, answers) = channel();
        let requests = child.stdin.take();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                // What is no answer, a driver has printed.
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                let mut said = lines.filter_map(|line| serde_json::from_str(&line).ok());
                said.all(|answer| sender.send(answer).is_ok());
            });
        }
        let printed = child.stderr.take().map(|output| thread::spawn(move || last_lines(output)));
        Ok(Self { child, requests, answers, printed })
    }

    /// What it does not read is told by its silence.
    fn ask(&mut self, request: &Request) {
        let Some(requests) = &mut self.requests else { return };
        let written = serde_json::to_writer(&mut *requests, request).map_err(std::io::Error::from);
        if written.and_then(|()| requests.write_all(b"\n")).and_then(|()| requests.flush()).is_err() {
            self.requests = None;
        }
    }

    fn next(&mut self, patience: Duration) -> Result<Answer, Silence> {
        self.answers.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => Silence::TooLong(patience),
            RecvTimeoutError::Disconnected => Silence::Ended,
        })
    }

    /// Ends it; how it ended, in words.
    fn end(mut self, silence: Silence) -> String {
        let status = match silence {
            Silence::Ended => self.child.wait().ok(),
            Silence::TooLong(_) => None,
        };
        let mut text = match silence {
            Silence::TooLong(patience) => {
                // It may have ended by itself just now.
                let _ = self.child.kill();
                let _ = self.child.wait();
                format!("nothing was heard of the process for {} s", patience.as_secs())
            }
            Silence::Ended => format!("the process ended: {}", status.map_or("?".to_owned(), in_words)),
        };
        let printed = self.printed.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        if !printed.is_empty() {
            text += &format!("; its last words: {}", printed.join(" / "));
        }
        text
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Without requests it ends; one that hangs is ended. What has ended already is no error.
        drop(self.requests.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_lines(output: impl Read) -> Vec<String> {
    let mut last = VecDeque::new();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if !line.trim().is_empty() {
            last.push_back(line);
        }
        if last.len() > LAST_LINES {
            last.pop_front();
        }
    }
    last.into()
}

/// As a signal, where it is one.
fn in_words(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " (illegal instruction)",
            6 => " (abort)",
            7 => " (bus error)",
            8 => " (arithmetic error)",
            9 => " (killed)",
            11 => " (segmentation fault)",
            _ => "",
        };
        return format!("signal {signal}{name}");
    }
    status.to_string()
}
