//! What a server is started with.

use std::sync::Arc;
use std::time::Duration;

use unisonic_engine::sampling::SamplerOptions;

/// How to serve. [`Options::default`] is what `unisonic serve` does without options.
#[derive(Clone)]
pub struct Options {
    /// Name or address to listen on.
    pub host: String,
    /// Port to listen on; 0: any that is free.
    pub port: u16,
    /// What callers have to know; `None`: nothing.
    pub api_key: Option<String>,
    /// Names in a `Host` header beside addresses and localhost.
    pub allow_hosts: Vec<String>,
    /// Origins of web pages that may call, such as `https://chat.example`, beside those on this machine; `*`: all.
    pub allow_origins: Vec<String>,
    /// Choices that run at a time.
    pub running: usize,
    /// Choices that wait; more are refused.
    pub queued: usize,
    /// Whether tokens are guessed ahead.
    pub speculation: bool,
    /// What a request that does not say has. The seed is drawn for each request.
    pub sampler: SamplerOptions,
    /// Most tokens of a chat's answer, for a request that does not say.
    pub max_tokens: Option<u32>,
    /// Today, for chat templates.
    pub date: Option<String>,
    /// Most bytes of a body.
    pub max_body_bytes: usize,
    /// Most connections at a time.
    pub max_connections: usize,
    /// For a request's headers, for its body, and for each time that a client does not take what it is sent.
    pub client_timeout: Duration,
    /// For the requests at work when the server is to stop.
    pub grace: Duration,
    /// Whether requests' bodies are logged.
    pub log_requests: bool,
    /// Is told what happens to the server, a line at a time.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Options {
    /// Choices that may be there at a time: those that run and those that wait.
    pub fn places(&self) -> usize {
        self.running.max(1).saturating_add(self.queued)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 8080,
            api_key: None,
            allow_hosts: Vec::new(),
            allow_origins: Vec::new(),
            running: 16,
            queued: 64,
            speculation: true,
            sampler: SamplerOptions { temperature: 1.0, ..SamplerOptions::default() },
            max_tokens: None,
            date: None,
            max_body_bytes: 8 << 20,
            max_connections: 1024,
            client_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            log_requests: false,
            say: Arc::new(|_| {}),
        }
    }
}
