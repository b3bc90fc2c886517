//! A model hub on this machine, as small as the tests need and as faulty as they want.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

/// The only repository, and its commit.
pub const REPO: &str = "owner/tiny-GGUF";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request: path with query, and headers with names in lower case.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub headers: HashMap<String, String>,
}

/// An answer. `cut_after` closes the connection after so many bytes of the body, or with `stalls` goes silent.
pub struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub cut_after: Option<usize>,
    pub stalls: bool,
    /// Sends no Content-Length: the body ends with the connection.
    pub hides_length: bool,
}

impl Response {
    pub fn new(status: u16) -> Self {
        Self { status, headers: vec![], body: vec![], cut_after: None, stalls: false, hides_length: false }
    }

    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

/// A server that answers until the tests end, and remembers what it was asked.
pub struct Server {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                thread::spawn(move || serve(&stream, &*answer, &log));
            }
        });
        Self { url, requests }
    }

    /// The address of no server.
    pub fn nobody() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { url: format!("http://{}", listener.local_addr().unwrap()), requests: Arc::default() }
    }

    /// What was asked, of paths that hold `part`.
    pub fn requests(&self, part: &str) -> Vec<Request> {
        self.requests.lock().unwrap().iter().filter(|request| request.path.contains(part)).cloned().collect()
    }
}

fn serve(mut stream: &TcpStream, answer: &dyn Fn(&Request) -> Response, log: &Mutex<Vec<Request>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap().to_owned();
    let header = |line: String| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(header).collect();
    let request = Request { path, headers };
    log.lock().unwrap().push(request.clone());
    let response = answer(&request);
    let mut head = format!("HTTP/1.1 {} .\r\nConnection: close\r\n", response.status);
    if !response.hides_length {
        head.push_str(&format!("Content-Length: {}\r\n", response.body.len()));
    }
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    // A client may hang up; that is its right.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(b"\r\n");
    let sent = response.cut_after.unwrap_or(response.body.len());
    let _ = stream.write_all(&response.body[..sent]);
    if response.stalls {
        thread::sleep(Duration::from_secs(60));
    }
}

/// What the hub does wrong.
#[derive(Clone, Default)]
pub struct Faults {
    /// Closes the connection of the first download after so many bytes.
    pub cut_first_after: Option<usize>,
    /// Holds that connection open in silence instead.
    pub stalls: bool,
    pub ignores_ranges: bool,
    /// Sends other bytes than it announces, of the same length.
    pub sends_other_bytes: bool,
    /// Sends more bytes than it announces.
    pub sends_too_much: bool,
    /// The description leaves sizes and digests out, as a simple mirror's does.
    pub tells_names_only: bool,
    /// The headers that come with a file name another digest than the description.
    pub contradicts_itself: bool,
    pub sends_no_digest: bool,
    /// Answers every request so.
    pub refuses_with: Option<(u16, &'static str)>,
    /// Leads from one address to the next for ever.
    pub redirects_for_ever: bool,
    /// Where files are, if not here.
    pub storage: Option<String>,
}

/// A hub with one repository.
pub struct Hub {
    files: Vec<(String, Vec<u8>)>,
    faults: Faults,
    downloads: Mutex<usize>,
}

impl Hub {
    pub fn start(files: &[(&str, &[u8])], faults: Faults) -> Server {
        Self::start_with(files, faults, |_, answer| answer)
    }

    /// A hub whose answers `change` may replace.
    pub fn start_with(
        files: &[(&str, &[u8])],
        faults: Faults,
        change: impl Fn(&Request, Response) -> Response + Send + Sync + 'static,
    ) -> Server {
        let files = files.iter().map(|(path, bytes)| (path.to_string(), bytes.to_vec())).collect();
        let hub = Self { files, faults, downloads: Mutex::new(0) };
        Server::start(move |request| change(request, hub.answer(request)))
    }

    fn answer(&self, request: &Request) -> Response {
        if let Some((status, code)) = self.faults.refuses_with {
            return Response::new(status).header("X-Error-Code", code);
        }
        let path = request.path.as_str();
        if path == format!("/api/models/{REPO}/revision/main?blobs=true") {
            return Response::new(200).body(self.description().to_string());
        }
        if path.starts_with(&format!("/api/models/{REPO}/revision/")) {
            return Response::new(404).header("X-Error-Code", "RevisionNotFound");
        }
        if let Some(path) = path.strip_prefix(&format!("/{REPO}/resolve/{COMMIT}/")) {
            return self.resolve(path);
        }
        match path.strip_prefix("/storage/").and_then(|path| path.strip_suffix("?Signature=secret")) {
            Some(path) => self.download(path, request),
            // As the hub answers a stranger.
            None => Response::new(401).header("X-Error-Code", "RepoNotFound"),
        }
    }

    fn description(&self) -> Json {
        let sibling = |(path, bytes): &(String, Vec<u8>)| {
            if self.faults.tells_names_only {
                return json!({ "rfilename": path });
            }
            json!({ "rfilename": path, "size": bytes.len(), "blobId": "x",
                "lfs": { "sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 130 } })
        };
        json!({ "id": REPO, "sha": COMMIT, "siblings": self.files.iter().map(sibling).collect::<Vec<_>>() })
    }

    fn file(&self, path: &str) -> Option<&[u8]> {
        let path = path.replace("%20", " ").replace("%C3%A9", "\u{e9}");
        self.files.iter().find(|file| file.0 == path).map(|file| file.1.as_slice())
    }

    fn resolve(&self, path: &str) -> Response {
        let Some(bytes) = self.file(path) else {
            return Response::new(404).header("X-Error-Code", "EntryNotFound");
        };
        if self.faults.redirects_for_ever {
            return Response::new(302).header("Location", format!("/{REPO}/resolve/{COMMIT}/{path}"));
        }
        let storage = self.faults.storage.as_deref().unwrap_or_default();
        let answer =
            Response::new(302).header("Location", format!("{storage}/storage/{path}?Signature=secret"));
        if self.faults.sends_no_digest {
            return answer;
        }
        let announced = if self.faults.contradicts_itself { sha256(b"another") } else { sha256(bytes) };
        answer.header("X-Linked-Etag", format!("\"{announced}\"")).header("X-Linked-Size", bytes.len())
    }

    fn download(&self, path: &str, request: &Request) -> Response {
        let mut bytes = self.file(path).unwrap().to_vec();
        let len = bytes.len();
        if self.faults.sends_other_bytes {
            bytes[len / 2] ^= 1;
        }
        if self.faults.sends_too_much {
            bytes.extend([0; 4096]);
        }
        let range = request.headers.get("range").filter(|_| !self.faults.ignores_ranges);
        let mut answer = match range {
            None => Response::new(200).body(bytes),
            Some(range) => {
                let first: usize =
                    range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap();
                let answer =
                    Response::new(206).header("Content-Range", format!("bytes {first}-{}/{len}", len - 1));
                answer.body(&bytes[first..])
            }
        };
        let mut downloads = self.downloads.lock().unwrap();
        *downloads += 1;
        answer.stalls = self.faults.stalls;
        answer.cut_after = self.faults.cut_first_after.filter(|_| *downloads == 1);
        answer
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
