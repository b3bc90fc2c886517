//! What pieces of work cost in processor time, beside what they cost before: `tests/data/costs.toml`.
//!
//! Machines differ, so a cost is counted in units of a fixed piece of work, which the same process does before and after.
//! It is processor time, of all threads, so that what else the machine does hardly matters.

use std::time::Instant;

use unisonic_engine::EngineOptions;

use super::Tier;

/// Where costs are written down.
const FILE: &str = "tests/data/costs.toml";
/// Tokens that the oracle reads in a unit.
const UNIT_TOKENS: usize = 200;
/// More than so much of what is written down is a failure.
const MOST: f64 = 1.5;

/// Costs of a section of the file.
pub struct Costs {
    section: String,
    /// Processor seconds of units.
    units: Vec<Option<f64>>,
    measured: Vec<(String, f64)>,
}

impl Costs {
    /// Measures a unit.
    pub fn new(section: &str) -> Self {
        Self { section: section.to_owned(), units: vec![unit()], measured: vec![] }
    }

    /// Does a piece of work, which says what it was, and prints it with its seconds.
    pub fn measure(&mut self, name: &str, work: impl FnOnce() -> String) {
        let (start, before) = (Instant::now(), processor_seconds());
        let what = work();
        let cost = processor_seconds().zip(before).map(|(after, before)| after - before);
        let seconds = start.elapsed().as_secs_f64();
        let of_processor = cost.map_or(String::new(), |cost| format!(", {cost:.2} s of processor time"));
        super::say(&format!("{}: {name}: {what}: {seconds:.2} s{of_processor}", self.section));
        self.measured.extend(cost.map(|cost| (name.to_owned(), cost)));
    }

    /// Fails where the tier `ci` costs half more than what is written down.
    pub fn check(mut self) {
        self.units.push(unit());
        let units: Option<Vec<f64>> = self.units.iter().copied().collect();
        let Some(units) = units else {
            return super::skipped(&format!("costs of {}", self.section), "no processor time on this system");
        };
        let unit = units.iter().sum::<f64>() / units.len() as f64;
        let mut failures = vec![];
        for (name, cost) in &self.measured {
            let (units, before) = (cost / unit, self.before(name));
            let of_file = before.map_or("nothing".to_owned(), |before| format!("{before:.1}"));
            let line = format!("{name}: {units:.1} units of {unit:.2} s, where {FILE} has {of_file}");
            super::say(&format!("{}: {line}", self.section));
            if super::tier() == Tier::Ci && before.is_some_and(|before| units > MOST * before) {
                failures.push(line);
            }
        }
        assert!(failures.is_empty(), "{}: {}", self.section, failures.join("; "));
    }

    /// Units that are written down.
    fn before(&self, name: &str) -> Option<f64> {
        let text = std::fs::read_to_string(super::root(FILE)).unwrap();
        let mut lines = text.lines().skip_while(|line| *line != format!("[\"{}\"]", self.section)).skip(1);
        let mut own = std::iter::from_fn(|| lines.next().filter(|line| !line.starts_with('[')));
        let value = own.find_map(|line| line.strip_prefix(&format!("\"{name}\" = ")))?;
        Some(value.parse().unwrap_or_else(|error| panic!("{FILE}: {name}: {value}: {error}")))
    }
}

/// The oracle reads a text: the processor seconds that it takes.
fn unit() -> Option<f64> {
    let options = EngineOptions { chunk_rows: 64, ..super::options() };
    let mut oracle = super::load_on("cpu-scalar", &super::quant("Q4_0"), &options);
    let ids = super::some_ids(UNIT_TOKENS, oracle.plan().vocab_len);
    let before = processor_seconds()?;
    super::logits(&mut oracle, &ids);
    Some((processor_seconds()? - before).max(0.01))
}

/// Of this process, with all its threads; none where the system does not say.
fn processor_seconds() -> Option<f64> {
    /// `utime` and `stime` are the 12th and 13th field after the name, in hundredths of a second (proc(5), `USER_HZ`).
    const FIELDS: std::ops::Range<usize> = 11..13;
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(FIELDS)?.iter().map(|ticks| ticks.parse::<f64>().ok());
    Some(ticks.sum::<Option<f64>>()? / 100.0)
}
