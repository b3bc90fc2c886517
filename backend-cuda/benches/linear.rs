//! How fast the templates of linear layers are on the GPU of this machine, beside what its memory can do.
//!
//! `cargo bench -p unisonic-cuda --bench linear [-- FILTER]`. Each kernel runs in a recorded graph, over
//! copies of the weights that are together larger than the second-level cache; the median of some replays.
//! The share is that of the weights' bytes at the speed of a kernel that only reads, measured in the same
//! run. What the buffers hold does not matter.

#[path = "../tests/support/gpu.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod gpu;

use cudarc::driver::result::{self, DriverError, event, stream};
use cudarc::driver::sys;
use gpu::{Buffer, Gpu, Module};
use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::kir::build::kernel;
use unisonic_core::kir::kernel::Space;
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::launch::Hardware;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::region::Region;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};
use unisonic_cuda::ptx::emit;
use unisonic_planner::kernels::GridKernel;
use unisonic_planner::kernels::linear::{Epilogue, Form, SplitK, Tiled, split_k, tiled};

/// Copies of the weights have so many bytes together at least.
const ROTATED_LEN_BYTES: usize = 700 << 20;
/// Launches of a graph.
const LAUNCHES: usize = 64;
const REPLAYS: usize = 9;
/// Names, weight rows and elements of a row: Qwen2.5-7B.
const SHAPES: [(&str, usize, usize); 5] = [
    ("gate+up", 37_888, 3584),
    ("down", 3584, 18_944),
    ("qkv", 4608, 3584),
    ("o", 3584, 3584),
    ("head", 152_064, 3584),
];

fn main() -> Result<(), DriverError> {
    let filter = std::env::args().skip(1).find(|word| !word.starts_with("--")).unwrap_or_default();
    let Some(gpu) = Gpu::open("linear layers on a GPU") else { return Ok(()) };
    let bench = Bench { gpu, filter, ceiling: 0.0 };
    let ceiling = bench.read_ceiling()?;
    println!("read-only kernel: {:.0} GB/s; target {}", ceiling / 1e9, bench.gpu.target.name());
    println!("{:<44}{:>9}{:>9}{:>8}{:>9}", "kernel", "us", "GB/s", "share", "TFLOP/s");
    let bench = Bench { ceiling, ..bench };
    for (shape, rows, width) in SHAPES {
        for format in [BlockFormat::Q4_K, BlockFormat::Q6_K, BlockFormat::Q8_0] {
            let weights = WeightLayout::new(WeightFormat::Block(format), rows, width).expect("a shape");
            let name = format!("{} {shape}", format.name());
            bench.few_rows(&name, weights)?;
            if format == BlockFormat::Q4_K && ["gate+up", "down", "o"].contains(&shape) {
                bench.tunings(&name, weights)?;
            }
            bench.many_rows(&name, weights)?;
        }
    }
    Ok(())
}

struct Bench {
    gpu: Gpu,
    filter: String,
    ceiling: f64,
}

impl Bench {
    fn few_rows(&self, name: &str, weights: WeightLayout) -> Result<(), DriverError> {
        for rows in [1, 2, 4, 8, 16] {
            let x = ActivationLayout::new(rows, weights.width() as usize).expect("rows");
            let linear = split_k(weights, x, Epilogue::default(), SplitK::new(weights, x, &Hardware::SM_86));
            self.line(&format!("{name} split_k {rows}"), &linear, weights, x)?;
        }
        let x = ActivationLayout::new(1, weights.width() as usize).expect("rows");
        let tuning = SplitK { form: Form::Dot4, ..SplitK::new(weights, x, &Hardware::SM_86) };
        let linear = split_k(weights, x, Epilogue::default(), tuning);
        self.line(&format!("{name} split_k 1 dot4"), &linear, weights, x)
    }

    /// Other choices for one row.
    fn tunings(&self, name: &str, weights: WeightLayout) -> Result<(), DriverError> {
        let x = ActivationLayout::new(1, weights.width() as usize).expect("rows");
        let chosen = SplitK::new(weights, x, &Hardware::SM_86);
        for clusters in [5, 7, 10, 15] {
            for (groups, resident) in [(1, 1), (1, 2), (1, 3), (1, 4), (2, 2)] {
                if clusters * 32 * resident > 2048 {
                    continue;
                }
                let rounds = (256 / (clusters * groups)).clamp(1, weights.superblocks().div_ceil(clusters));
                let tuning = SplitK { clusters, groups, resident, rounds, ..chosen };
                let linear = split_k(weights, x, Epilogue::default(), tuning);
                let what = format!("{name} tuned 1 w{clusters} g{groups} r{resident}");
                self.line(&what, &linear, weights, x)?;
            }
        }
        Ok(())
    }

    fn many_rows(&self, name: &str, weights: WeightLayout) -> Result<(), DriverError> {
        for rows in [32, 64, 512, 2048] {
            let x = ActivationLayout::new(rows, weights.width() as usize).expect("rows");
            let linear = tiled(
                weights,
                x,
                Epilogue::default(),
                Tiled::new(weights, x, &Hardware::SM_86).expect("a tile"),
            );
            self.line(&format!("{name} tiled {rows}"), &linear, weights, x)?;
        }
        Ok(())
    }

    fn line(
        &self,
        name: &str,
        linear: &GridKernel,
        weights: WeightLayout,
        x: ActivationLayout,
    ) -> Result<(), DriverError> {
        if !name.contains(&self.filter) {
            return Ok(());
        }
        let groups = linear.grid.workgroups(x.rows()).expect("a launch");
        let weight_len_bytes = 4 * weights.buffer_len() as usize;
        let len_bytes = |object: &str| {
            4 * match object {
                "weights" => weights.buffer_len() as usize,
                _ => match object.strip_prefix("x_").and_then(Region::of_name) {
                    Some(region) => x.len(region) as usize,
                    None => x.rows() as usize * weights.rows() as usize,
                },
            }
        };
        let copies = (ROTATED_LEN_BYTES / weight_len_bytes).clamp(2, LAUNCHES);
        let seconds = self.seconds(&linear.kernel, groups, copies, len_bytes)?;
        let bytes_a_second = weight_len_bytes as f64 / seconds;
        let operations = 2.0 * f64::from(weights.rows()) * f64::from(weights.width()) * f64::from(x.rows());
        println!(
            "{name:<44}{:>9.1}{:>9.0}{:>7.0}%{:>9.1}",
            seconds * 1e6,
            bytes_a_second / 1e9,
            100.0 * bytes_a_second / self.ceiling,
            operations / seconds / 1e12
        );
        Ok(())
    }

    /// Bytes a second of a kernel that reads about 1 GiB and does nothing else.
    fn read_ceiling(&self) -> Result<f64, DriverError> {
        const GROUPS: u32 = 132 * 16;
        /// Words of a turn of all invocations, each of four vectors.
        const STEP: u32 = GROUPS * 256 * 16;
        const WORDS: u32 = 31 * STEP;
        let reader = kernel("read", 256, |k| {
            let (x, y) = (k.read("weights", Scalar::U32), k.write("out", Scalar::U32));
            let id = k.group_id() * 256 + k.local_id();
            let [sum] = k.fold(id * 4, k.u32(WORDS), STEP, [k.u32(0)], |at, [sum]| {
                let loads: Vec<_> = (0..4).map(|i| x.load_stream(at + i * (GROUPS * 256 * 4), 4)).collect();
                [loads.into_iter().fold(sum, |sum, v| (0..4).fold(sum, |sum, i| sum ^ v.part(i)))]
            });
            k.when(sum.eq(k.u32(1)), || y.store(id, sum));
        });
        let len_bytes = |name: &str| if name == "out" { 4 << 20 } else { 4 * WORDS as usize };
        let seconds = self.seconds(&reader, GROUPS, 2, len_bytes)?;
        Ok(f64::from(WORDS) * 4.0 / seconds)
    }

    /// Seconds of a launch: the first buffer is another copy each time.
    fn seconds(
        &self,
        kernel: &Kernel,
        groups: u32,
        copies: usize,
        len_bytes: impl Fn(&str) -> usize,
    ) -> Result<f64, DriverError> {
        let legal = legalize(kernel, &self.gpu.target.caps());
        let module = Module::load(&emit(&legal, self.gpu.target))?;
        let outside = legal.objects.iter().filter(|object| !matches!(object.space, Space::Shared { .. }));
        let names: Vec<&str> = outside.map(|object| object.name.as_str()).collect();
        // Bytes that are small finite halves.
        let buffer = |name: &str| Buffer::filled(len_bytes(name), 0x2C);
        let weights = (0..copies).map(|_| buffer(names[0])).collect::<Result<Vec<_>, _>>()?;
        let others = names[1..].iter().map(|name| buffer(name)).collect::<Result<Vec<_>, _>>()?;
        let launches: Vec<Vec<u64>> = (0..LAUNCHES)
            .map(|i| {
                let first = weights[i % copies].address;
                [first].into_iter().chain(others.iter().map(|other| other.address)).collect()
            })
            .collect();
        let graph = Recorded::new(|stream| {
            launches.iter().try_for_each(|launch| module.enqueue(&legal, groups, launch, &[], stream))
        })?;
        let mut times = (0..REPLAYS + 2).map(|_| graph.replay()).collect::<Result<Vec<_>, _>>()?.split_off(2);
        times.sort_by(f64::total_cmp);
        Ok(times[REPLAYS / 2] / LAUNCHES as f64)
    }
}

/// A graph that was recorded from a stream.
struct Recorded {
    stream: sys::CUstream,
    graph: sys::CUgraphExec,
    events: [sys::CUevent; 2],
}

impl Recorded {
    fn new(enqueue: impl FnOnce(sys::CUstream) -> Result<(), DriverError>) -> Result<Self, DriverError> {
        let stream = stream::create(stream::StreamKind::NonBlocking)?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream was just made and records what is launched on it until the recording ends; the
        // graph that comes of it is made executable once.
        unsafe {
            stream::begin_capture(stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
            enqueue(stream)?;
            let recorded = stream::end_capture(stream)?;
            sys::cuGraphInstantiateWithFlags(&mut graph, recorded, 0).result()?;
            result::graph::destroy(recorded)?;
        }
        let new_event = || event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        Ok(Self { stream, graph, events: [new_event()?, new_event()?] })
    }

    /// Seconds of a replay.
    fn replay(&self) -> Result<f64, DriverError> {
        // SAFETY: stream, graph and events live as long as this; what the graph's kernels touch outlives the
        // call, which waits for the end.
        unsafe {
            event::record(self.events[0], self.stream)?;
            sys::cuGraphLaunch(self.graph, self.stream).result()?;
            event::record(self.events[1], self.stream)?;
            event::synchronize(self.events[1])?;
            Ok(f64::from(event::elapsed(self.events[0], self.events[1])?) / 1e3)
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: each was made once, and the last replay has been waited for.
        unsafe {
            let _ = result::graph::exec_destroy(self.graph);
            for event in self.events {
                let _ = event::destroy(event);
            }
            let _ = stream::destroy(self.stream);
        }
    }
}
