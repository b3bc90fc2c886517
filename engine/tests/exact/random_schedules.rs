//! Random schedules of arrivals, cancels and evictions on a simulated clock: whatever meets whatever, each answer is what it
//! is alone.
//!
//! A schedule follows from its seed. `UNISONIC_SCHEDULE=seed` runs that one and no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unisonic_core::plan::Device;
use unisonic_cpu::native::CpuDevice;
use unisonic_engine::schedule::{RequestId, ScheduleLimits, Scheduler, SubmitError};
use unisonic_engine::{Clock, Engine, EngineOptions};

use super::common::{Random, load, options, say, tier_choice};
use super::requests::{Asked, Log};
use super::toy::Toy;

/// Time that passes only as the schedule says: each look at it takes a random while, which is what steps take.
#[derive(Clone)]
struct SimulatedClock {
    nanos: Arc<AtomicU64>,
    looks: Arc<AtomicU64>,
    seed: u64,
}

impl SimulatedClock {
    fn new(seed: u64) -> Self {
        Self { nanos: Arc::default(), looks: Arc::default(), seed }
    }

    fn now(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    fn skip_to(&self, nanos: u64) {
        self.nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    fn for_engine(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || {
            let mut random = Random::new(clock.seed ^ clock.looks.fetch_add(1, Ordering::Relaxed));
            // Now and then one step takes as long as a hundred.
            let most = if random.chance(3) { 200_000_000 } else { 2_000_000 };
            let passed = random.below(most);
            Duration::from_nanos(clock.nanos.fetch_add(passed, Ordering::Relaxed) + passed)
        })
    }
}

/// What happens at a time.
enum Act {
    Arrive(Asked),
    /// Of the n-th that arrived.
    Cancel(usize),
}

/// Acts by their time and number.
type Calendar = BTreeMap<(u64, usize), Act>;

fn calendar(random: &mut Random) -> Calendar {
    let (mut calendar, mut time) = (Calendar::new(), 0);
    // From all at once to one after the other: a step takes a millisecond.
    let gap = [0, 1, 4, 60][random.below(4) as usize] * 1_000_000;
    for number in 0..1 + random.below(16) as usize {
        time += random.below(gap + 1);
        calendar.insert((time, 2 * number), Act::Arrive(Asked::random(random)));
        if random.chance(25) {
            calendar.insert((time + random.below(60_000_000), 2 * number + 1), Act::Cancel(number));
        }
    }
    calendar
}

/// What schedules were made of.
#[derive(Debug, Default)]
struct Happened {
    answers: usize,
    cancelled: usize,
    refused: usize,
    /// Requests that gave up their pages and came back.
    set_aside: usize,
}

struct Schedule {
    scheduler: Scheduler,
    clock: SimulatedClock,
    log: Log,
    /// Of each that arrived, what it asks for and its number, unless it was refused.
    arrived: Vec<(Asked, Option<RequestId>)>,
    guesses: bool,
    what: String,
}

impl Schedule {
    fn new(seed: u64, random: &mut Random, device: &dyn Device) -> Self {
        let clock = SimulatedClock::new(seed);
        let options = EngineOptions {
            context_len: Some(256),
            kv_pages: Some(4 + random.below(30) as u32),
            chunk_rows: [1, 3, 7, 16, 64, 65, 200][random.below(7) as usize],
            max_outputs: [1, 2, 8, 64][random.below(4) as usize],
            clock: random.chance(50).then(|| clock.for_engine()),
            ..options()
        };
        let limits = ScheduleLimits {
            max_running: 1 + random.below(12) as usize,
            max_queued: if random.chance(20) { 3 } else { 20 },
        };
        let scheduler = Scheduler::new(load(device, "Q4_0", &options), limits);
        let (guesses, what) = (random.chance(60), format!("schedule {seed}"));
        Self { scheduler, clock, log: Log::default(), arrived: Vec::new(), guesses, what }
    }

    fn act(&mut self, act: Act, random: &mut Random, happened: &mut Happened) {
        match act {
            Act::Arrive(asked) => {
                let id = match self.scheduler.submit(asked.request(self.guesses)) {
                    Ok(id) => Some(id),
                    Err(error) => {
                        let full = matches!(error, SubmitError::QueueFull { .. });
                        assert!(full, "{}: {error}", self.what);
                        happened.refused += 1;
                        None
                    }
                };
                if let Some(id) = id
                    && random.chance(15)
                {
                    self.log.ends.insert(id, 1 + random.below(20) as usize);
                }
                self.arrived.push((asked, id));
            }
            Act::Cancel(number) => {
                let Some(id) = self.arrived[number].1 else { return };
                let cancelled = self.scheduler.cancel(id);
                assert_eq!(cancelled.is_none(), self.log.done.contains_key(&id), "{}", self.what);
                happened.cancelled += usize::from(cancelled.is_some());
                self.log.done.extend(cancelled.map(|completion| (id, completion)));
            }
        }
    }

    fn run(&mut self, mut calendar: Calendar, random: &mut Random, happened: &mut Happened) {
        let mut steps = 0;
        loop {
            while let Some(first) = calendar.first_entry().filter(|act| act.key().0 <= self.clock.now()) {
                self.act(first.remove(), random, happened);
            }
            let queued = self.scheduler.queued();
            let more = self.scheduler.step(&mut |event| self.log.see(event)).unwrap();
            happened.set_aside += self.scheduler.queued().saturating_sub(queued);
            self.clock.skip_to(self.clock.now() + random.below(2_000_000));
            if !more {
                let Some((&(next, _), _)) = calendar.first_key_value() else { return };
                self.clock.skip_to(next);
            }
            steps += 1;
            assert!(steps < 20_000, "{}: no end", self.what);
        }
    }

    /// Nothing is left over, and each answer is what it is alone.
    fn check(&self, reference: &mut Engine) -> usize {
        let Self { scheduler, what, .. } = self;
        let page_use = scheduler.engine().page_use();
        assert_eq!((page_use.held, scheduler.running(), scheduler.queued()), (0, 0, 0), "{what}");
        assert_eq!(page_use.free + page_use.cached, page_use.total, "{what}");
        let taken = self.arrived.iter().filter_map(|(asked, id)| Some((asked, (*id)?)));
        for (asked, id) in taken.clone() {
            self.log.check(id, &asked.alone(reference), what);
        }
        assert_eq!(self.log.done.len(), taken.clone().count(), "{what}");
        taken.count()
    }
}

/// Says how to run a schedule again if it fails.
struct Again(u64, &'static str);

impl Drop for Again {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(seed, test) = self;
            let command = format!("cargo test -p unisonic-engine --test exact {test}");
            say(&format!("schedule {seed} failed; this one alone: UNISONIC_SCHEDULE={seed} {command}"));
        }
    }
}

/// The schedules of the first `count` seeds of `all`, or the one that is asked for.
fn run(
    test: &'static str,
    [count, all]: [u64; 2],
    reference: &mut Engine,
    device: impl Fn(u64) -> Box<dyn Device>,
) -> Option<Happened> {
    let only = std::env::var("UNISONIC_SCHEDULE").ok().map(|seed| seed.parse().unwrap());
    let seeds = only.map_or(0..count, |seed: u64| seed..seed + 1);
    let mut happened = Happened::default();
    for seed in seeds {
        let _again = Again(seed, test);
        let mut random = Random::new(seed);
        let mut schedule = Schedule::new(seed, &mut random, &*device(seed));
        schedule.run(calendar(&mut random), &mut random, &mut happened);
        happened.answers += schedule.check(reference);
    }
    if count < all {
        say(&format!("skipped: {} of {all} {test} (run in tier full)", all - count));
    }
    only.is_none().then_some(happened)
}

/// A device that hashes, where a wrong page or row shows at once.
#[test]
fn random_schedules_give_every_answer_as_alone() {
    let counts = [tier_choice(60, 1000, 1000), 1000];
    let mut reference = load(&Toy::NEW, "Q4_0", &EngineOptions { context_len: Some(256), ..options() });
    let toy = |seed| -> Box<dyn Device> { Box::new(Toy { copies: seed % 2 == 0, ..Toy::NEW }) };
    let name = "random_schedules_give_every_answer_as_alone";
    if let Some(happened) = run(name, counts, &mut reference, toy) {
        let Happened { answers, cancelled, refused, set_aside } = happened;
        let count = counts[0] as usize;
        let enough = answers > 5 * count && 20 * cancelled.min(refused).min(set_aside) > count;
        assert!(enough, "this shows little: {happened:?}");
    }
}

/// The native CPU device.
#[test]
fn random_schedules_on_the_cpu() {
    let cpu = || CpuDevice::new().with_threads(1);
    let mut reference = load(&cpu(), "Q4_0", &EngineOptions { context_len: Some(256), ..options() });
    let counts = [tier_choice(2, 8, 100), 100];
    run("random_schedules_on_the_cpu", counts, &mut reference, |_| Box::new(cpu()));
}
