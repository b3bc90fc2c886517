//! A small thread pool for steps that last microseconds.
//!
//! [`Pool::run`] hands out task numbers through a counter, works along, and returns when all tasks are done. Workers
//! spin for a moment after each job, because the next step follows at once, and sleep when none comes. Which thread
//! runs which task is left open: tasks write disjoint results, so it cannot change a bit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::float_state::DefaultFloatState;

/// Turns of the waiting loop before a worker sleeps: some tens of microseconds.
const SPINS: u32 = 20_000;

/// A pool of threads, the caller of [`Pool::run`] being one of them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// A job: the tasks' function, whose lifetime [`Pool::run`] guards.
type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Counts jobs; a change tells workers that there is one.
    generation: AtomicU32,
    job: Mutex<Option<SendJob>>,
    tasks: AtomicUsize,
    next: AtomicUsize,
    /// Workers that have not finished the job.
    running: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
}

#[derive(Clone, Copy)]
struct SendJob(Job);
// SAFETY: the function is Sync, and `Pool::run` does not return before every worker is done with it.
unsafe impl Send for SendJob {}

impl Pool {
    /// A pool of `threads` threads in all, at least one.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            generation: AtomicU32::new(0),
            job: Mutex::new(None),
            tasks: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
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
    #[cfg(test)]
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
        // SAFETY: only the lifetime changes. The pointer is used by workers while `running` is not zero, and this
        // function does not return before it is.
        let job: Job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(task) };
        *lock(&shared.job) = Some(SendJob(job));
        shared.tasks.store(tasks, Ordering::Relaxed);
        shared.next.store(0, Ordering::Relaxed);
        shared.running.store(self.workers.len(), Ordering::Relaxed);
        {
            let _sleep = lock(&shared.sleep);
            shared.generation.fetch_add(1, Ordering::Release);
        }
        shared.wake.notify_all();
        let mine = catch_unwind(AssertUnwindSafe(|| shared.take_tasks(task)));
        let mut spins = 0_u32;
        while shared.running.load(Ordering::Acquire) != 0 {
            // A worker that lost its processor needs ours.
            if spins < SPINS {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            spins = spins.saturating_add(1);
        }
        if mine.is_err() || shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a task of the CPU device panicked");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        {
            let _sleep = lock(&self.shared.sleep);
            self.shared.generation.fetch_add(1, Ordering::Release);
        }
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so joining it cannot fail.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn take_tasks(&self, task: &(dyn Fn(usize) + Sync)) {
        let tasks = self.tasks.load(Ordering::Relaxed);
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= tasks {
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
            seen = self.wait_for_change(seen);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let job = *lock(&self.job);
            if let Some(SendJob(job)) = job {
                // SAFETY: `Pool::run` waits for `running` below, so the function is alive.
                let task = unsafe { &*job };
                if catch_unwind(AssertUnwindSafe(|| self.take_tasks(task))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            self.running.fetch_sub(1, Ordering::Release);
        }
    }

    /// Spins, then sleeps, until the generation is another than `seen`.
    fn wait_for_change(&self, seen: u32) -> u32 {
        for _ in 0..SPINS {
            let now = self.generation.load(Ordering::Acquire);
            if now != seen {
                return now;
            }
            std::hint::spin_loop();
        }
        let mut sleep = lock(&self.sleep);
        loop {
            let now = self.generation.load(Ordering::Acquire);
            if now != seen {
                return now;
            }
            sleep = self.wake.wait(sleep).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
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
