//! Work on several threads whose results are taken on this one, in their order.

use std::sync::mpsc::sync_channel;

/// Makes results 0 to `count` on up to `threads` threads and hands each to `take`, in order, on the calling thread. The first
/// error in that order ends it, whatever the threads do; at most a few results a thread wait to be taken.
pub(crate) fn in_order<T: Send, E: Send>(
    count: usize,
    threads: usize,
    make: impl Fn(usize) -> Result<T, E> + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.clamp(1, count.max(1));
    std::thread::scope(|scope| {
        // Thread t makes t, t + threads, ..., so whose turn it is to be taken is known.
        let receivers: Vec<_> = (0..threads)
            .map(|thread| {
                let (sender, receiver) = sync_channel(1);
                let make = &make;
                scope.spawn(move || {
                    for index in (thread..count).step_by(threads) {
                        let made = make(index);
                        let failed = made.is_err();
                        // Nobody receives any more after an error.
                        if sender.send(made).is_err() || failed {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        for index in 0..count {
            match receivers[index % threads].recv() {
                Ok(made) => take(index, made?)?,
                // The thread panicked, and the scope says so when it ends.
                Err(_) => break,
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_taken_in_order() {
        for (count, threads) in [(0, 3), (1, 3), (10, 1), (10, 3), (100, 7)] {
            let mut taken = vec![];
            let result: Result<(), ()> = in_order(
                count,
                threads,
                |index| Ok(index * index),
                |index, made| {
                    taken.push((index, made));
                    Ok(())
                },
            );
            assert_eq!(result, Ok(()));
            assert_eq!(taken, (0..count).map(|index| (index, index * index)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        for threads in [1, 2, 5] {
            let mut taken = 0;
            let make = |index| if [17, 4, 30].contains(&index) { Err(index) } else { Ok(index) };
            let result = in_order(40, threads, make, |_, _| {
                taken += 1;
                Ok(())
            });
            assert_eq!((result, taken), (Err(4), 4));
            let result = in_order(40, threads, make, |index, _| if index == 2 { Err(99) } else { Ok(()) });
            assert_eq!(result, Err(99), "an error of whoever takes");
        }
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_is_not_lost() {
        let make = |index: usize| {
            assert_ne!(index, 3);
            Ok::<_, ()>(())
        };
        let _ = in_order(9, 2, make, |_, ()| Ok(()));
    }
}
