//! What each launch takes, by events before and after it.
//!
//! The events are part of the graph, where there is one, so that the host is not in the way: between two of them is the
//! launch alone, with what the device takes to start it. Launches whose number depends on the run are put into the stream one
//! by one, as they run otherwise too; there the host may be what is slow.

use std::sync::Arc;

use unisonic_core::launch::inputs::TileCounts;
use unisonic_gpu::machine::{MachineError, Times, Work};

use super::machine::CudaMachine;
use super::recording::{Recording, Stamps};
use super::stream::{Event, Stream};

/// As [`unisonic_gpu::machine::Machine::time`].
pub fn time(
    stream: &Arc<Stream>,
    work: &Work<CudaMachine>,
    inputs: &[u8],
    tiles: TileCounts,
    repetitions: u32,
) -> Result<Vec<Times>, MachineError> {
    let events = |count: usize| -> Result<Vec<Event>, MachineError> {
        (0..count).map(|_| Event::timed(stream.context())).collect()
    };
    if work.dispatches.is_empty() {
        return Ok(vec![Times::default(); repetitions as usize]);
    }
    let mut whole = Recording::with_stamps(stream, work, Stamps::Ends(events(2)?))?;
    let mut each = Recording::with_stamps(stream, work, Stamps::Each(events(work.dispatches.len() + 2)?))?;
    let mut times = vec![];
    // The first one warms up.
    for _ in 0..=repetitions {
        whole.run(inputs, tiles, 1)?;
        each.run(inputs, tiles, 1)?;
        let whole_ns = whole.stamps_ns()?.last().copied().unwrap_or(0);
        times.push(Times::of_stamps(whole_ns, &each.stamps_ns()?));
    }
    times.remove(0);
    Ok(times)
}
