//! `unisonic bench`: how fast a model reads prompts and generates, and how close to what memory allows.
//!
//! [`mod@measure`] says what is measured and does it, [`mod@bandwidth`] measures the memory beside it;
//! [`results`] holds what was found, [`table`] and [`report`] (below the same [`mod@facts`]) and [`svg`] show
//! it. [`mod@profile`] is about the launches of a GPU, [`mod@ablate`] about what each switch is worth. Start reading at [`run`].

mod ablate;
mod bandwidth;
mod capacity;
mod facts;
mod machine;
mod measure;
mod model_facts;
mod profile;
mod recorded;
mod report;
mod results;
#[cfg(test)]
mod samples;
mod stats;
mod svg;
mod table;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use unisonic_core::format::GgufFile;
use unisonic_core::plan::{PAGE_TOKENS, Plan};
use unisonic_engine::Engine;
use unisonic_engine::draft::MAX_VERIFY_ROWS;

use self::bandwidth::Bandwidth;
use self::machine::Machine;
use self::measure::{Bench, Continuation, DIGEST_TOKENS, Test, Work};
use self::results::{BandwidthFigure, Memory, Results, Row};
use crate::cli::{FileArg, LoadArgs};
use crate::numbers::whole;
use crate::output::{progress_bar, write_json, write_stdout};
use crate::{interrupt, model};

const DETAILS: &str = "\
A test is `prefill N` (reads N tokens, in chunks of --chunk) or `decode N` (reads N tokens, one after the other, and \
computes the logits of each); `generate N` picks each token from the logits before it, `recorded N` checks guesses that \
all come true, `verify N` is one step of N tokens of a sequence, `parallel N` one step of N sequences, and in all these \
nobody looks at logits. With --depth D a test follows D tokens that are in the KV cache already. Token ids of \
the others are fixed: none is chosen from the logits. Repetitions are interleaved: each round measures every test once, after one \
round to warm up. Figures are medians; the quartiles show the spread.

The floor of decode is the time to read a token's weights, keys and values once at the bandwidth that as many threads \
reach in the same run. The share is this time over the measured one; it exceeds 100 % where caches hold a part of what \
is read, as of a small model.

The digest is over the logits of 64 greedy tokens: the same for the same file and profile on every machine.

Examples:
  unisonic bench model.gguf
  unisonic bench --prefill 128,512 --decode 64 --depth 0,4096 model.gguf
  unisonic bench --svg speed.svg model.gguf           the table, and a chart
  unisonic bench --report model.gguf > report.md      to paste into an issue
  unisonic bench --json model.gguf > bench.json
  unisonic bench --profile --device cuda model.gguf   what each kernel takes
  unisonic bench --ablate model.gguf                  what each pass is worth

No model at hand? `unisonic synth` writes one with random weights in the shape of a real one.";

const CONTEXT_HELP: &str = "Longest sequence in tokens [default: what the tests and the digest need]";

/// Measures how fast a model reads prompts (prefill) and generates (decode)
#[derive(Args)]
#[command(after_help = DETAILS, mut_arg("context", |arg| arg.help(CONTEXT_HELP)))]
pub struct BenchArgs {
    #[command(flatten)]
    file: FileArg,
    /// Lengths of prompts, separated by commas; 0 measures none
    #[arg(short, long, value_name = "TOKENS", value_delimiter = ',', value_parser = whole(0..=u32::MAX), default_value = "512")]
    prefill: Vec<u32>,
    /// Tokens of decode measurements, separated by commas; 0 measures none
    #[arg(short = 'n', long, value_name = "TOKENS", value_delimiter = ',', value_parser = whole(0..=u32::MAX), default_value = "64")]
    decode: Vec<u32>,
    /// Tokens that are generated greedily, each from the one before it, separated by commas; 0 measures none
    #[arg(short, long, value_name = "TOKENS", value_delimiter = ',', value_parser = whole(0..=u32::MAX), default_value = "0")]
    generate: Vec<u32>,
    /// Tokens that are generated with guesses that all come true, separated by commas
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', value_parser = whole(1..=u32::MAX))]
    recorded: Vec<u32>,
    /// Rows of steps that check guesses: tokens of one sequence, each with the most likely token after it, separated by commas
    #[arg(long, value_name = "ROWS", value_delimiter = ',', value_parser = whole(1..=MAX_VERIFY_ROWS as u32))]
    verify: Vec<u32>,
    /// Sequences of steps that give each its next token, separated by commas
    #[arg(long, value_name = "SEQUENCES", value_delimiter = ',', value_parser = whole(1..=512u32))]
    parallel: Vec<u32>,
    /// Tokens in the KV cache before a test begins, separated by commas
    #[arg(short, long, value_name = "TOKENS", value_delimiter = ',', value_parser = whole(0..=u32::MAX), default_value = "0")]
    depth: Vec<u32>,
    /// Measurements of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = whole(1..=u32::MAX))]
    repetitions: u32,
    /// Leaves out the bandwidth of memory, and so the floor
    #[arg(long)]
    no_bandwidth: bool,
    /// Times each launch on a GPU by its own clock, instead of the tests: where the time of the first chunk
    /// of a prompt and of a decoded token goes
    #[arg(long, conflicts_with_all = ["report", "svg"])]
    profile: bool,
    /// Measures the tests with each optimisation that has a switch off, with none and with all off, and says whether the logits
    /// are equal
    #[arg(long, conflicts_with_all = ["report", "profile"])]
    ablate: bool,
    /// Prints one line of JSON, with every measurement and the file's SHA-256
    #[arg(long, conflicts_with = "report")]
    json: bool,
    /// Prints one Markdown block for an issue: file, machine, figures, digests
    #[arg(long)]
    report: bool,
    /// Also writes a chart
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    interrupt::install()?;
    let tests = tests(args)?;
    // Before anything is measured for nothing. Nothing is taken from a chart that is there.
    let mut chart = args.svg.as_deref().map(open_chart).transpose()?;
    let path = &args.file.file;
    let started = Instant::now();
    let file = model::open(path)?;
    if args.ablate {
        return ablate(&file, &tests, args, &mut chart);
    }
    let trained = capacity::trained_len(&file);
    let capacity = capacity::capacity(&tests, args.load.context, trained)?;
    let mut engine = model::load(&file, path, &args.load, &capacity)?;
    let load_seconds = started.elapsed().as_secs_f64();

    if args.profile {
        return profile(&mut engine, &tests, args);
    }
    let continuation = capacity::has_digest(trained).then(|| continuation(&mut engine)).transpose()?;
    let measured = measure(&mut engine, &tests, args)?;
    let results = Results {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: model_facts::model_facts(&file, args.json || args.report)?,
        device: engine.device().clone(),
        machine: Machine::read(),
        chunk: engine.chunk_rows(),
        load_seconds,
        memory: Memory {
            peak_bytes: measured.peak_bytes,
            file_len_bytes: file.len_bytes(),
            kv_len_bytes: kv_len_bytes(engine.plan(), &tests),
        },
        bandwidth: measured.bandwidth,
        rows: rows(engine.plan(), &tests, measured.seconds),
        continuation,
    };
    match (args.json, args.report) {
        (true, _) => write_json(&results.json()),
        (_, true) => write_stdout(&report::report(&results)),
        _ => write_stdout(&table::table(&results)),
    }?;
    draw(&mut chart, args, &svg::svg(&results))
}

/// `--ablate`. Logits that differ are an error.
fn ablate(file: &GgufFile, tests: &[Test], args: &BenchArgs, chart: &mut Option<File>) -> anyhow::Result<()> {
    let found = ablate::run(file, &args.file.file, &args.load, tests, args.repetitions)?;
    match args.json {
        true => write_json(&ablate::json(&found)),
        false => write_stdout(&ablate::table(&found)),
    }?;
    draw(chart, args, &ablate::svg(&found))?;
    match found.is_equal() {
        Some(false) => bail!("logits differ with something off: this is a bug"),
        _ => Ok(()),
    }
}

/// Writes a chart into its file, if there is one.
fn draw(chart: &mut Option<File>, args: &BenchArgs, svg: &str) -> anyhow::Result<()> {
    let (Some(file), Some(path)) = (chart, &args.svg) else { return Ok(()) };
    let written = file.set_len(0).and_then(|()| file.write_all(svg.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// `--profile`.
fn profile(engine: &mut Engine, tests: &[Test], args: &BenchArgs) -> anyhow::Result<()> {
    let mut bench = Bench::new(engine, tests, &|_| {})?;
    let profiled = tests.iter().map(|&test| bench.profile(test, args.repetitions));
    let profiled = profiled.collect::<Result<Vec<_>, _>>()?;
    match args.json {
        true => write_json(&profile::json(engine.device(), engine.plan(), &profiled)),
        false => write_stdout(&profile::table(engine.device(), engine.plan(), &profiled)),
    }
}

/// A file to write a chart into later.
fn open_chart(path: &Path) -> anyhow::Result<File> {
    let file = File::options().create(true).append(true).open(path);
    file.with_context(|| format!("cannot write the chart {}", path.display()))
}

/// What the options ask for, depth by depth, in the order of the help.
fn tests(args: &BenchArgs) -> anyhow::Result<Vec<Test>> {
    let mut tests = Vec::new();
    for &depth in &args.depth {
        let works = [
            (Work::Prefill, &args.prefill),
            (Work::Decode, &args.decode),
            (Work::Generate, &args.generate),
            (Work::Recorded, &args.recorded),
            (Work::Verify, &args.verify),
            (Work::Parallel, &args.parallel),
        ];
        for (work, lengths) in works {
            let lengths = lengths.iter().filter(|&&tokens| tokens > 0);
            tests.extend(lengths.map(|&tokens| Test { work, tokens, depth }));
        }
    }
    if tests.is_empty() {
        bail!(
            "there is nothing to measure; give --prefill, --decode, --generate, --recorded, --verify or --parallel a number above 0"
        );
    }
    Ok(tests)
}

fn continuation(engine: &mut Engine) -> anyhow::Result<Continuation> {
    let bar = progress_bar("generating", DIGEST_TOKENS.into());
    let continuation = measure::continuation(engine, &|| bar.inc(1))?;
    bar.finish_and_clear();
    Ok(continuation)
}

struct Measured {
    seconds: Vec<Vec<f64>>,
    bandwidth: Result<BandwidthFigure, String>,
    peak_bytes: Option<u64>,
}

/// A round to warm up, and the repetitions.
fn measure(engine: &mut Engine, tests: &[Test], args: &BenchArgs) -> anyhow::Result<Measured> {
    let threads = engine.device().threads;
    let depths = measure::depths(tests);
    let tokens = |depth: &u32| u64::from(*depth) * u64::from(measure::sequences(tests, *depth));
    let filling = depths.iter().map(tokens).sum();
    let bar = progress_bar("filling the cache", filling);
    let mut bench = Bench::new(engine, tests, &|tokens| bar.inc(tokens))?;
    bar.finish_and_clear();
    let bar = progress_bar("measuring", (u64::from(args.repetitions) + 1) * tests.len() as u64);
    bench.round(0, &|| bar.inc(1))?;
    // Everything has run now; what follows takes memory for itself.
    let peak_bytes = machine::peak_memory_bytes();
    let bandwidth = bandwidth(tests, threads, args.no_bandwidth);
    let found = measure::repeat(&mut bench, args.repetitions, bandwidth.as_ref().ok(), &|| bar.inc(1))?;
    bar.finish_and_clear();
    let bandwidth = bandwidth.map(|bandwidth| BandwidthFigure {
        bytes_per_second: found.bandwidths,
        threads: bandwidth.threads(),
        buffer_len_bytes: bandwidth.len_bytes(),
    });
    Ok(Measured { seconds: found.seconds, bandwidth, peak_bytes })
}

/// What measures the bandwidth for as many threads as the device has, or why nothing does.
fn bandwidth(tests: &[Test], threads: Option<u32>, is_left_out: bool) -> Result<Bandwidth, String> {
    if is_left_out {
        return Err("--no-bandwidth leaves it out".into());
    }
    if !tests.iter().any(|test| matches!(test.work, Work::Decode | Work::Generate)) {
        return Err("nothing is decoded".into());
    }
    let threads = threads.ok_or("the device does not compute on the host")?;
    Bandwidth::new(threads, machine::caches_len_bytes(), machine::available_memory_bytes())
}

fn rows(plan: &Plan, tests: &[Test], seconds: Vec<Vec<f64>>) -> Vec<Row> {
    tests.iter().zip(seconds).map(|(&test, seconds)| row(plan, test, seconds)).collect()
}

fn row(plan: &Plan, test: Test, seconds: Vec<f64>) -> Row {
    let tokens = u64::from(test.tokens);
    let (outputs, bytes_per_token) = match test.work {
        Work::Prefill => (1, None),
        // Rows of a step share what is read.
        Work::Recorded | Work::Verify | Work::Parallel => (tokens, None),
        Work::Decode | Work::Generate => {
            let positions = test.depth..test.depth + test.tokens;
            let bytes: u64 = positions.map(|position| plan.bytes_read_per_token(position)).sum();
            (tokens, Some(bytes as f64 / tokens as f64))
        }
    };
    Row { test, seconds, macs: plan.linear_macs(tokens, outputs), bytes_per_token }
}

/// Bytes of the KV pages that the tests write: the longest of each depth.
fn kv_len_bytes(plan: &Plan, tests: &[Test]) -> u64 {
    let pages = |depth| {
        let ends = tests.iter().filter(|test| test.depth == depth).map(Test::end);
        ends.max().unwrap_or(0).div_ceil(PAGE_TOKENS.into())
    };
    let all_pages = |depth| pages(depth) * u64::from(measure::sequences(tests, depth));
    let pages: u64 = measure::depths(tests).into_iter().map(all_pages).sum();
    pages * u64::from(PAGE_TOKENS) * plan.kv_bytes_per_token()
}
