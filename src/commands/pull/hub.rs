//! The model hub: what a repository holds, and the bytes of its files.

use std::io::{self, BufReader, Read};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use ureq::http::StatusCode;

use super::address::Endpoint;
use super::choice::RemoteFile;
use super::error::PullError;
use super::http::{Answer, Client};
use super::reference::is_plain_path;

/// Most bytes of a repository's description; the largest have some ten thousand files.
const MAX_DESCRIPTION_BYTES: u64 = 32 << 20;
/// What is escaped in one part of an address, and in a path.
const ESCAPED_PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const ESCAPED: &AsciiSet = &ESCAPED_PART.remove(b'/');

/// A repository at a commit.
#[derive(Debug)]
pub struct Repository {
    pub id: String,
    /// 40 hexadecimal digits.
    pub commit: String,
    pub files: Vec<RemoteFile>,
}

/// The bytes of a file from `first_byte` on.
pub struct Content {
    pub first_byte: u64,
    pub reader: Box<dyn Read>,
    pub host: String,
}

/// The hub, or a mirror of it.
pub struct Hub {
    client: Client,
    endpoint: Endpoint,
}

/// The answer of `/api/models/…?blobs=true`; what else it holds is not looked at.
#[derive(Deserialize)]
struct Description {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

impl Hub {
    /// A hub that is asked with `token` and given up when it is silent for `timeout`.
    pub fn new(endpoint: Endpoint, token: Option<String>, timeout: Duration) -> Result<Self, PullError> {
        Ok(Self { client: Client::new(&endpoint, token, timeout)?, endpoint })
    }

    /// What a repository holds at a branch, tag or commit.
    pub fn repository(&self, repo: &str, revision: &str) -> Result<Repository, PullError> {
        // A branch may hold `/`, which is one part of the address here.
        let in_address = utf8_percent_encode(revision, ESCAPED_PART);
        let address = self.endpoint.join(&format!("/api/models/{repo}/revision/{in_address}?blobs=true"))?;
        let mut answer = self.client.get(address, None)?;
        self.check(&answer, repo, revision, None)?;
        let body = answer.response.body_mut().as_reader().take(MAX_DESCRIPTION_BYTES);
        let description: Description =
            serde_json::from_reader(BufReader::new(body)).map_err(|error| match error.is_io() {
                true => PullError::Unreachable {
                    host: answer.host.clone(),
                    cause: Box::new(ureq::Error::Io(io::Error::from(error))),
                },
                false => {
                    answer.problem(format!("the description of {repo} is not what was expected: {error}"))
                }
            })?;
        if !is_hex(&description.sha, 40) {
            return Err(answer.problem(format!("the description of {repo} names no commit")));
        }
        let files = description.siblings.into_iter().filter_map(|sibling| {
            // Such a file could not be kept under its name.
            if !is_plain_path(&sibling.rfilename) {
                tracing::warn!(path = ?sibling.rfilename, "a file of the repository is left out for its name");
                return None;
            }
            let (sha256, lfs_size) = sibling.lfs.map_or((None, None), |lfs| (lfs.sha256, lfs.size));
            Some(RemoteFile {
                path: sibling.rfilename,
                len_bytes: lfs_size.or(sibling.size),
                sha256: sha256.filter(|digest| is_hex(digest, 64)),
            })
        });
        Ok(Repository { id: repo.to_owned(), commit: description.sha, files: files.collect() })
    }

    /// A file's size and digest: from the repository's description, or, where a mirror's leaves them out, from the
    /// headers that come with the file.
    pub fn announced(&self, repository: &Repository, file: &RemoteFile) -> Result<(u64, String), PullError> {
        if let (Some(len_bytes), Some(sha256)) = (file.len_bytes, &file.sha256) {
            return Ok((len_bytes, sha256.clone()));
        }
        let answer = self.get(repository, &file.path, 0)?;
        match (answer.linked.len_bytes, &answer.linked.etag) {
            (Some(len_bytes), Some(etag)) if is_hex(etag, 64) => Ok((len_bytes, etag.clone())),
            _ => Err(PullError::Unverifiable { host: answer.host, path: file.path.clone() }),
        }
    }

    /// Opens a file from a byte on, or, where the server does not go on from there, from the start.
    pub fn open(
        &self,
        repository: &Repository,
        path: &str,
        (len_bytes, sha256): (u64, &str),
        first_byte: u64,
    ) -> Result<Content, PullError> {
        let again = || self.open(repository, path, (len_bytes, sha256), 0);
        let answer = match self.get(repository, path, first_byte) {
            // Range Not Satisfiable.
            Err(PullError::Status { status: 416, .. }) if first_byte > 0 => return again(),
            answer => answer?,
        };
        if let Some(etag) = answer.linked.etag.as_ref().filter(|etag| is_hex(etag, 64) && *etag != sha256) {
            let (path, listed) = (path.to_owned(), sha256.to_owned());
            return Err(PullError::Contradiction { path, listed, sent: etag.clone() });
        }
        let is_partial = answer.response.status() == StatusCode::PARTIAL_CONTENT;
        let sent_from = if is_partial { first_byte } else { 0 };
        match check_extent(&answer, path, sent_from, len_bytes) {
            Err(_) if sent_from > 0 => return again(),
            checked => checked?,
        }
        Ok(Content {
            first_byte: sent_from,
            host: answer.host,
            reader: Box::new(answer.response.into_body().into_reader()),
        })
    }

    fn get(&self, repository: &Repository, path: &str, first_byte: u64) -> Result<Answer, PullError> {
        let (repo, commit) = (&repository.id, &repository.commit);
        let address = format!("/{repo}/resolve/{commit}/{}", utf8_percent_encode(path, ESCAPED));
        let answer =
            self.client.get(self.endpoint.join(&address)?, (first_byte > 0).then_some(first_byte))?;
        self.check(&answer, repo, commit, Some(path))?;
        Ok(answer)
    }

    /// Makes an error of an answer without content. The hub says what is wrong in `X-Error-Code`; what is private or
    /// does not exist looks the same to a stranger.
    fn check(
        &self,
        answer: &Answer,
        repo: &str,
        revision: &str,
        path: Option<&str>,
    ) -> Result<(), PullError> {
        let status = answer.response.status();
        if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return match answer.header("content-encoding") {
                None | Some("" | "identity") => Ok(()),
                Some(encoding) => {
                    Err(answer
                        .problem(format!("content encoding `{encoding}`, although it was asked for none")))
                }
            };
        }
        let other = |status| PullError::Status {
            host: answer.host.clone(),
            status,
            retry_after: answer
                .header("retry-after")
                .and_then(|seconds| seconds.parse().ok().map(Duration::from_secs)),
        };
        if !answer.from_hub {
            return Err(other(status.as_u16()));
        }
        let repo = repo.to_owned();
        Err(match (answer.header("x-error-code"), status.as_u16()) {
            (Some("GatedRepo"), _) | (_, 403) => {
                PullError::Gated { repo, with_token: self.client.has_token() }
            }
            (Some("RevisionNotFound"), _) => PullError::NoRevision { repo, revision: revision.to_owned() },
            (Some("EntryNotFound"), _) => PullError::Vanished { path: path.unwrap_or_default().to_owned() },
            (Some("RepoNotFound"), _) | (_, 401) => {
                PullError::NoRepository { host: answer.host.clone(), repo }
            }
            (_, 404) => match path {
                Some(path) => PullError::Vanished { path: path.to_owned() },
                None => PullError::NoRepository { host: answer.host.clone(), repo },
            },
            (_, status) => other(status),
        })
    }
}

/// Checks that an answer is what is left of a file from a byte on, as far as its head tells.
fn check_extent(answer: &Answer, path: &str, first_byte: u64, len_bytes: u64) -> Result<(), PullError> {
    if answer.response.status() == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {first_byte}-{}", len_bytes.saturating_sub(1));
        let found = answer.header("content-range").unwrap_or("none");
        // A server need not know the size (RFC 9110, section 14.4).
        if found != format!("{range}/{len_bytes}") && found != format!("{range}/*") {
            return Err(
                answer.problem(format!("content range `{found}` of {path}, expected `{range}/{len_bytes}`"))
            );
        }
    }
    let expected = len_bytes.saturating_sub(first_byte);
    match answer.header("content-length").and_then(|len| len.parse::<u64>().ok()) {
        Some(found) if found != expected => Err(answer.problem(format!(
            "it sends {found} bytes of {path} (Content-Length), expected {expected} of the {len_bytes} that were \
             announced"
        ))),
        _ => Ok(()),
    }
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
