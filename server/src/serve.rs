//! The port: connections with limits, and the stop.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_io_timeout::TimeoutStream;

use crate::app::App;
use crate::model::{Load, Status};
use crate::options::Options;

/// Most bytes of a request's head.
const HEAD_LEN_MAX_BYTES: usize = 64 << 10;
/// How long the step may take that is under way when the server stops.
const LAST_STEP_MAX: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be taken, for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server could not serve, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is taken, or not ours to take.
    #[error("cannot listen on {address}: {problem}; give another --host or --port")]
    Listen {
        /// What was asked for.
        address: String,
        /// What the system says.
        problem: std::io::Error,
    },
    /// The model cannot be loaded.
    #[error("{0}")]
    Load(String),
    /// The system refused threads, signals or randomness.
    #[error("cannot start the server: {0}")]
    System(#[from] std::io::Error),
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Choices that were at work when it was told to.
    pub at_work: usize,
    /// Those of them that did not come to their end.
    pub cancelled: usize,
}

/// Serves until SIGINT or SIGTERM, or until the model cannot be loaded. Blocks.
pub fn serve(options: Options, load: Load) -> Result<Stopped, ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(async {
        let address = format!("{}:{}", options.host, options.port);
        let listener = TcpListener::bind((options.host.as_str(), options.port)).await;
        let listener = listener.map_err(|problem| ServeError::Listen { address, problem })?;
        let signals = signals()?;
        listen(App::start(options, load)?, listener, signals).await
    });
    // A thread that still loads is not waited for.
    runtime.shutdown_background();
    served
}

/// A message for each SIGINT or SIGTERM.
fn signals() -> std::io::Result<mpsc::Receiver<()>> {
    let (sender, signals) = mpsc::channel(2);
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::spawn(async move {
        loop {
            #[cfg(unix)]
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            #[cfg(not(unix))]
            let _ = tokio::signal::ctrl_c().await;
            if sender.send(()).await.is_err() {
                break;
            }
        }
    });
    Ok(signals)
}

/// Serves an app that nobody else serves on a listener; each message is a signal to stop.
pub async fn listen(
    app: Arc<App>,
    listener: TcpListener,
    mut signals: mpsc::Receiver<()>,
) -> Result<Stopped, ServeError> {
    let Some(mut engine) = app.take_engine() else {
        return Err(std::io::Error::other("the app is served already").into());
    };
    let say = Arc::clone(&app.options.say);
    let address = listener.local_addr()?;
    say(&format!("listening on http://{address}"));
    warn_of_openness(&app, address);
    tokio::spawn(say_when_ready(Arc::clone(&app)));
    let connections = Arc::new(Semaphore::new(app.options.max_connections.max(1)));
    let graceful = GracefulShutdown::new();
    let router = app.router();
    loop {
        tokio::select! {
            stream = accept(&listener, &connections) => {
                if let Some((stream, place)) = stream {
                    let connection = connection(stream, &router, app.options.client_timeout, &graceful);
                    tokio::spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
            }
            ended = &mut engine.ended => {
                return Err(ServeError::Load(match ended {
                    Ok(Err(error)) => error,
                    _ => "the engine's thread has ended; this is a bug, please report it".into(),
                }));
            }
            _ = signals.recv() => break,
        }
    }
    drop(listener);
    // A model that is being loaded, for the first time or again, is not waited for.
    let is_ready = matches!(&*app.status().borrow(), Status::Ready(_));
    let at_work = app.in_use();
    app.refuse_new();
    say(&format!(
        "stopping: {at_work} answers are being finished, for at most {} s; again to end at once",
        app.options.grace.as_secs()
    ));
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(app.options.grace) => {}
        _ = signals.recv() => {}
    }
    let cancelled = app.in_use();
    app.stop();
    if is_ready {
        // A device may hang in it.
        tokio::select! {
            _ = tokio::task::spawn_blocking(move || engine.thread.join()) => {}
            () = tokio::time::sleep(LAST_STEP_MAX) => say("the device has not ended its step; it is left alone"),
            _ = signals.recv() => {}
        }
    }
    say(&format!("stopped: {} answers finished, {cancelled} cancelled", at_work.saturating_sub(cancelled)));
    Ok(Stopped { at_work, cancelled })
}

fn warn_of_openness(app: &App, address: SocketAddr) {
    if !address.ip().is_loopback() && app.options.api_key.is_none() {
        (app.options.say)(
            "warning: anyone who reaches this machine may call the server; give it an --api-key",
        );
    }
}

async fn say_when_ready(app: Arc<App>) {
    let mut status = app.status();
    let ready = status.wait_for(|status| matches!(status, Status::Ready(_) | Status::Stopping)).await;
    let line = match ready.as_deref() {
        Ok(Status::Ready(model)) => {
            format!("ready: {} on {}, context of {} tokens", model.name, model.device, model.context_len)
        }
        _ => return,
    };
    drop(ready);
    (app.options.say)(&line);
}

/// The next connection, when there is a place for it.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(connections).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "cannot take a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Serves a connection until it ends. A client that neither sends a head nor takes an answer in time is cut off.
fn connection(
    stream: TcpStream,
    router: &Router,
    timeout: Duration,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + 'static {
    // Answers come in small pieces.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(timeout));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(timeout).max_buf_size(HEAD_LEN_MAX_BYTES);
    let service = TowerToHyperService::new(router.clone());
    let connection = graceful.watch(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
    async move {
        let connection = pin!(connection);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended");
        }
    }
}
