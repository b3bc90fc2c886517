//! Work that is spread over the cores: what takes long is the drivers' compilers and the interpreter.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::{available_parallelism, scope};

/// How many errors are shown.
const SHOWN: usize = 10;

/// Does something to each thing; fails with the first errors.
pub fn on_all_cores<T: Sync>(things: &[T], work: impl Fn(&T) -> Result<(), String> + Sync) {
    on_all_cores_from([|| things.iter()].into_iter(), work);
}

/// The same, of things that sources make meanwhile, each in a thread of its own.
pub fn on_all_cores_from<T: Send, I: Iterator<Item = T>>(
    sources: impl Iterator<Item = impl FnOnce() -> I + Send>,
    work: impl Fn(T) -> Result<(), String> + Sync,
) {
    let cores = available_parallelism().map_or(1, usize::from);
    let errors = Mutex::new(Vec::new());
    scope(|scope| {
        let (sender, receiver) = sync_channel(cores);
        let receiver = Arc::new(Mutex::new(receiver));
        for source in sources {
            let sender = sender.clone();
            scope.spawn(move || source().all(|thing| sender.send(thing).is_ok()));
        }
        for _ in 0..cores {
            let receiver = receiver.clone();
            let (errors, work) = (&errors, &work);
            scope.spawn(move || {
                loop {
                    let Ok(thing) = receiver.lock().unwrap().recv() else { return };
                    if let Err(error) = work(thing) {
                        errors.lock().unwrap().push(error);
                    }
                }
            });
        }
    });
    let errors = errors.into_inner().unwrap();
    let first = &errors[..errors.len().min(SHOWN)];
    assert!(errors.is_empty(), "{} differ; the first:\n{}", errors.len(), first.join("\n"));
}
