//! Requests, with redirects that cannot take the token elsewhere, leave https or go on for ever.

use std::time::Duration;

use ureq::Agent;
use ureq::Body;
use ureq::http::header::{AUTHORIZATION, HeaderMap, HeaderName, LOCATION, RANGE};
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::error::PullError;

const MAX_REDIRECTS: usize = 8;

/// A server, as `--mirror` gives it: `https://huggingface.co` by default.
#[derive(Clone, Debug)]
pub struct Endpoint(String);

impl Endpoint {
    /// Parses an address: http or https, a host, and no more than a path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not the address of a server; expected one such as https://huggingface.co")
        };
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_login = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !is_http || uri.host().is_none_or(str::is_empty) || uri.query().is_some() || has_login {
            return Err(wrong());
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// The address of something on this server; `path` begins with `/`.
    pub fn join(&self, path: &str) -> Result<Uri, PullError> {
        let address = format!("{}{path}", self.0);
        address.parse().map_err(|_| PullError::Answer {
            host: self.0.clone(),
            problem: format!("`{path}` cannot be part of an address"),
        })
    }
}

/// What the hub says about a file with the answer that leads to its storage.
#[derive(Debug, Default)]
pub struct Linked {
    pub etag: Option<String>,
    pub len_bytes: Option<u64>,
}

/// An answer that is no redirect.
pub struct Answer {
    pub response: Response<Body>,
    pub linked: Linked,
    /// Who answered; without the rest of the address, which may hold a signature.
    pub host: String,
    /// Whether that is the hub itself and not a storage server that it led to.
    pub from_hub: bool,
}

impl Answer {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// An error about this answer.
    pub fn problem(&self, problem: impl Into<String>) -> PullError {
        PullError::Answer { host: self.host.clone(), problem: problem.into() }
    }
}

/// Sends requests, with the token where it belongs.
pub struct Client {
    agent: Agent,
    home: Uri,
    token: Option<String>,
}

impl Client {
    /// A client of one server. The token goes to that server only, and not without encryption unless the server is
    /// this machine.
    pub fn new(endpoint: &Endpoint, token: Option<String>, timeout: Duration) -> Result<Self, PullError> {
        let home = endpoint.join("/")?;
        let may_have_token = home.scheme_str() == Some("https") || home.host().is_some_and(is_this_machine);
        if token.is_some() && !may_have_token {
            tracing::warn!("the token is not sent: the server's address does not begin with https");
        }
        let agent = Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .tls_config(TlsConfig::builder().root_certs(trusted()).build())
            .user_agent(concat!("unisonic/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(timeout))
            .timeout_connect(Some(timeout))
            .timeout_recv_response(Some(timeout))
            .timeout_per_read(Some(timeout))
            .build()
            .into();
        Ok(Self { agent, home, token: token.filter(|_| may_have_token) })
    }

    /// Whether requests to the server carry a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Gets what is at an address of the server, from a byte on where one is given.
    pub fn get(&self, address: Uri, first_byte: Option<u64>) -> Result<Answer, PullError> {
        let mut address = address;
        let mut linked = Linked::default();
        for _ in 0..=MAX_REDIRECTS {
            let host = host(&address);
            let from_hub = same_origin(&address, &self.home);
            let mut request = self.agent.get(address.clone());
            if let Some(first) = first_byte {
                request = request.header(RANGE, format!("bytes={first}-"));
            }
            if let (true, Some(token)) = (from_hub, &self.token) {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            let response = request
                .call()
                .map_err(|cause| PullError::Unreachable { host: host.clone(), cause: Box::new(cause) })?;
            // Only the hub itself can say what a file must be.
            if from_hub {
                linked.read(response.headers());
            }
            if !response.status().is_redirection() {
                return Ok(Answer { response, linked, host, from_hub });
            }
            address = redirected(&address, response.headers())
                .map_err(|problem| PullError::Answer { host, problem: problem.to_owned() })?;
        }
        Err(PullError::Answer {
            host: host(&self.home),
            problem: format!("more than {MAX_REDIRECTS} redirects"),
        })
    }
}

/// The authorities that this system trusts, which a company may have added its own to (and `SSL_CERT_FILE` names others);
/// Mozilla's where the system has none.
fn trusted() -> RootCerts {
    let found = rustls_native_certs::load_native_certs();
    for problem in &found.errors {
        tracing::info!(%problem, "some of the system's certificates cannot be used");
    }
    let certificates: Vec<_> = found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    if certificates.is_empty() { RootCerts::WebPki } else { RootCerts::from(certificates) }
}

impl Linked {
    fn read(&mut self, headers: &HeaderMap) {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(etag) = text(HeaderName::from_static("x-linked-etag")) {
            self.etag = Some(etag.trim_start_matches("W/").trim_matches('"').to_owned());
        }
        if let Some(len) = text(HeaderName::from_static("x-linked-size")) {
            self.len_bytes = len.parse().ok();
        }
    }
}

/// Where a redirect leads.
fn redirected(from: &Uri, headers: &HeaderMap) -> Result<Uri, &'static str> {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or("a redirect without a location")?;
    let to: Uri = location.parse().map_err(|_| "a redirect to something that is no address")?;
    let to = if to.host().is_some() {
        to
    } else if location.starts_with('/') && !location.starts_with("//") {
        let mut parts = from.clone().into_parts();
        parts.path_and_query = to.into_parts().path_and_query;
        Uri::from_parts(parts).map_err(|_| "a redirect to something that is no address")?
    } else {
        return Err("a redirect to something that is no address");
    };
    match (from.scheme_str(), to.scheme_str()) {
        (_, Some("https")) | (Some("http"), Some("http")) => Ok(to),
        _ => Err("a redirect away from https"),
    }
}

fn same_origin(a: &Uri, b: &Uri) -> bool {
    let authority = |uri: &Uri| uri.authority().map(|authority| authority.as_str().to_ascii_lowercase());
    a.scheme() == b.scheme() && authority(a) == authority(b)
}

fn is_this_machine(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

fn host(address: &Uri) -> String {
    address.authority().map_or_else(|| "the server".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &'static str, location: &'static str) -> Result<String, &'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, ureq::http::HeaderValue::from_static(location));
        redirected(&Uri::from_static(from), &headers).map(|uri| uri.to_string())
    }

    #[test]
    fn redirects_stay_encrypted() {
        assert_eq!(to("https://a/x?y", "https://b/z?s=1").as_deref(), Ok("https://b/z?s=1"));
        assert_eq!(to("https://a:8/x?y", "/z?s=1").as_deref(), Ok("https://a:8/z?s=1"));
        assert_eq!(to("http://a/x", "http://b/").as_deref(), Ok("http://b/"));
        for wrong in ["http://a/z", "file:///etc/passwd", "z", "ftp://a/z", "//b/z"] {
            assert!(to("https://a/x", wrong).is_err(), "{wrong}");
        }
        assert!(redirected(&Uri::from_static("https://a/"), &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_server_is_a_scheme_and_a_host() {
        assert_eq!(Endpoint::parse("https://hub.example/hf/").unwrap().0, "https://hub.example/hf");
        for wrong in ["", "huggingface.co", "ftp://a", "https://", "https://a?b", "https://user:secret@a"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_token_stays_with_its_server() {
        let origin =
            |a: &'static str, b: &'static str| same_origin(&Uri::from_static(a), &Uri::from_static(b));
        assert!(origin("https://Hub/a", "https://hub/b"));
        assert!(!origin("https://hub/a", "https://hub:444/a"));
        assert!(!origin("https://hub/a", "https://hub.evil/a"));
        assert!(!origin("https://hub/a", "http://hub/a"));
        let timeout = Duration::from_secs(1);
        let has_token = |server| {
            Client::new(&Endpoint::parse(server).unwrap(), Some("t".into()), timeout).unwrap().has_token()
        };
        assert!(has_token("https://hub") && has_token("http://127.0.0.1:8080"));
        assert!(!has_token("http://hub"));
    }
}
