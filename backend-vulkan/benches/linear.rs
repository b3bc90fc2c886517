//! How fast the templates of linear layers are on a Vulkan device, and what its compiler makes of them.
//!
//! `cargo bench -p unisonic-vulkan --bench linear [-- [--device N] FILTER]`. Launches follow each other over
//! copies of the weights that are together larger than the second-level cache, timed by the device's clock.
//! What the buffers hold does not matter.

use std::error::Error;

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::kir::Op;
use unisonic_core::kir::kernel::{Block, Space, Stmt};
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::verify::WORD_LEN_BYTES;
use unisonic_core::launch::Workgroups;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};
use unisonic_gpu::machine::{Dispatch, Machine, Span, Work};
use unisonic_planner::kernels::GridKernel;
use unisonic_planner::kernels::linear::{
    Epilogue, Form, HalfStaged, SplitK, Tiled, half_staged, split_k, tiled,
};
use unisonic_vulkan::driver::{OpenOptions, Pipeline, VulkanMachine, open};

/// Copies of the weights have so many bytes together at least.
const ROTATED_LEN_BYTES: u64 = 700 << 20;
const LAUNCHES: u64 = 32;
const REPETITIONS: u32 = 9;
/// Names, weight rows and elements of a row: Qwen2.5-7B, and the least of 0.5B.
const SHAPES: [(&str, usize, usize); 6] = [
    ("gate+up", 37_888, 3584),
    ("down", 3584, 18_944),
    ("qkv", 4608, 3584),
    ("o", 3584, 3584),
    ("head", 152_064, 3584),
    ("small", 896, 896),
];

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let device = words.iter().position(|word| word == "--device");
    let index = device.and_then(|at| words.get(at + 1)).map_or(Ok(0), |number| number.parse())?;
    let filter = words
        .iter()
        .enumerate()
        .find(|&(at, _)| device.is_none_or(|device| at != device && at != device + 1));
    let filter = filter.map_or(String::new(), |(_, word)| word.clone());
    let machine = open(index, &OpenOptions { statistics: true, ..OpenOptions::default() })?;
    println!("{}, {}", machine.info().name, machine.driver());
    println!("{:<40}{:>9}{:>8}{:>9}  compiler", "kernel", "us", "GB/s", "TFLOP/s");
    let bench = Bench { machine, filter };
    for (shape, rows, width) in SHAPES {
        for format in [BlockFormat::Q4_K, BlockFormat::Q6_K, BlockFormat::Q8_0] {
            if format != BlockFormat::Q8_0 && width % 256 != 0 {
                continue;
            }
            let weights = WeightLayout::new(WeightFormat::Block(format), rows, width)?;
            let name = format!("{} {shape}", format.name());
            bench.few_rows(&name, weights)?;
            bench.many_rows(&name, weights)?;
        }
    }
    Ok(())
}

struct Bench {
    machine: VulkanMachine,
    filter: String,
}

impl Bench {
    fn few_rows(&self, name: &str, weights: WeightLayout) -> Result<(), Box<dyn Error>> {
        for rows in [1, 4, 16] {
            let x = ActivationLayout::new(rows, weights.width() as usize)?;
            let chosen = SplitK::new(weights, x, &self.machine.hardware());
            let linear = split_k(weights, x, Epilogue::default(), chosen);
            self.line(
                &format!("{name} split_k {rows} {:?} w{}", chosen.form, chosen.clusters),
                &linear,
                weights,
                x,
            )?;
        }
        let x = ActivationLayout::new(1, weights.width() as usize)?;
        let chosen = SplitK::new(weights, x, &self.machine.hardware());
        let mut cached = split_k(weights, x, Epilogue::default(), chosen);
        cached.kernel.body = without_streams(&cached.kernel.body);
        self.line(&format!("{name} split_k 1 cached"), &cached, weights, x)?;
        let one = split_k(weights, x, Epilogue::default(), SplitK { rounds: 1, ..chosen });
        self.line(&format!("{name} split_k 1 one round"), &one, weights, x)?;
        for form in [Form::Dot4, Form::Matrix] {
            for clusters in [7, 10, 15, 19, 25] {
                let rounds = (256 / clusters).clamp(1, weights.superblocks().div_ceil(clusters));
                let tuning = SplitK { form, clusters, rounds, ..chosen };
                let linear = split_k(weights, x, Epilogue::default(), tuning);
                self.line(&format!("{name} tuned {form:?} w{clusters}"), &linear, weights, x)?;
            }
        }
        Ok(())
    }

    fn many_rows(&self, name: &str, weights: WeightLayout) -> Result<(), Box<dyn Error>> {
        for rows in [64, 512] {
            let x = ActivationLayout::new(rows, weights.width() as usize)?;
            for (clusters, groups, tiles, columns) in [
                (4, 2, 8, true),
                (4, 2, 4, true),
                (4, 1, 8, true),
                (4, 1, 4, true),
                (8, 2, 4, true),
                (8, 1, 8, true),
                (4, 2, 4, false),
            ] {
                let tuning = HalfStaged { clusters, groups, tiles, columns, resident: 2 };
                let linear = half_staged(weights, x, Epilogue::default(), tuning);
                let name = format!("{name} half_staged {rows} w{clusters} g{groups} t{tiles} {columns}");
                self.line(&name, &linear, weights, x)?;
            }
            if let Some(tuning) = Tiled::new(weights, x, &self.machine.hardware()) {
                let linear = tiled(weights, x, Epilogue::default(), tuning);
                self.line(&format!("{name} tiled {rows}"), &linear, weights, x)?;
            }
        }
        Ok(())
    }

    fn line(
        &self,
        name: &str,
        linear: &GridKernel,
        weights: WeightLayout,
        x: ActivationLayout,
    ) -> Result<(), Box<dyn Error>> {
        if !name.contains(&self.filter) {
            return Ok(());
        }
        let kernel = legalize(&linear.kernel, &self.machine.hardware().caps);
        let compiled = match self.machine.compile(&kernel) {
            Ok(compiled) => compiled,
            Err(error) => {
                println!("{name:<40} {error}");
                return Ok(());
            }
        };
        let [rows, outputs, width] = [x.rows(), weights.rows(), weights.width()].map(u64::from);
        let len_bytes = |object: &str| match object {
            "weights" => WORD_LEN_BYTES * u64::from(weights.buffer_len()),
            "out" => WORD_LEN_BYTES * rows * outputs,
            // Planes; the others are smaller.
            _ => rows.next_multiple_of(4) * width.next_multiple_of(256) * 2,
        };
        let copies = (ROTATED_LEN_BYTES / len_bytes("weights")).clamp(2, LAUNCHES);
        let objects = kernel.objects.iter().filter(|object| !matches!(object.space, Space::Shared { .. }));
        let names: Vec<&str> = objects.map(|object| object.name.as_str()).collect();
        let buffer = |name: &str| self.machine.allocate(len_bytes(name), name);
        let matrices = (0..copies).map(|_| buffer("weights")).collect::<Result<Vec<_>, _>>()?;
        let others = names[1..].iter().map(|name| buffer(name)).collect::<Result<Vec<_>, _>>()?;
        let span = |buffer: &_, name: &str| Span {
            buffer: Clone::clone(buffer),
            offset_bytes: 0,
            len_bytes: len_bytes(name),
        };
        let dispatches = (0..LAUNCHES).map(|number| {
            let matrix = span(&matrices[(number % copies) as usize], "weights");
            let others = others.iter().zip(&names[1..]).map(|(buffer, name)| span(buffer, name));
            Dispatch {
                kernel: compiled.clone(),
                spans: [matrix].into_iter().chain(others).collect(),
                params: vec![],
                workgroups: Workgroups::Fixed(linear.grid.workgroups(x.rows()).unwrap_or(1)),
            }
        });
        let inputs = self.machine.allocate(256, "inputs")?;
        let span = |buffer: &_| Span { buffer: Clone::clone(buffer), offset_bytes: 0, len_bytes: 4 };
        let work =
            Work { dispatches: dispatches.collect(), inputs: span(&inputs), results: vec![span(&inputs)] };
        let times = self.machine.time(&work, &[0; 4], TileCounts::default(), REPETITIONS)?;
        let mut times: Vec<u64> = times.unwrap_or_default().iter().map(|times| times.whole_ns).collect();
        times.sort_unstable();
        let seconds = times.get(times.len() / 2).copied().unwrap_or(0) as f64 / LAUNCHES as f64 / 1e9;
        let operations = 2.0 * f64::from(weights.rows()) * f64::from(weights.width()) * f64::from(x.rows());
        println!(
            "{name:<40}{:>9.1}{:>8.0}{:>9.1}  {}",
            seconds * 1e6,
            len_bytes("weights") as f64 / seconds / 1e9,
            operations / seconds / 1e12,
            statistics(&compiled),
        );
        Ok(())
    }
}

/// Registers, and bytes of code, of memory for what registers do not hold, and of shared memory, in the
/// driver's words.
fn statistics(kernel: &Pipeline) -> String {
    let words = kernel.statistics().into_iter().map(|(name, value)| {
        let initials: String = name.split(' ').filter_map(|word| word.chars().next()).collect();
        format!("{initials} {}", value & 0xFFFF_FFFF)
    });
    words.collect::<Vec<_>>().join(", ")
}

fn without_streams(block: &Block) -> Block {
    let stmt = |stmt: &Stmt| match stmt.clone() {
        Stmt::Inst(mut inst) => {
            if inst.op == Op::LoadStream {
                inst.op = Op::Load;
            }
            Stmt::Inst(inst)
        }
        Stmt::Loop { body, index, start, end, step, carried } => {
            Stmt::Loop { body: without_streams(&body), index, start, end, step, carried }
        }
        other => other,
    };
    Block { stmts: block.stmts.iter().map(stmt).collect(), ..block.clone() }
}
