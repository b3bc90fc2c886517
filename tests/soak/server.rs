//! A `unisonic serve` of its own, and clients that need no library to misbehave.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::requests::Request;

/// Each turn in brackets with its role, for models with and without a template.
const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}\
    {% if add_generation_prompt %}[assistant:{% endif %}";
/// Nothing takes as long, on a busy machine either.
const STUCK: Duration = Duration::from_secs(300);

/// When a client leaves.
#[derive(Clone, Copy)]
pub enum Left {
    Never,
    /// Before the request is whole.
    InTheRequest,
    /// When it is sent.
    AtOnce,
    /// When so much of the answer is there.
    After {
        bytes: usize,
    },
}

pub struct Server {
    process: Child,
    address: String,
    _folder: TempDir,
}

impl Server {
    pub fn start(model: &Path, parallel: usize, queue: usize, threads: Option<usize>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let template = folder.path().join("template");
        std::fs::write(&template, TEMPLATE).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisonic"));
        command.args(["serve", "--port", "0", "--context", "512", "--cache-dir", "off"]);
        command.args(["--parallel", &parallel.to_string(), "--queue", &queue.to_string()]);
        if let Some(threads) = threads {
            command.args(["--threads", &threads.to_string()]);
        }
        command.arg("--chat-template").arg(template).arg(model).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("listening on http://")?.to_owned()));
        assert!(lines.any(|line| line.starts_with("ready: ")), "the server is not ready");
        // Whoever does not read what it says blocks it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address: address.unwrap(), _folder: folder }
    }

    /// Sends a request; status and body of the answer, if the client stays for it. A slow client pauses between reads.
    pub fn send(&self, request: &Request, left: Left, slow: Option<Duration>) -> Option<(u16, String)> {
        let body = request.body.to_string();
        // 1.0: the answer ends with the connection.
        let head = format!(
            "POST {} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
            request.path,
            body.len()
        );
        let whole = head + &body;
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        if let Left::InTheRequest = left {
            stream.write_all(&whole.as_bytes()[..whole.len() / 2]).unwrap();
            return None;
        }
        stream.write_all(whole.as_bytes()).unwrap();
        let wanted = match left {
            Left::AtOnce | Left::InTheRequest => return None,
            Left::After { bytes } => bytes,
            Left::Never => usize::MAX,
        };
        let mut answer = Vec::new();
        let mut buffer = vec![0; if slow.is_some() { 200 } else { 1 << 16 }];
        loop {
            let count = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                // The process was paused.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("stuck: {error}: {body}"),
            };
            answer.extend_from_slice(&buffer[..count]);
            if answer.len() > wanted {
                return None;
            }
            slow.into_iter().for_each(std::thread::sleep);
        }
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        Some((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
    }

    /// What a request gives.
    pub fn answer(&self, request: &Request) -> Vec<Json> {
        let (status, body) = self.send(request, Left::Never, None).unwrap();
        assert_eq!(status, 200, "{body}: {}", request.body);
        request.normal(&body)
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// A number of `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.metrics();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Waits until nothing runs or waits; then no place, page or slot may be taken.
    pub fn until_empty(&self) {
        let end = Instant::now() + STUCK;
        let names = ["requests_running", "requests_waiting", "kv_pages_held"];
        while names.iter().any(|name| self.metric(&format!("unisonic_{name}")) > 0.0) {
            assert!(Instant::now() < end, "something is stuck: {}", self.metrics());
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!self.metrics().contains("{slot="), "{}", self.metrics());
    }

    /// Processors that the server uses in this time.
    pub fn cpus(&self, time: Duration) -> f64 {
        let before = self.metric("process_cpu_seconds_total");
        std::thread::sleep(time);
        (self.metric("process_cpu_seconds_total") - before) / time.as_secs_f64()
    }

    /// Ends it as it is meant to be.
    pub fn stop(mut self) {
        let kill = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(kill.success() && self.process.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
