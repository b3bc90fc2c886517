//! What can be typed: commands, options, and their help.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command as Clap, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use unisonic_devices::{DeviceName, FeaturesOff};
use unisonic_planner::passes::{PASSES, check_off};

use crate::cache_dir::CacheDirArg;
use crate::commands::{
    batch, bench, cache, chat, completions, conform, devices, doctor, info, passes, perplexity, pull, run,
    serve, synth, tokenize, top, tune, verify,
};
use crate::numbers::whole;

const EXAMPLES: &str = "\
Examples:
  unisonic pull bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M
  unisonic run model.gguf \"The capital of France is\"
  unisonic run --chat model.gguf \"What is the capital of France?\"
  unisonic chat model.gguf
  unisonic serve model.gguf
  unisonic top
  unisonic run --receipt answer.json model.gguf \"Once upon a time\"
  unisonic verify answer.json --device cuda:0
  unisonic batch questions.jsonl -o answers.jsonl --model model.gguf
  unisonic devices
  unisonic conform --device vulkan
  unisonic info model.gguf
  unisonic tokenize model.gguf \"Hello, world!\"
  unisonic perplexity model.gguf --text book.txt
  unisonic bench model.gguf
  unisonic tune model.gguf --device vulkan
  unisonic synth qwen2.5-0.5b random.gguf

No model at hand? The first of these fetches a small one (105 MB) from the Hugging Face hub and prints where it is; \
`make model` in the repository fetches another without the hub.";

/// Runs language models from GGUF files and gives the same answer everywhere, bit for bit.
#[derive(Parser)]
#[command(version, about, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Says more on stderr; twice: still more
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
}

#[derive(Subcommand)]
pub enum Command {
    Run(Box<run::RunArgs>),
    Chat(Box<chat::ChatArgs>),
    Serve(Box<serve::ServeArgs>),
    Top(top::TopArgs),
    Verify(verify::VerifyArgs),
    Batch(batch::BatchArgs),
    Info(info::InfoArgs),
    Devices(devices::DevicesArgs),
    Conform(conform::ConformArgs),
    Doctor(doctor::DoctorArgs),
    Tokenize(tokenize::TokenizeArgs),
    Perplexity(perplexity::PerplexityArgs),
    Bench(bench::BenchArgs),
    Tune(tune::TuneArgs),
    Passes(passes::PassesArgs),
    Synth(synth::SynthArgs),
    Cache(cache::CacheArgs),
    Completions(completions::CompletionsArgs),
    Pull(pull::PullArgs),
}

/// The model file of every command.
#[derive(Args)]
pub struct FileArg {
    /// Model file in GGUF format; the first one of a sharded set
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// How to load a model. No choice here but `--diagnostic` can change a bit of the result.
#[derive(Args, Clone)]
#[command(next_help_heading = "Loading")]
pub struct LoadArgs {
    /// What the model runs on: cpu, cuda:N, vulkan:N, or, slow and for comparisons, cpu-scalar and
    /// interpreter. `unisonic devices` says what there is
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: DeviceName,
    /// Threads of a CPU device [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = whole(1..=unisonic_devices::MAX_THREADS as u32))]
    pub threads: Option<u32>,
    /// Longest sequence in tokens, prompt and answer together [default: what the model was made for, at most
    /// 8192]
    #[arg(long, value_name = "TOKENS", value_parser = whole(1..=u32::MAX))]
    pub context: Option<u32>,
    /// Most memory of a GPU that may be taken, such as 8GiB [default: what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_limit: Option<u64>,
    /// Tokens of a prompt that are run at a time [default: 64, on a GPU 1024]
    #[arg(long, value_name = "TOKENS", value_parser = whole(1..=u32::MAX))]
    pub chunk: Option<u32>,
    /// Switches an optional pass of the planner off: speed changes, results do not. May be repeated
    #[arg(long = "pass", value_name = "NAME=off", value_parser = parse_pass_off)]
    pub passes_off: Vec<String>,
    /// Does without something that a GPU has, such as dependent-launches: speed changes, results do not. May
    /// be repeated
    #[arg(long = "feature", value_name = "NAME=off", value_parser = parse_feature_off)]
    pub features_off: Vec<String>,
    /// Runs no pass of the planner after this one
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PASSES.iter().map(|pass| pass.name)))]
    pub stop_after: Option<String>,
    /// Writes the graph after each pass of the planner, and the plan, as text files into a folder
    #[arg(long, value_name = "DIR")]
    pub dump_ir: Option<PathBuf>,
    /// Runs another arithmetic than the product's, for comparisons with other runtimes
    #[arg(long, value_name = "NAME")]
    pub diagnostic: Option<Diagnostic>,
    #[command(flatten)]
    pub cache: CacheDirArg,
}

impl LoadArgs {
    /// Tokens of a prompt that are run at a time.
    pub fn chunk_rows(&self) -> u32 {
        let default = match self.device {
            DeviceName::Cuda(_) | DeviceName::Vulkan(_) => 1024,
            DeviceName::Cpu | DeviceName::CpuScalar | DeviceName::Interpreter => 64,
        };
        self.chunk.unwrap_or(default)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Diagnostic {
    /// Keeps the values of attention exact instead of in 8 bits
    ExactV,
}

/// NAME of `NAME=off`.
fn name_off<'a>(text: &'a str, what: &str) -> Result<&'a str, String> {
    text.strip_suffix("=off").ok_or_else(|| format!("expected NAME=off; {what} are on unless switched off"))
}

fn parse_pass_off(text: &str) -> Result<String, String> {
    let name = name_off(text, "passes")?;
    check_off(name).map_err(|error| error.to_string())?;
    Ok(name.to_owned())
}

fn parse_feature_off(text: &str) -> Result<String, String> {
    let name = name_off(text, "features")?;
    FeaturesOff::named(&[name.to_owned()]).map_err(|error| error.to_string())?;
    Ok(name.to_owned())
}

const SIZE: &str = "expected a number above 0 with KiB, MiB, GiB (powers of 1024) or KB, MB, GB (powers of 1000), such as \
8GiB or 500MB";

/// Bytes, as a number with or without KiB, MiB, GiB (or KB, MB, GB, powers of ten).
pub fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("", 1),
    ];
    let unit = UNITS.iter().find_map(|&(unit, bytes)| Some((text.strip_suffix(unit)?.trim(), bytes)));
    let bytes = unit.and_then(|(number, bytes)| number.parse::<u64>().ok()?.checked_mul(bytes));
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| SIZE.to_owned())
}

/// Token ids of which there is at least one.
fn parse_some_ids(text: &str) -> Result<Ids, String> {
    let ids: Ids = text.parse()?;
    if ids.0.is_empty() { Err("expected at least one token id, such as 1,2,3".into()) } else { Ok(ids) }
}

/// Token ids, such as `1,2,3` or `1 2 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(pub Vec<u32>);

impl FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(|c: char| c == ',' || c.is_ascii_whitespace())
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().map_err(|_| format!("`{word}` is not a token id (a number such as 42)")))
            .collect::<Result<_, _>>()
            .map(Ids)
    }
}

/// Token ids in the place of a text.
#[derive(Args)]
#[group(skip)]
pub struct IdsArgs {
    /// Token ids instead of a text, separated by commas; nothing is added to them
    #[arg(long, value_name = "IDS", value_parser = parse_some_ids, conflicts_with = "ids_file")]
    pub ids: Option<Ids>,
    /// Reads token ids from a file, separated by commas or white space
    #[arg(long, value_name = "PATH")]
    pub ids_file: Option<PathBuf>,
}

impl IdsArgs {
    /// The ids, if any were given.
    pub fn read(&self) -> anyhow::Result<Option<Vec<u32>>> {
        let Some(path) = &self.ids_file else { return Ok(self.ids.as_ref().map(|Ids(ids)| ids.clone())) };
        let cannot_read = || format!("cannot read token ids from {}", path.display());
        let text = std::fs::read_to_string(path).with_context(cannot_read)?;
        let Ids(ids) = text.parse().map_err(anyhow::Error::msg).with_context(cannot_read)?;
        Ok(Some(ids))
    }
}

/// The command line. What begins like a negative number is the value of an option, so that it is the option that says
/// which numbers it takes.
fn command() -> Clap {
    fn takes_negative(command: Clap) -> Clap {
        let command = command.mut_args(|arg| {
            let takes_values = arg.get_action().takes_values() && !arg.is_positional();
            if takes_values { arg.allow_negative_numbers(true) } else { arg }
        });
        command.mut_subcommands(takes_negative)
    }
    takes_negative(Cli::command())
}

/// Parses the command line; prints help, or what is wrong with it, where that is the answer.
pub fn parse() -> Result<Cli, ExitCode> {
    let mut command = command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed =
        parsed.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command)));
    parsed.map_err(|error| {
        // A closed stdout or stderr leaves nobody to tell.
        let _ = error.print();
        if lacks_file(&error) {
            crate::say(format_args!(
                "\nFILE is a model in GGUF format; `unisonic pull` or `make model` in the repository fetches one."
            ));
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

fn lacks_file(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::MissingRequiredArgument
        && matches!(error.get(ContextKind::InvalidArg),
            Some(ContextValue::Strings(names)) if names.iter().any(|name| name == "<FILE>"))
}

/// Log lines on stderr: warnings, or more with `-v`.
pub fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    lines.with_ansi(colours).without_time().init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    /// Eighty columns are what a terminal has at least.
    #[test]
    fn example_lines_do_not_wrap() {
        for command in command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  ") && line.contains("unisonic")) {
                assert!(line.chars().count() < 80, "{line}");
            }
        }
    }

    #[test]
    fn a_negative_number_is_a_value() {
        for option in ["--temperature", "--top-k", "--seed", "--threads", "--context", "--memory-limit"] {
            let line = ["unisonic", "run", "m", "hi", "--temperature", "1", option, "-1"];
            let line =
                if option == "--temperature" { [&line[..4], &line[6..]].concat() } else { line.to_vec() };
            let error = command().try_get_matches_from(line).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{error}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("8GiB", 8 << 30), ("500 MB", 500_000_000), ("64KiB", 65536), ("7", 7)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for wrong in ["", "GiB", "0", "-1MB", "1.5GiB", "99999999999GiB", "8gib", "8G", "8 giga"] {
            assert!(parse_size(wrong).unwrap_err().contains("8GiB"), "{wrong}");
        }
    }

    #[test]
    fn ids_are_separated_by_commas_or_spaces() {
        assert_eq!("1, 2\n3,".parse(), Ok(Ids(vec![1, 2, 3])));
        assert_eq!("".parse(), Ok(Ids(vec![])));
        assert!("1,x".parse::<Ids>().unwrap_err().contains("`x`"));
        assert!("-1".parse::<Ids>().is_err());
        assert!("4294967296".parse::<Ids>().is_err());
    }

    #[test]
    fn optional_passes_are_switched_off_by_name() {
        assert_eq!(parse_pass_off("fuse-gate-quantize=off"), Ok("fuse-gate-quantize".into()));
        for wrong in
            ["fuse-gate-quantize", "fuse-gate-quantize=on", "no-such=off", "quantize-heads=off", "=off"]
        {
            assert!(parse_pass_off(wrong).is_err(), "{wrong}");
        }
    }
}
