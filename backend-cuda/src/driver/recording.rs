//! Launches that run again and again with other inputs.
//!
//! Where no size depends on the run, everything is one graph: inputs to the device, launches one after the other, results
//! to the host; and the launches are one, for runs that go on from what they left behind. Otherwise the same is put into the
//! stream piece by piece in each run, which costs some microseconds a launch.

use std::cell::Cell;
use std::sync::Arc;

use unisonic_core::launch::inputs::TileCounts;
use unisonic_gpu::machine::{MachineError, Span, Work};

use super::graph::Graph;
use super::launch::Launch;
use super::machine::CudaMachine;
use super::memory::Buffer;
use super::pinned::Pinned;
use super::stream::{Event, Stream};

/// A recording of a [`CudaMachine`].
pub struct Recording {
    /// Before what they refer to, so that they are dropped first.
    graph: Option<Graph>,
    /// The launches alone, once they have had to run more than once.
    launches: Option<Graph>,
    work: Recorded,
    /// Whether the last run has ended well.
    has_results: bool,
}

/// What is done in a run, with all that it needs.
struct Recorded {
    stream: Arc<Stream>,
    inputs: Pinned,
    input: Copy,
    launches: Vec<Launch>,
    results: Pinned,
    copies: Vec<Copy>,
    stamps: Stamps,
    /// Whether launches that can may begin before those before them have ended.
    begins_early: Cell<bool>,
}

/// Events between the launches, for their times.
pub enum Stamps {
    /// None.
    None,
    /// Two: before the first and after the last.
    Ends(Vec<Event>),
    /// Two more than launches: two before the first, and one after each.
    Each(Vec<Event>),
}

impl Stamps {
    fn events(&self) -> &[Event] {
        match self {
            Stamps::None => &[],
            Stamps::Ends(events) | Stamps::Each(events) => events,
        }
    }

    /// Those before the first launch.
    fn before(&self) -> &[Event] {
        match self {
            Stamps::None => &[],
            Stamps::Ends(events) => &events[..1],
            Stamps::Each(events) => &events[..2],
        }
    }

    /// Those after the launch with a number, of so many.
    fn after(&self, number: usize, launches: usize) -> &[Event] {
        match self {
            Stamps::Ends(events) if number + 1 == launches => &events[1..],
            Stamps::Each(events) => &events[number + 2..][..1],
            Stamps::None | Stamps::Ends(_) => &[],
        }
    }
}

/// Device memory that is copied from or to.
struct Copy {
    address: u64,
    len_bytes: usize,
    _buffer: Buffer,
}

impl Copy {
    fn new(stream: &Stream, span: &Span<CudaMachine>, what: &str) -> Result<Self, MachineError> {
        let address = span.buffer.part(stream.context(), span.offset_bytes, span.len_bytes, what)?;
        let len_bytes = usize::try_from(span.len_bytes)
            .map_err(|error| MachineError::Driver { call: what.to_owned(), reason: error.to_string() })?;
        Ok(Self { address, len_bytes, _buffer: span.buffer.clone() })
    }
}

impl Recording {
    /// As [`unisonic_gpu::machine::Machine::record`].
    pub fn new(stream: &Arc<Stream>, work: &Work<CudaMachine>) -> Result<Self, MachineError> {
        Self::with_stamps(stream, work, Stamps::None)
    }

    /// With events, as many as the launches need.
    pub fn with_stamps(
        stream: &Arc<Stream>,
        work: &Work<CudaMachine>,
        stamps: Stamps,
    ) -> Result<Self, MachineError> {
        let context = stream.context();
        context.enter()?;
        let input = Copy::new(stream, &work.inputs, "recording the inputs")?;
        let copies = work
            .results
            .iter()
            .map(|span| Copy::new(stream, span, "recording the results"))
            .collect::<Result<Vec<_>, _>>()?;
        let launches = work
            .dispatches
            .iter()
            .map(|dispatch| Launch::new(context, dispatch))
            .collect::<Result<Vec<_>, _>>()?;
        // Prompts, whose launches are of sizes that depend on the run, lose by it: what waits takes the place of what works
        // (0.5B, 512 rows: 75,000 tokens/s instead of 90,000).
        let begins_early = Cell::new(launches.iter().all(Launch::is_fixed));
        let work = Recorded {
            stream: stream.clone(),
            inputs: Pinned::new(stream, input.len_bytes)?,
            input,
            launches,
            results: Pinned::new(stream, copies.iter().map(|copy| copy.len_bytes).sum())?,
            copies,
            stamps,
            begins_early,
        };
        // What is in the stream, such as uploads, would not be part of the capture, and need not be waited for.
        let graph = if work.is_fixed() {
            // SAFETY: `Recording` holds the graph and all of this, and drops the graph first.
            work.graph(|| unsafe { work.enqueue(TileCounts::default()) })?
        } else {
            None
        };
        Ok(Self { graph, launches: None, work, has_results: false })
    }

    /// Nanoseconds from the first event to each, in the last run.
    pub fn stamps_ns(&self) -> Result<Vec<u64>, MachineError> {
        let events = self.work.stamps.events();
        let first = events.first().into_iter();
        first.flat_map(|first| events.iter().map(|event| event.since_ns(first))).collect()
    }

    /// As [`unisonic_gpu::machine::Machine::run_kept`].
    pub fn run(&mut self, inputs: &[u8], tiles: TileCounts, runs: u32) -> Result<(), MachineError> {
        let Self { graph, launches, work, has_results } = self;
        *has_results = false;
        work.stream.context().enter()?;
        let (found, expected) = (inputs.len(), work.inputs.len_bytes());
        if found != expected {
            let reason = format!("the inputs have {found} bytes and were recorded with {expected}");
            return Err(MachineError::Driver { call: "running a recording".to_owned(), reason });
        }
        // SAFETY: each run waits for its end, so no copy is under way.
        unsafe { work.inputs.bytes_mut() }.copy_from_slice(inputs);
        if runs > 1 && graph.is_some() && launches.is_none() {
            // SAFETY: `self` holds the graph and all of this, and drops the graph first.
            *launches = work.graph(|| unsafe { work.enqueue_launches(TileCounts::default()) })?;
        }
        let launched = match graph {
            // SAFETY: it is waited for below, and `self` holds all that it touches meanwhile.
            Some(graph) if runs <= 1 => unsafe { graph.launch(&work.stream) },
            // SAFETY: as above.
            _ => unsafe { work.enqueue_runs(tiles, runs, launches.as_ref()) },
        };
        // If a launch failed too: those before it are under way.
        work.stream.synchronize().and(launched)?;
        self.has_results = true;
        Ok(())
    }

    /// As [`unisonic_gpu::machine::Machine::results`].
    pub fn results(&self) -> &[u32] {
        match self.has_results {
            // SAFETY: the last run has ended, so that no copy is under way.
            true => bytemuck::cast_slice(unsafe { self.work.results.bytes() }),
            false => &[],
        }
    }
}

impl Recorded {
    /// Whether all sizes are the same in each run.
    fn is_fixed(&self) -> bool {
        self.launches.iter().all(Launch::is_fixed)
    }

    /// A graph of what `enqueue` puts into the stream; none if the driver does not make one and nothing else is wrong: the
    /// launches then run one by one.
    fn graph(&self, enqueue: impl Fn() -> Result<(), MachineError>) -> Result<Option<Graph>, MachineError> {
        match Graph::capture(&self.stream, &enqueue) {
            Ok(graph) => Ok(Some(graph)),
            Err(MachineError::Driver { call, reason }) if self.begins_early.replace(false) => {
                tracing::debug!("launches wait for the end of those before them: {call} failed: {reason}");
                self.graph(enqueue)
            }
            Err(MachineError::Driver { call, reason }) => {
                tracing::warn!("launches run one by one, which is slower: {call} failed: {reason}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts everything into the stream.
    ///
    /// # Safety
    /// This lives, and its pinned memory is left alone, until the stream, or the graph that is captured from it, is done.
    unsafe fn enqueue(&self, tiles: TileCounts) -> Result<(), MachineError> {
        // SAFETY: as the caller says.
        unsafe { self.enqueue_runs(tiles, 1, None) }
    }

    /// The same with the launches some times, at least once, from a graph where there is one.
    ///
    /// # Safety
    /// As of [`Self::enqueue`]; the graph is of these launches.
    unsafe fn enqueue_runs(
        &self,
        tiles: TileCounts,
        runs: u32,
        graph: Option<&Graph>,
    ) -> Result<(), MachineError> {
        let Self { stream, inputs, input, results, copies, .. } = self;
        if input.len_bytes > 0 {
            // SAFETY: the buffer has that length and is held; the caller vouches for the rest.
            unsafe { stream.copy_to_device(input.address, inputs, input.len_bytes) }?;
        }
        for _ in 0..runs.max(1) {
            match graph {
                // SAFETY: as the caller says.
                Some(graph) => unsafe { graph.launch(stream) },
                // SAFETY: as the caller says.
                None => unsafe { self.enqueue_launches(tiles) },
            }?;
        }
        let mut offset_bytes = 0;
        for copy in copies.iter().filter(|copy| copy.len_bytes > 0) {
            // SAFETY: the buffer has that length and is held; the caller vouches for the rest.
            unsafe { stream.copy_to_host(results, offset_bytes, copy.address, copy.len_bytes) }?;
            offset_bytes += copy.len_bytes;
        }
        Ok(())
    }

    /// Puts the launches into the stream.
    ///
    /// # Safety
    /// As of [`Self::enqueue`].
    unsafe fn enqueue_launches(&self, tiles: TileCounts) -> Result<(), MachineError> {
        let Self { stream, launches, stamps, .. } = self;
        // What a launch that begins early comes after is a launch, and not an event or a copy.
        let mut is_after_launch = false;
        let stamp = |events: &[Event]| events.iter().try_for_each(|event| event.stamp(stream));
        stamp(stamps.before())?;
        for (number, launch) in launches.iter().enumerate() {
            let early = is_after_launch && launch.is_dependent() && self.begins_early.get();
            // SAFETY: as the caller says; all launches are of one machine, so that all are dependent if one is.
            is_after_launch |= unsafe { launch.enqueue(stream, tiles, early) }?;
            let after = stamps.after(number, launches.len());
            stamp(after)?;
            is_after_launch &= after.is_empty();
        }
        Ok(())
    }
}
