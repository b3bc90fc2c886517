//! Trying again what may well succeed a little later.

use std::thread::sleep;
use std::time::Duration;

use indicatif::ProgressBar;

use super::error::PullError;
use crate::output::say;

/// The longest that a server may have this program wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How often something may be tried again.
pub struct Retries {
    allowed: u32,
    used: u32,
}

impl Retries {
    pub fn new(allowed: u32) -> Self {
        Self { allowed, used: 0 }
    }

    /// Makes a request until it succeeds or fails for good.
    pub fn run<T>(
        mut self,
        bar: &ProgressBar,
        request: impl Fn() -> Result<T, PullError>,
    ) -> Result<T, PullError> {
        loop {
            match request() {
                Err(error) => self.wait(error, bar)?,
                done => return done,
            }
        }
    }

    /// Forgets failures: the last attempt got further than those before.
    pub fn renew(&mut self) {
        self.used = 0;
    }

    /// Waits before the next attempt; gives the error back where there is to be none.
    pub fn wait(&mut self, error: PullError, bar: &ProgressBar) -> Result<(), PullError> {
        if !error.is_passing() || self.used >= self.allowed {
            return Err(error);
        }
        self.used += 1;
        bar.suspend(|| say(format_args!("{error}\ntrying again ({} of {})", self.used, self.allowed)));
        sleep(error.retry_after().unwrap_or(Duration::from_secs(1 << self.used.min(5))).min(MAX_WAIT));
        Ok(())
    }
}
