//! Requests, with redirects that cannot take the token elsewhere, leave https or go on for ever.

use std::time::Duration;

use ureq::Agent;
use ureq::Body;
use ureq::http::header::{AUTHORIZATION, HeaderMap, HeaderName, RANGE};
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::address::{Endpoint, host, is_this_machine, redirected, same_origin};
use super::error::PullError;

const MAX_REDIRECTS: usize = 8;

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
            // A compressed file has another size, and its ranges are others.
            .accept_encoding("identity")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_stays_with_its_server() {
        let timeout = Duration::from_secs(1);
        let has_token = |server| {
            Client::new(&Endpoint::parse(server).unwrap(), Some("t".into()), timeout).unwrap().has_token()
        };
        assert!(has_token("https://hub") && has_token("http://127.0.0.1:8080"));
        assert!(!has_token("http://hub"));
    }
}
