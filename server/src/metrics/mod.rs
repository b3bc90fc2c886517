//! What `/metrics` tells.
//!
//! `slots` is what runs just now, request by request; `process` what the system knows of us.

mod process;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::model::Model;
pub use slots::{Progress, Slot, Slots};

/// Names and values.
type Labels = Vec<(&'static str, String)>;

/// Counters, gauges and histograms of a server.
#[derive(Default)]
pub struct Metrics {
    /// Answers by `route` and `status`.
    pub answers: Family<Labels, Counter>,
    /// Choices that run.
    pub running: Gauge,
    /// Choices that wait.
    pub waiting: Gauge,
    /// Choices whose client left before their end.
    pub cancelled_requests: Counter,
    /// Requests that were refused because the queue was full.
    pub refused_requests: Counter,
    /// Tokens of prompts that were read, or known from earlier ones.
    pub prompt_tokens: Counter,
    /// Tokens that were generated.
    pub generated_tokens: Counter,
    /// Tokens that were guessed ahead.
    pub drafted_tokens: Counter,
    /// Guesses that came true.
    pub accepted_tokens: Counter,
    /// Steps of the engine.
    pub steps: Counter,
    /// Steps that failed.
    pub failed_steps: Counter,
    /// KV pages of running requests.
    pub kv_pages_held: Gauge,
    /// KV pages that are kept for prompts to come.
    pub kv_pages_cached: Gauge,
    /// KV pages without content.
    pub kv_pages_free: Gauge,
    /// From a request's arrival to its first token.
    pub first_token_seconds: Seconds,
    /// From token to token, the mean of a request.
    pub seconds_per_token: Seconds,
    /// From a request's arrival to its end.
    pub request_seconds: Seconds,
    /// What runs just now.
    pub slots: Arc<Slots>,
}

/// A histogram of times.
pub struct Seconds {
    histogram: Histogram,
    /// Sum in seconds and number of observations, for [`Self::mean`].
    total: std::sync::Mutex<(f64, u64)>,
}

impl Default for Seconds {
    fn default() -> Self {
        const BOUNDS: [f64; 16] =
            [1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
        Self { histogram: Histogram::new(BOUNDS), total: std::sync::Mutex::default() }
    }
}

impl Seconds {
    /// Adds an observation.
    pub fn observe(&self, seconds: f64) {
        self.histogram.observe(seconds);
        let mut total = self.total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *total = (total.0 + seconds, total.1 + 1);
    }

    /// The mean so far.
    pub fn mean(&self) -> Option<Duration> {
        let (seconds, count) = *self.total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (count > 0).then(|| Duration::from_secs_f64(seconds / count as f64))
    }
}

impl Metrics {
    /// Counts an answer.
    pub fn answered(&self, route: &str, status: u16) {
        let labels = vec![("route", route.to_owned()), ("status", status.to_string())];
        self.answers.get_or_create(&labels).inc();
    }

    /// All of it in the text format of Prometheus (OpenMetrics), and what answers, if anything does.
    pub fn text(&self, model: Option<&Model>) -> String {
        let mut registry = Registry::default();
        process::register(&mut registry);
        let r = registry.sub_registry_with_prefix("unisonic");
        if let Some(model) = model {
            register_model(r, model);
        }
        self.slots.register(r);
        r.register("http_answers", "Answers by route and status", self.answers.clone());
        r.register("requests_running", "Choices that run", self.running.clone());
        r.register("requests_waiting", "Choices that wait", self.waiting.clone());
        r.register("requests_cancelled", "Choices whose client left", self.cancelled_requests.clone());
        r.register(
            "requests_refused",
            "Requests without a place in the queue",
            self.refused_requests.clone(),
        );
        r.register("prompt_tokens", "Tokens of prompts", self.prompt_tokens.clone());
        r.register("generated_tokens", "Tokens that were generated", self.generated_tokens.clone());
        r.register("drafted_tokens", "Tokens that were guessed ahead", self.drafted_tokens.clone());
        r.register("accepted_tokens", "Guesses that came true", self.accepted_tokens.clone());
        r.register("steps", "Steps of the engine", self.steps.clone());
        r.register("failed_steps", "Steps that failed", self.failed_steps.clone());
        r.register("kv_pages_held", "KV pages of running requests", self.kv_pages_held.clone());
        r.register("kv_pages_cached", "KV pages kept for prompts to come", self.kv_pages_cached.clone());
        r.register("kv_pages_free", "KV pages without content", self.kv_pages_free.clone());
        for (name, help, of) in [
            ("time_to_first_token_seconds", "From arrival to the first token", &self.first_token_seconds),
            ("time_per_token_seconds", "From token to token, mean of a request", &self.seconds_per_token),
            ("request_seconds", "From arrival to the end", &self.request_seconds),
        ] {
            r.register(name, help, of.histogram.clone());
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

/// A gauge that is 1, whose labels say what answers.
fn register_model(registry: &mut Registry, model: &Model) {
    let info = Family::<Labels, Gauge>::default();
    let labels = vec![
        ("model", model.name.clone()),
        ("device", model.device.clone()),
        ("profile", model.profile.clone()),
        ("context_tokens", model.context_len.to_string()),
    ];
    info.get_or_create(&labels).set(1);
    registry.register("model", "What answers", info);
}
