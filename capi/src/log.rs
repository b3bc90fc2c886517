//! What is logged, to the callback of a library handle.

use std::ffi::{c_char, c_void};
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::callback::User;
use crate::entry::as_host_that_logs;
use crate::error::{Error, Result, c_string};

/// How much a line of the log matters.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum unisonic_log_level {
    /// Something failed.
    Error = 1,
    /// Something is not as it should be, and goes on.
    Warn = 2,
    /// What is going on.
    Info = 3,
    /// What helps to find a fault.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

/// Takes a line of the log: UTF-8 with a NUL behind its `len` bytes, until the callback returns. Comes from
/// the thread that calls the library, during the call.
pub type unisonic_log_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, level: unisonic_log_level, message: *const c_char, len: usize),
>;

/// Sends events to a callback.
pub(crate) struct LogSink {
    callback: unsafe extern "C" fn(*mut c_void, unisonic_log_level, *const c_char, usize),
    user: User,
    most: LevelFilter,
}

impl LogSink {
    /// `level` is a [`unisonic_log_level`], or 0 for information.
    pub(crate) fn new(callback: unisonic_log_fn, user: *mut c_void, level: i32) -> Result<Option<Self>> {
        let most = match level {
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            0 | 3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            5 => LevelFilter::TRACE,
            other => {
                return Err(Error::argument(format!("log_level is {other}, but must be 0 (as 3) to 5")));
            }
        };
        Ok(callback.map(|callback| Self { callback, user: User(user), most }))
    }
}

impl Subscriber for LogSink {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Of our own crates only.
        *metadata.level() <= self.most && metadata.target().starts_with("unisonic")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            Level::ERROR => unisonic_log_level::Error,
            Level::WARN => unisonic_log_level::Warn,
            Level::INFO => unisonic_log_level::Info,
            Level::DEBUG => unisonic_log_level::Debug,
            Level::TRACE => unisonic_log_level::Trace,
        };
        let text = c_string(&line.finish());
        let len = text.as_bytes().len();
        // SAFETY: the host's function, as it said when it gave it; the text lives until it returns.
        as_host_that_logs(|| unsafe { (self.callback)(self.user.0, level, text.as_ptr(), len) });
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

/// The message of an event, and its fields as `name=value` behind it.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn finish(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
