//! What can go wrong between a name and a verified file.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::DecimalBytes;
use thiserror::Error;

/// An error of `unisonic pull`; messages are whole, without a chain of causes. None holds a token or the signed address of a storage server.
#[derive(Debug, Error)]
pub enum PullError {
    #[error(
        "{host} has no public repository {repo}: check the name; if it is private, set HF_TOKEN to a token that may read it"
    )]
    NoRepository { host: String, repo: String },
    #[error("{repo} has no revision `{revision}`: expected a branch, a tag or a commit of it")]
    NoRevision { repo: String, revision: String },
    #[error(
        "{repo} is gated: accept its licence at https://huggingface.co/{repo} and set HF_TOKEN to a token of that account{}",
        if *.with_token { " (the token that was sent has no access)" } else { "" }
    )]
    Gated { repo: String, with_token: bool },
    #[error("{repo} holds no GGUF file; repositories with them often end in -GGUF")]
    NoGguf { repo: String },
    #[error("{repo} has no GGUF file or quantisation `{wanted}`; it has:{list}")]
    NoFile { repo: String, wanted: String, list: String },
    #[error("{reference} means several models; choose one:{list}")]
    Several { reference: String, list: String },
    #[error(
        "the set of shards that begins with {path} is not complete: {missing} of its files are not in the repository"
    )]
    MissingShards { path: String, missing: u32 },
    #[error("the server no longer has {path}, which it listed; try again")]
    Vanished { path: String },
    #[error(
        "{host} announces no size and SHA-256 for {path}, so that a download could not be verified; \
         use a server that does"
    )]
    Unverifiable { host: String, path: String },
    #[error(
        "the server announces SHA-256 {listed} for {path} in its list and {sent} with the file; nothing was fetched"
    )]
    Contradiction { path: String, listed: String, sent: String },
    #[error(
        "cannot reach {host}: {cause}; check the network, or name another server with --mirror https://HOST or \
         HF_ENDPOINT. A file from elsewhere, or one of `unisonic synth`, runs as well"
    )]
    Unreachable { host: String, cause: Box<ureq::Error> },
    #[error("{host} answered with status {status}{}", if *.status == 429 { " (too many requests): try again later" } else { "" })]
    Status { host: String, status: u16, retry_after: Option<Duration> },
    #[error("{host} gave an answer that cannot be used: {problem}")]
    Answer { host: String, problem: String },
    #[error(
        "the connection to {host} was lost after {} of {} of {path}: {cause}",
        DecimalBytes(*.have_bytes), DecimalBytes(*.len_bytes)
    )]
    Lost { host: String, path: String, have_bytes: u64, len_bytes: u64, cause: io::Error },
    /// What ended the last attempt at a file of which a part is kept.
    #[error("{0}; run the command again to go on from there")]
    Unfinished(Box<PullError>),
    #[error(
        "{path} is not what the server announced: SHA-256 {found}, expected {expected}; the download was deleted, \
         try again or use another server"
    )]
    Digest { path: String, expected: String, found: String },
    #[error(
        "{} is there already and is another file: SHA-256 {found}, the server's is {expected}; move it away or use \
         another --dir", .path.display()
    )]
    Occupied { path: PathBuf, expected: String, found: String },
    #[error("{} is not a regular file; move it away or use another --dir", .path.display())]
    Irregular { path: PathBuf },
    #[error("cannot write {}: {cause}{}", .path.display(), full(.cause))]
    Disk { path: PathBuf, cause: io::Error },
    #[error("there is no home folder for the hub's cache; set HF_HOME, or name a folder with --dir")]
    NoHome,
    #[error("the token in {from} is not one: expected letters, digits and signs on one line")]
    Token { from: &'static str },
    #[error("the address in {from} cannot be used: {problem}; expected one such as https://huggingface.co")]
    Mirror { from: &'static str, problem: &'static str },
}

fn full(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room and run the command again to go on from there"
        }
        _ => "",
    }
}

impl PullError {
    /// Whether the same request may well succeed a little later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Lost { .. } => true,
            Self::Unreachable { cause, .. } => match &**cause {
                ureq::Error::Timeout(_) | ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
                // What is wrong with a certificate stays so.
                ureq::Error::Io(cause) => cause.kind() != io::ErrorKind::InvalidData,
                _ => false,
            },
            Self::Status { status, .. } => matches!(status, 429 | 500..=599),
            _ => false,
        }
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the command line is what has to change: exit code 2.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Several { .. } | Self::Mirror { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_how_to_go_on() {
        let full =
            PullError::Disk { path: "models/m.gguf.part".into(), cause: io::ErrorKind::StorageFull.into() };
        assert!(full.to_string().contains("make room"), "{full}");
        assert!(!full.is_passing() && !full.is_usage());
        let other = PullError::Disk { path: "x".into(), cause: io::ErrorKind::PermissionDenied.into() };
        assert!(!other.to_string().contains("make room"), "{other}");
    }
}
