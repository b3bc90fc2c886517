//! Routes, and what their handlers share.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::model::{Load, Model, Status};
use crate::options::Options;
use crate::worker::{Answers, Choice, Ended, Handle, Limits};
use crate::{api, body, guard};

/// Seconds after which a server that is not ready may be.
const RETRY_WHEN_READY: u64 = 5;
/// Longest time that a client is told to wait for a place.
const RETRY_MOST: u64 = 60;

/// A server without its port: the engine thread and what the handlers share.
pub struct App {
    pub(crate) options: Options,
    pub(crate) metrics: Arc<Metrics>,
    status: watch::Sender<Status>,
    worker: Handle,
    /// Unix time of the start.
    pub(crate) started: u64,
    ids: AtomicU64,
    id_prefix: String,
    engine: Mutex<Option<Engine>>,
    pub(crate) bodies: body::Limits,
    /// One for each request that may be read at a time: tokens and templates take the processor's time.
    readers: Arc<Semaphore>,
}

/// The engine thread and its end.
pub(crate) struct Engine {
    pub thread: JoinHandle<()>,
    pub ended: oneshot::Receiver<Ended>,
}

impl App {
    /// Starts the engine thread, which loads the model.
    pub fn start(options: Options, load: Load) -> std::io::Result<Arc<Self>> {
        let metrics = Arc::new(Metrics::default());
        let status = watch::Sender::new(Status::Loading);
        let limits =
            Limits { running: options.running, queued: options.queued, speculation: options.speculation };
        let (worker, thread, ended) = Handle::start(limits, status.clone(), Arc::clone(&metrics), load)?;
        let mut prefix = [0; 8];
        getrandom::fill(&mut prefix).map_err(|error| std::io::Error::other(error.to_string()))?;
        let app = Self {
            bodies: body::Limits::new(options.max_body_bytes, options.client_timeout),
            options,
            metrics,
            status,
            worker,
            started: unix_time(),
            ids: AtomicU64::new(0),
            id_prefix: hex::encode(prefix),
            engine: Mutex::new(Some(Engine { thread, ended })),
            readers: Arc::new(Semaphore::new(thread::available_parallelism().map_or(1, NonZero::get))),
        };
        Ok(Arc::new(app))
    }

    /// The engine's thread, for the first who asks.
    pub(crate) fn take_engine(&self) -> Option<Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The routes.
    pub fn router(self: &Arc<Self>) -> Router {
        let no_such_route = || async {
            ApiError::status(StatusCode::NOT_FOUND, "not_found", "there is no such route; /v1/models is one")
        };
        let no_such_method = || async {
            let message = "the route does not have this method";
            ApiError::status(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        };
        Router::new()
            .route("/", get(api::page::page))
            .route("/health", get(api::health))
            .route("/v1/embeddings", post(api::page::embeddings))
            .route("/v1/models", get(api::models::list))
            .route("/v1/models/{*id}", get(api::models::one))
            .route("/v1/completions", post(api::completions::handle))
            .route("/v1/chat/completions", post(api::chat::handle))
            .route("/v1/responses", post(api::responses::handle))
            .route("/tokenize", post(api::tokens::tokenize))
            .route("/detokenize", post(api::tokens::detokenize))
            .route("/metrics", get(api::metrics))
            .fallback(no_such_route)
            .method_not_allowed_fallback(no_such_method)
            .layer(middleware::from_fn_with_state(Arc::clone(self), guard::guard))
            .with_state(Arc::clone(self))
    }

    /// Whether requests can be answered; changes are seen by those who wait.
    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// The model, if requests can be answered.
    pub(crate) fn model(&self) -> Result<Arc<Model>, ApiError> {
        match &*self.status.borrow() {
            Status::Ready(model) => Ok(Arc::clone(model)),
            Status::Loading => {
                Err(ApiError::unavailable("loading", "the model is being loaded", RETRY_WHEN_READY))
            }
            Status::Failed(error) => {
                let message = format!("the device failed ({error}); the model is loaded anew");
                Err(ApiError::unavailable("device_failed", message, RETRY_WHEN_READY))
            }
            Status::Stopping => {
                Err(ApiError::unavailable("stopping", "the server is stopping", RETRY_WHEN_READY))
            }
        }
    }

    /// Gives the choices of a request to the engine thread.
    pub(crate) fn submit(&self, model: &Arc<Model>, choices: Vec<Choice>) -> Result<Answers, ApiError> {
        let limits = self.worker.limits();
        self.worker.submit(choices, model).ok_or_else(|| {
            self.metrics.refused_requests.inc();
            // As many rounds as wait, at the pace of the requests so far.
            let rounds = limits.queued as f64 / limits.running.max(1) as f64;
            let seconds = self.metrics.request_seconds.mean().map_or(1.0, |mean| mean.as_secs_f64() * rounds);
            ApiError::queue_full(limits.places(), (seconds.ceil() as u64).clamp(1, RETRY_MOST))
        })
    }

    /// Work that takes the processor's time rather than somebody else's, off the threads that serve connections: as many at a
    /// time as there are processors, so that a hundred large requests leave some of them to the engine.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let gone = || ApiError::internal("a request could not be read; this is a bug, please report it");
        let reader = Arc::clone(&self.readers).acquire_owned().await.map_err(|_| gone())?;
        // The work goes on when its client has left, and so does its place.
        let work = move || {
            let _reader = reader;
            work()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(gone()))
    }

    /// Choices that run or wait.
    pub fn in_use(&self) -> usize {
        self.worker.in_use()
    }

    /// No request is taken from now on.
    pub(crate) fn refuse_new(&self) {
        self.status.send_replace(Status::Stopping);
    }

    /// Ends the engine thread, and what it works on.
    pub fn stop(&self) {
        self.refuse_new();
        self.worker.stop();
    }

    /// A name for an answer that no other has.
    pub(crate) fn id(&self, kind: &str) -> String {
        format!("{kind}-{}{:08x}", self.id_prefix, self.ids.fetch_add(1, Ordering::Relaxed))
    }
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
