//! How fast the interpreter of the kernel IR runs templates: statements times invocations a second, on one core.
//!
//! `cargo bench -p unisonic-planner --bench interpreter`. The aim is 50 million, so that tests can cover many shapes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use unisonic_core::kir::Kernel;
use unisonic_core::kir::interp::{Launch, run};
use unisonic_planner::kernels;

/// Runs of at least this long are measured.
const MEASURED: Duration = Duration::from_secs(1);
const ROWS: usize = 4;
const WIDTH: usize = 4864;

fn main() {
    println!("{:<16}{:>24}", "kernel", "M statements·lanes / s");
    let rows = vec![0x3F; 4 * ROWS * WIDTH];
    let planes = ROWS * WIDTH.next_multiple_of(32);
    measure(&kernels::rms_norm(WIDTH as u32, 1e-5), ROWS, &[&rows, &rows[..4 * WIDTH], &rows, &[0; 64]]);
    let superblocks = WIDTH.div_ceil(256);
    let small = vec![0; 4 * ROWS * superblocks];
    measure(
        &kernels::quantize_a16(WIDTH as u32),
        ROWS * superblocks,
        &[&rows, &rows[..planes], &rows[..planes], &small, &small],
    );
}

fn measure(kernel: &Kernel, groups: usize, buffers: &[&[u8]]) {
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < MEASURED {
        let buffers = buffers.iter().map(|buffer| buffer.to_vec()).collect();
        let mut launch = Launch { groups: groups as u32, params: vec![], buffers, fuel: u64::MAX };
        if let Err(trap) = run(kernel, &mut launch) {
            println!("{:<16}{trap}", kernel.name);
            return;
        }
        done += u64::MAX - launch.fuel;
        black_box(launch);
    }
    println!("{:<16}{:>24.0}", kernel.name, done as f64 / start.elapsed().as_secs_f64() / 1e6);
}
