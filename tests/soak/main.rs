//! Many clients for a long time on one `unisonic serve`: every answer that comes whole is the one that its request gives alone,
//! clients that leave cost nothing, memory stays as it is, and what has ended leaves no trace.
//!
//! In the tier ci 20 seconds with a tiny model, in the tier full ten minutes with SmolLM2-135M. The random choices come from a seed
//! that is printed; which answers meet is up to the system.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/mod.rs"]
mod common;
mod requests;
mod server;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Tier, quant, runs_in, say, smollm2, tier};
use requests::{Request, Rng, requests};
use server::{Left, Server};

const CLIENTS: usize = 64;
const SEED: u64 = 20_261_130;
/// Places for fewer than may come, so that some are refused.
const PARALLEL: usize = 16;
const QUEUE: usize = 40;
/// How much memory may grow from the second fifth of the time to the last.
const MEMORY_GROWTH_MAX: f64 = 1.02;
/// Of a processor, without work.
const IDLE_CPUS_MAX: f64 = 0.01;

/// What became of requests.
type Counts = BTreeMap<&'static str, usize>;

#[test]
fn answers_under_load_are_those_alone() {
    if !runs_in(Tier::Ci, "64 clients at once") {
        return;
    }
    let full = tier() == Tier::Full;
    let time = Duration::from_secs(if full { 600 } else { 20 });
    let model = smollm2(Tier::Full, "ten minutes of 64 clients").unwrap_or_else(|| quant("Q4_0"));
    let server = Server::start(&model, PARALLEL, QUEUE, if full { None } else { Some(1) });
    let mut requests = requests(SEED, 60);
    for request in &mut requests {
        request.right = server.answer(request);
    }
    let (counts, memory) = load(&server, &requests, time);
    server.until_empty();
    say(&format!("{CLIENTS} clients, {} s, seed {SEED}: {counts:?}", time.as_secs()));
    assert!(counts["complete"] > requests.len(), "too few to mean anything");
    for request in requests.iter().step_by(7) {
        assert_eq!(server.answer(request), request.right, "alone, afterwards: {}", request.body);
    }
    memory_is_flat(&memory, full);
    let cpus = server.cpus(Duration::from_secs(5));
    say(&format!("idle: {:.2} % of a processor", 100.0 * cpus));
    assert!(cpus <= IDLE_CPUS_MAX, "an idle server uses {cpus} processors");
    server.stop();
}

/// Lets the clients loose; what became of their requests, and the server's memory, second by second.
fn load(server: &Server, requests: &[Request], time: Duration) -> (Counts, Vec<f64>) {
    let counts = Mutex::new(Counts::new());
    let ended = AtomicBool::new(false);
    let end = Instant::now() + time;
    let mut memory = Vec::new();
    std::thread::scope(|scope| {
        for index in 0..CLIENTS {
            let (counts, ended) = (&counts, &ended);
            scope.spawn(move || {
                let mut rng = Rng::new(SEED + 1 + index as u64);
                while Instant::now() < end && !ended.load(Ordering::Relaxed) {
                    let what = client(server, &requests[rng.below(requests.len())], &mut rng);
                    *counts.lock().unwrap().entry(what).or_default() += 1;
                }
            });
        }
        while Instant::now() < end {
            memory.push(server.metric("process_resident_memory_bytes"));
            std::thread::sleep(Duration::from_secs(1));
        }
        ended.store(true, Ordering::Relaxed);
    });
    (counts.into_inner().unwrap(), memory)
}

/// Sends a request, and stays for its answer or leaves.
fn client(server: &Server, request: &Request, rng: &mut Rng) -> &'static str {
    let left = match rng.below(10) {
        0 => Left::InTheRequest,
        1 => Left::AtOnce,
        // Whole answers come at once, so it leaves before or after.
        2 | 3 => Left::After { bytes: rng.below(6000) },
        _ => Left::Never,
    };
    let slow = (rng.below(20) == 0).then(|| Duration::from_millis(rng.below(30) as u64));
    match server.send(request, left, slow) {
        None => "left",
        Some((429, _)) => {
            std::thread::sleep(Duration::from_millis(200));
            "refused"
        }
        Some((200, body)) => {
            let answer = request.normal(&body);
            assert!(answer == request.right, "{}: {answer:?} instead of {:?}", request.body, request.right);
            "complete"
        }
        Some((status, body)) => panic!("status {status}: {body}: {}", request.body),
    }
}

/// Medians, as threads of a system come and go.
fn memory_is_flat(memory: &[f64], full: bool) {
    let median = |of: &[f64]| {
        let mut sorted = of.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let fifth = memory.len() / 5;
    let (early, late) = (median(&memory[fifth..2 * fifth]), median(&memory[4 * fifth..]));
    say(&format!(
        "memory: {:.1} MB in the second fifth of the time, {:.1} MB in the last ({:+.2} %)",
        early * 1e-6,
        late * 1e-6,
        100.0 * (late / early - 1.0)
    ));
    // In a short run a small model's prefix tree is still being filled.
    assert!(!full || late <= MEMORY_GROWTH_MAX * early, "memory grows");
}
