//! A small thread pool for steps that last microseconds.
//!
//! [`Pool::run`] hands out task numbers through a counter, works along, and returns when all tasks are done. Workers
//! spin for a moment after each job, because the next step follows at once, and sleep when none comes. A job does not
//! wait for workers that never came: on a busy machine the caller does the work alone. Which thread runs which task is
//! left open: tasks write disjoint results, so it cannot change a bit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::float_state::DefaultFloatState;

/// Turns of a waiting loop before a thread gives its processor away. The next step usually
/// follows within microseconds; the number was not tuned.
const SPINS: u32 = 2_000;

/// A pool of threads, the caller of [`Pool::run`] being one of them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// A job: the tasks' function, whose lifetime [`Pool::run`] guards.
#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

// SAFETY: the function is Sync, and `Pool::run` does not return before every worker that joined the job has left it.
unsafe impl Send for Job {}

/// The state of the current job in one word, so that joining and closing it exclude each other: its number, whether it
/// is open, and how many workers are in it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Phase(u64);

impl Phase {
    const WORKERS: u64 = (1 << 20) - 1;
    const OPEN: u64 = 1 << 20;

    fn number(self) -> u64 {
        self.0 >> 21
    }
    fn is_open(self) -> bool {
        self.0 & Self::OPEN != 0
    }
    fn workers(self) -> u64 {
        self.0 & Self::WORKERS
    }
    /// The next job, open, nobody in it.
    fn next(self) -> Self {
        Self((self.number() + 1) << 21 | Self::OPEN)
    }
}

struct Shared {
    phase: AtomicU64,
    job: Mutex<Option<Job>>,
    next: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Pool {
    /// A pool of `threads` threads in all, at least one.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            phase: AtomicU64::new(0),
            job: Mutex::new(None),
            next: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let worker = |i| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("unisonic-cpu-{i}")).spawn(move || shared.work())
        };
        // Fewer threads than asked for is slower and nothing else.
        let workers = (1..threads.max(1)).map_while(|i| worker(i).ok()).collect();
        Self { shared, workers }
    }

    /// Threads, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(0)`, ..., `task(tasks - 1)`, each once, on any of the threads.
    ///
    /// # Panics
    /// If a task panics.
    pub fn run(&mut self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if tasks <= 1 || self.workers.is_empty() {
            (0..tasks).for_each(task);
            return;
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. Workers use the pointer between joining and leaving the job, and this
        // function returns when the job is closed to joining and all have left.
        let task = unsafe {
            std::mem::transmute::<&(dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync + 'static)>(task)
        };
        let job = Job { task, tasks };
        *lock(&shared.job) = Some(job);
        shared.next.store(0, Ordering::Relaxed);
        shared.open();
        let mine = catch_unwind(AssertUnwindSafe(|| shared.take_tasks(job)));
        shared.close();
        // A worker that wakes late finds nothing to call.
        *lock(&shared.job) = None;
        if mine.is_err() || shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a task of the CPU device panicked");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.open();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so joining it cannot fail.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn phase(&self) -> Phase {
        Phase(self.phase.load(Ordering::Acquire))
    }

    /// Starts a job. Only the caller of `run` does, so nobody else changes the phase meanwhile: no job is open.
    fn open(&self) {
        {
            // A worker that is about to sleep sees the new phase or is woken.
            let _sleep = lock(&self.sleep);
            self.phase.store(self.phase().next().0, Ordering::Release);
        }
        self.wake.notify_all();
    }

    /// Ends a job: nobody joins any more, and all who did have left.
    fn close(&self) {
        self.phase.fetch_and(!Phase::OPEN, Ordering::AcqRel);
        let mut spins = 0_u32;
        while self.phase().workers() != 0 {
            // A worker that lost its processor needs ours.
            if spins < SPINS {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            spins = spins.saturating_add(1);
        }
    }

    fn take_tasks(&self, job: Job) {
        // SAFETY: the caller of `run`, or a worker that has joined: the function is alive.
        let task = unsafe { &*job.task };
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= job.tasks {
                return;
            }
            task(index);
        }
    }

    /// The life of a worker.
    fn work(&self) {
        // A new thread inherits the mode of the thread that started it.
        let _state = DefaultFloatState::enter();
        let mut seen = 0;
        loop {
            seen = self.wait_for_job(seen);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if !self.join() {
                continue;
            }
            let job = *lock(&self.job);
            if let Some(job) = job
                && catch_unwind(AssertUnwindSafe(|| self.take_tasks(job))).is_err()
            {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.phase.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Joins the job that is open; false if none is. It may be a later one than the worker woke for, which is as good.
    fn join(&self) -> bool {
        let joined = |phase| Phase(phase).is_open().then_some(phase + 1);
        self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, joined).is_ok()
    }

    /// Spins, then sleeps, until there is a job after number `seen`; returns its number.
    fn wait_for_job(&self, seen: u64) -> u64 {
        for _ in 0..SPINS {
            let number = self.phase().number();
            if number != seen {
                return number;
            }
            std::hint::spin_loop();
        }
        let mut sleep = lock(&self.sleep);
        loop {
            let number = self.phase().number();
            if number != seen {
                return number;
            }
            sleep = self.wake.wait(sleep).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A lock that a panic elsewhere does not spoil.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_whatever_the_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let mut pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 5, 100] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{threads} {tasks}");
            }
        }
    }

    #[test]
    fn a_pool_works_after_its_threads_went_to_sleep() {
        let mut pool = Pool::new(3);
        for _ in 0..3 {
            let sum = AtomicUsize::new(0);
            pool.run(10, &|i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 45);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_leaves_the_pool_usable() {
        let mut pool = Pool::new(2);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(8, &|i| assert!(i != 5, "on purpose"));
        }));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(4, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 6);
    }
}
