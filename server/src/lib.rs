//! An OpenAI-compatible HTTP server over one engine.
//!
//! ```text
//! connection ── handler (api/) ──► worker::Handle ──► engine thread (worker/run.rs) ──► worker::Answers ── handler ── client
//! ```
//!
//! - `serve`: the port, connections, and the graceful stop; [`serve()`] is the way in.
//! - `app`: routes; `guard`: who may call; `body`: limits and parsing; [`error`]: what a refusal looks like.
//! - `api`: a file a route; `api/params.rs` is what requests may ask for, `api/answer.rs` how answers become JSON or events.
//! - `worker`: the thread that runs the engine, and the text of its tokens.
//!
//! docs/decisions/0015-server.md says why it is cut this way. An answer is what its request gives alone, whatever runs beside
//! it: everything that may differ from run to run (time, order, who is there) stays on this side of the scheduler.

mod api;
mod app;
mod body;
pub mod error;
mod guard;
mod metrics;
mod model;
mod options;
mod serve;
mod worker;

pub use api::check_request;
pub use app::App;
pub use model::{Load, Loaded, Model};
pub use options::Options;
pub use serve::{ServeError, Stopped, listen, serve};
