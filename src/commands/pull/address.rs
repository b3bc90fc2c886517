//! Addresses: of the server that `--mirror` names, of what is on it, and where a redirect leads.
//!
//! None that is used holds more before its path than a host and a port, so that [`host`] can be shown.

use ureq::http::Uri;
use ureq::http::header::{HeaderMap, LOCATION};

use super::error::PullError;

/// A server, as `--mirror` gives it: `https://huggingface.co` by default.
#[derive(Clone, Debug)]
pub struct Endpoint(String);

impl Endpoint {
    /// Parses an address: http or https, a host, and no more than a port and a path. An error does not repeat it, since
    /// a password may be in it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "it is not an address")?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err("it does not begin with https:// or http://");
        }
        check_authority(&uri)?;
        if text.contains(['?', '#']) {
            return Err("something follows its path");
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// The address of something on this server; `path` begins with `/`.
    pub fn join(&self, path: &str) -> Result<Uri, PullError> {
        let address = format!("{}{path}", self.0);
        address.parse().map_err(|_| PullError::Answer {
            host: self.0.parse().map_or_else(|_| "the server".to_owned(), |uri| host(&uri)),
            problem: format!("`{path}` cannot be part of an address"),
        })
    }
}

/// Refuses what a connection would not be made to: `http` takes any text for a port, and the standard one in its place.
fn check_authority(uri: &Uri) -> Result<(), &'static str> {
    let authority = uri.authority().ok_or("it has no host")?;
    if authority.as_str().contains('@') {
        return Err("it holds a user name");
    }
    let after_host = authority.as_str().get(authority.host().len()..).unwrap_or_default();
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    match (authority.host(), after_host.strip_prefix(':')) {
        ("", _) => Err("it has no host"),
        (_, Some(port)) if !is_port(port) => Err("its port is not a number up to 65535"),
        (_, None) if !after_host.is_empty() => Err("it is not an address"),
        _ => Ok(()),
    }
}

/// Where a redirect leads.
pub fn redirected(from: &Uri, headers: &HeaderMap) -> Result<Uri, String> {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or("a redirect without a location")?;
    let wrong = |problem: &str| format!("a redirect to an address that cannot be used: {problem}");
    let to: Uri = resolve(from, location).parse().map_err(|_| wrong("it is not an address"))?;
    match (from.scheme_str(), to.scheme_str()) {
        (_, Some("https")) | (Some("http"), Some("http")) => {}
        _ => return Err("a redirect away from https".to_owned()),
    }
    check_authority(&to).map_err(wrong)?;
    if location.contains('#') {
        return Err(wrong("something follows its path"));
    }
    Ok(to)
}

/// A reference seen from an address (RFC 3986, section 5.2).
fn resolve(from: &Uri, reference: &str) -> String {
    let is_scheme = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    if reference.split_once(':').is_some_and(|(before, _)| is_scheme(before)) {
        return reference.to_owned();
    }
    let scheme = from.scheme_str().unwrap_or_default();
    if reference.starts_with("//") {
        return format!("{scheme}:{reference}");
    }
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    let (path, query) = match path {
        "" => (from.path().to_owned(), query.or(from.query())),
        path if path.starts_with('/') => (without_dots(path), query),
        path => (without_dots(&format!("{folder}/{path}")), query),
    };
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    format!("{scheme}://{}{path}{query}", host(from))
}

/// A path, which begins with `/`, without the parts `.` and `..` (RFC 3986, section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut parts = Vec::new();
    let mut rest = path.split('/').skip(1).peekable();
    while let Some(part) = rest.next() {
        match part {
            "." | ".." => {
                if part == ".." {
                    parts.pop();
                }
                if rest.peek().is_none() {
                    parts.push("");
                }
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

pub fn same_origin(a: &Uri, b: &Uri) -> bool {
    a.scheme() == b.scheme() && host(a).eq_ignore_ascii_case(&host(b))
}

pub fn is_this_machine(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Host and port: what may be shown of an address, whose rest may hold a signature.
pub fn host(address: &Uri) -> String {
    address.authority().map_or_else(|| "the server".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &'static str, location: &'static str) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, ureq::http::HeaderValue::from_static(location));
        redirected(&Uri::from_static(from), &headers).map(|uri| uri.to_string())
    }

    #[test]
    fn redirects_stay_encrypted_and_name_a_server() {
        assert_eq!(to("https://a/x?y", "https://b/z?s=1").as_deref(), Ok("https://b/z?s=1"));
        assert_eq!(to("http://a/x", "http://b/").as_deref(), Ok("http://b/"));
        for wrong in [
            "http://a/z",
            "file:///etc/passwd",
            "ftp://a/z",
            "foo:80",
            "https://a:99999/z",
            "https://a:/z",
            "https://u:secret@a/z",
            "//u@b/z",
            "//",
            "/z#f",
        ] {
            let error = to("https://a/x", wrong).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(redirected(&Uri::from_static("https://a/"), &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_reference_is_seen_from_its_address() {
        for (reference, address) in [
            ("/z?s=1", "https://a:8/z?s=1"),
            ("z", "https://a:8/b/z"),
            ("z/?s=a:b", "https://a:8/b/z/?s=a:b"),
            ("./z", "https://a:8/b/z"),
            ("../z", "https://a:8/z"),
            ("../../../z", "https://a:8/z"),
            ("..", "https://a:8/"),
            (".", "https://a:8/b/"),
            ("?s", "https://a:8/b/c?s"),
            ("", "https://a:8/b/c?q"),
            ("//d/z", "https://d/z"),
        ] {
            assert_eq!(to("https://a:8/b/c?q", reference).as_deref(), Ok(address), "{reference}");
        }
        assert_eq!(to("https://a", "z").as_deref(), Ok("https://a/z"));
    }

    #[test]
    fn a_server_is_a_scheme_a_host_and_a_port() {
        assert_eq!(Endpoint::parse("https://hub.example/hf/").unwrap().0, "https://hub.example/hf");
        for right in ["http://127.0.0.1:65535", "https://[::1]:8080", "https://[::1]"] {
            assert!(Endpoint::parse(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "huggingface.co",
            "ftp://a",
            "https://",
            "https://:80",
            "https://a?b",
            "https://a/#b",
            "http://127.0.0.1:99999",
            "http://a:",
            "http://a:+80",
            "http://a:b",
            "http://[::1]:99999",
            "https://user:secret@a",
            "https://a:1@a:1",
        ] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        let origin =
            |a: &'static str, b: &'static str| same_origin(&Uri::from_static(a), &Uri::from_static(b));
        assert!(origin("https://Hub/a", "https://hub/b"));
        assert!(!origin("https://hub/a", "https://hub:444/a"));
        assert!(!origin("https://hub/a", "https://hub.evil/a"));
        assert!(!origin("https://hub/a", "http://hub/a"));
    }
}
