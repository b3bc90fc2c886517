//! How fast the interpreter of the kernel IR runs templates: statements times invocations a second, on one core.
//!
//! `cargo bench -p unisonic-planner --bench interpreter`. The aim is 50 million, so that tests can cover many shapes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use unisonic_core::kir::interp::run;
use unisonic_planner::kernels::samples::{Extent, FAMILIES, Sample};

/// Runs of at least this long are measured.
const MEASURED: Duration = Duration::from_secs(1);

fn main() {
    println!("{:<16}{:>24}", "family", "M statements·lanes / s");
    for (name, family) in FAMILIES {
        let samples: Vec<Sample> = family(Extent::Pairs).take(4).collect();
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < MEASURED {
            for sample in &samples {
                let mut launch = sample.launch.clone();
                if let Err(trap) = run(&sample.kernel, &mut launch) {
                    println!("{name:<16}{trap}");
                }
                done += sample.launch.fuel - launch.fuel;
                black_box(launch);
            }
        }
        println!("{name:<16}{:>24.0}", done as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
}
