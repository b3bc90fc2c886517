//! The thread that writes.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use unisonic_cache::Cache;

use super::cache_key;
use crate::digest::Digest;

/// Pages that wait to be written, at most; more are not kept.
const MAX_WAITING: usize = 32;

/// A page to be written: the last of a chain.
pub(super) struct Put {
    pub chain: Vec<Digest>,
    pub value: Vec<u8>,
}

enum Job {
    Put(Put),
    Touch(Vec<Digest>),
}

/// Writes pages behind the work. Dropping it waits for those that are under way.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(cache: Arc<Cache>) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(MAX_WAITING);
        let work = move || run(&cache, &waiting);
        let thread = std::thread::Builder::new().name("kv-dir".into()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// False if too much is waiting.
    pub(super) fn put(&self, put: Put) -> bool {
        self.send(Job::Put(put))
    }

    pub(super) fn touch(&self, chain: Vec<Digest>) {
        // At worst they go sooner.
        self.send(Job::Touch(chain));
    }

    fn send(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        // A panic there has lost pages, nothing else.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(cache: &Cache, waiting: &Receiver<Job>) {
    while let Ok(job) = waiting.recv() {
        let chain = match job {
            Job::Touch(chain) => chain,
            Job::Put(Put { chain, value }) => {
                if let Some(&digest) = chain.last() {
                    cache.put(&cache_key(digest), &format!("page {} of a sequence", chain.len() - 1), &value);
                }
                chain
            }
        };
        // From the end, so that what others build on was used later than what builds on it.
        chain.iter().rev().for_each(|&digest| cache.touch(&cache_key(digest)));
    }
}
