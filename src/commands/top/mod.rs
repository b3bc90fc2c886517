//! `unisonic top`: what a server does, live, from its `/metrics`.
//!
//! `exposition` reads the text, `state` says what it means, `screen` draws it.

mod exposition;
mod screen;
mod state;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;

use crate::output::{write_json, write_stdout};
use state::{Reading, State};

const DETAILS: &str = "\
Rates are over the time between two readings. q or Ctrl-C ends it.

Examples:
  unisonic top
  unisonic top http://192.168.1.7:9000
  unisonic top --once                        one reading as text
  unisonic top --json --interval 10 >> log   a line every ten seconds";

/// Longest answer of a server.
const METRICS_MAX_BYTES: u64 = 16 << 20;

/// Shows what a server does: requests, tokens per second, KV cache, guesses
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct TopArgs {
    /// The server
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The key that `unisonic serve --api-key` asks for
    #[arg(long, value_name = "KEY", env = "UNISONIC_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Prints one state, over one interval, and ends
    #[arg(long)]
    once: bool,
    /// Prints a line of JSON for each state
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "expected a number from 0.1 to 86400".into())
}

/// Runs the command.
pub fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let mut server = Server::of(args);
    // What cannot be reached is said before the screen is taken.
    server.state()?;
    if !args.once && !args.json && std::io::stdout().is_terminal() {
        screen::run(&mut server, Duration::from_secs_f64(args.interval))?;
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        std::thread::sleep(Duration::from_secs_f64(args.interval));
        let state = server.state()?;
        if args.json {
            write_json(&serde_json::to_value(&state)?)?;
        } else {
            write_stdout(&state.text())?;
        }
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// A server, with what it said last.
struct Server {
    agent: ureq::Agent,
    url: String,
    api_key: Option<String>,
    last: Option<(Reading, Instant)>,
}

impl Server {
    fn of(args: &TopArgs) -> Self {
        let url = args.url.trim_end_matches('/').trim_end_matches("/v1");
        let scheme = if url.contains("://") { "" } else { "http://" };
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10)));
        Self {
            agent: config.http_status_as_error(false).build().into(),
            url: format!("{scheme}{url}/metrics"),
            api_key: args.api_key.clone(),
            last: None,
        }
    }

    /// What the server does now.
    fn state(&mut self) -> anyhow::Result<State> {
        let reading = self.read().with_context(|| format!("cannot read {}", self.url))?;
        let now = Instant::now();
        let before = self.last.as_ref().map(|(before, at)| (before, (now - *at).as_secs_f64()));
        let state = reading.state(before);
        self.last = Some((reading, now));
        Ok(state)
    }

    fn read(&self) -> anyhow::Result<Reading> {
        let mut request = self.agent.get(&self.url);
        if let Some(key) = &self.api_key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = request.call()?;
        match response.status().as_u16() {
            200 => {}
            401 => bail!("the server wants a key; give it with --api-key"),
            status => bail!("the server answers with status {status}; is it `unisonic serve`?"),
        }
        let text = response.body_mut().with_config().limit(METRICS_MAX_BYTES).read_to_string()?;
        let reading = Reading(exposition::parse(&text)?);
        if !reading.is_ours() {
            bail!("these are not the metrics of `unisonic serve`");
        }
        Ok(reading)
    }
}
