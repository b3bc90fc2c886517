//! One at a time: who runs a model or a program, in the order in which they come to it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::locks::{lock, lock_whole};
use crate::status::unisonic_status;

/// How often who waits looks whether it was told to stop.
const LOOK: Duration = Duration::from_millis(10);

/// A value that one thread has at a time. Waiting can be cancelled, and a thread that has it already (in a
/// callback) is told so instead of waiting for itself.
pub(crate) struct Turns<T> {
    line: Mutex<Line>,
    moved: Condvar,
    value: Mutex<T>,
    /// What it is, for messages.
    name: &'static str,
}

/// Who has the value, and who waits for it.
#[derive(Default)]
struct Line {
    owner: Option<ThreadId>,
    waiting: VecDeque<u64>,
    next: u64,
}

/// The value, until it is dropped.
pub(crate) struct Turn<'a, T> {
    /// Taken before the next may have it.
    value: Option<MutexGuard<'a, T>>,
    turns: &'a Turns<T>,
}

impl<T> Turns<T> {
    pub(crate) fn new(value: T, name: &'static str) -> Self {
        Self { line: Mutex::default(), moved: Condvar::new(), value: Mutex::new(value), name }
    }

    /// Waits for the value.
    pub(crate) fn take(&self, cancel: Option<&Cancel>) -> Result<Turn<'_, T>> {
        let me = thread::current().id();
        let mut line = self.line();
        if line.owner == Some(me) {
            let message = format!(
                "the {} runs the call that this callback came from; call it when that has returned",
                self.name
            );
            return Err(Error::new(unisonic_status::Busy, message));
        }
        let ticket = line.next;
        line.next += 1;
        line.waiting.push_back(ticket);
        while line.owner.is_some() || line.waiting.front() != Some(&ticket) {
            if cancel.is_some_and(Cancel::is_requested) {
                line.waiting.retain(|&other| other != ticket);
                self.moved.notify_all();
                let message = format!("cancelled while another thread ran the {}", self.name);
                return Err(Error::new(unisonic_status::Cancelled, message));
            }
            line = self.moved.wait_timeout(line, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        line.waiting.pop_front();
        // Nobody has it, so this does not wait.
        let value = lock(&self.value).inspect_err(|_| self.moved.notify_all())?;
        line.owner = Some(me);
        Ok(Turn { value: Some(value), turns: self })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        lock_whole(&self.line)
    }
}

impl<T> std::ops::Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_deref().expect("it is there until the turn is dropped")
    }
}

impl<T> std::ops::DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("it is there until the turn is dropped")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.turns.line().owner = None;
        self.turns.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let turns = Turns::new(1, "number");
        let turn = turns.take(None).unwrap();
        let error = turns.take(None).map(|turn| *turn).unwrap_err();
        assert_eq!(error.status, unisonic_status::Busy);
        drop(turn);
        assert_eq!(*turns.take(None).unwrap(), 1);
    }

    #[test]
    fn waiting_ends_when_it_is_cancelled_and_the_next_comes() {
        let turns = Arc::new(Turns::new(0, "number"));
        let cancel = Arc::new(Cancel::default());
        let turn = turns.take(None).unwrap();
        let wait = |cancel: Option<Arc<Cancel>>| {
            let turns = Arc::clone(&turns);
            thread::spawn(move || turns.take(cancel.as_deref()).map(|mut turn| *turn += 1))
        };
        let (first, second) = (wait(Some(Arc::clone(&cancel))), wait(None));
        cancel.request();
        assert_eq!(first.join().unwrap().unwrap_err().status, unisonic_status::Cancelled);
        drop(turn);
        assert_eq!(second.join().unwrap(), Ok(()));
        assert_eq!(*turns.take(None).unwrap(), 1);
    }

    #[test]
    fn after_a_panic_it_is_said_to_be_broken() {
        let turns = Arc::new(Turns::new(0, "number"));
        let had = Arc::new(AtomicBool::new(false));
        let panics = {
            let (turns, had) = (Arc::clone(&turns), Arc::clone(&had));
            move || {
                let _turn = turns.take(None);
                had.store(true, Ordering::Relaxed);
                panic!("on purpose");
            }
        };
        assert!(thread::Builder::new().name("unisonic-test".into()).spawn(panics).unwrap().join().is_err());
        assert!(had.load(Ordering::Relaxed));
        for _ in 0..2 {
            assert_eq!(turns.take(None).map(|turn| *turn).unwrap_err().status, unisonic_status::Internal);
        }
    }
}
