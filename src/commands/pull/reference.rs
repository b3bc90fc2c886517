//! What to pull, as it is typed: `REPO` or `REPO:FILE`.

use std::fmt;
use std::str::FromStr;

/// A repository and, where given, what to take of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `owner/name`.
    pub repo: String,
    /// A file's path, its last part, or a quantisation such as `Q4_K_M`.
    pub wanted: Option<String>,
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |text: &str, sign: &str| match text.split_once(sign) {
            Some((repo, wanted)) => (repo.to_owned(), Some(wanted.to_owned())),
            None => (text.to_owned(), None),
        };
        let (repo, wanted) = match text.strip_prefix("https://huggingface.co/") {
            // As it stands in a browser's address line.
            Some(page) => named(page.trim_end_matches('/'), "/blob/main/"),
            None => named(text, ":"),
        };
        let parts: Vec<&str> = repo.split('/').collect();
        if parts.len() != 2 || !parts.iter().all(|part| is_repo_part(part)) {
            return Err(format!(
                "`{repo}` is not a repository; expected OWNER/NAME, such as bartowski/SmolLM2-135M-Instruct-GGUF"
            ));
        }
        if wanted.as_deref() == Some("") {
            return Err(
                "nothing follows the repository; expected a file or a quantisation such as Q4_K_M".into()
            );
        }
        Ok(Self { repo, wanted })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        self.wanted.iter().try_for_each(|wanted| write!(f, ":{wanted}"))
    }
}

/// The hub's rule for owners and names; it also keeps them one harmless component of a path.
fn is_repo_part(part: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    part.chars().all(known)
        && part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && !part.contains("..")
}

/// Whether a path of the hub, a file's or a branch's, names something below the folder that it is joined to, on any
/// system, and can be shown.
pub fn is_plain_path(path: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && !part.chars().any(|c| c.is_control() || is_format(c) || matches!(c, '\\' | ':'))
    };
    path.len() <= 1024 && path.split('/').all(is_plain)
}

/// Characters that break lines, reorder what is around them, or are not seen.
fn is_format(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Parses `--revision`.
pub fn parse_revision(text: &str) -> Result<String, String> {
    if is_plain_path(text) { Ok(text.to_owned()) } else { Err("expected a branch, a tag or a commit".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_with_and_without_a_file() {
        let reference: Reference = "own.er/Some_Model-1.5B-GGUF:sub/model-q4_k_m.gguf".parse().unwrap();
        assert_eq!(reference.repo, "own.er/Some_Model-1.5B-GGUF");
        assert_eq!(reference.wanted.as_deref(), Some("sub/model-q4_k_m.gguf"));
        assert_eq!("a/b".parse::<Reference>().unwrap().wanted, None);
        let page: Reference = "https://huggingface.co/a/b/blob/main/sub/c.gguf".parse().unwrap();
        assert_eq!(page, "a/b:sub/c.gguf".parse().unwrap());
        assert_eq!("https://huggingface.co/a/b/".parse::<Reference>(), "a/b".parse());
    }

    #[test]
    fn what_is_no_repository_is_refused() {
        for wrong in [
            "",
            "a",
            "a/b/c",
            "../b",
            "a/..",
            "a/b:",
            "/a",
            "a/",
            "a b/c",
            "https://example.com/a/b",
            "https://huggingface.co/a",
            "a/b?x",
        ] {
            assert!(wrong.parse::<Reference>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_that_leave_their_folder_are_not_plain() {
        assert!(is_plain_path("a/b-00001-of-00002.gguf"));
        for wrong in [
            "",
            "/etc/x",
            "../x",
            "a/../x",
            "a//x",
            "./x",
            "a\\x",
            "C:x",
            "a\nx",
            "a\u{202e}x",
            "a/",
            &"a".repeat(1025),
        ] {
            assert!(!is_plain_path(wrong), "{wrong}");
        }
    }
}
