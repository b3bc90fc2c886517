//! One file or folder a command.

pub mod batch;
pub mod bench;
pub mod cache;
pub mod chat;
pub mod completions;
pub mod conform;
pub mod devices;
pub mod doctor;
pub mod info;
pub mod passes;
pub mod perplexity;
pub mod pull;
pub mod run;
pub mod serve;
pub mod synth;
pub mod tokenize;
pub mod top;
pub mod tune;
pub mod verify;

use std::process::ExitCode;

use crate::cli::Command;

/// Runs a command; the code is for an end that is neither success nor error.
pub fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Top(args) => top::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Batch(args) => batch::run(&args),
        Command::Info(args) => info::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Devices(args) => devices::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Conform(args) => conform::run(&args),
        Command::Tokenize(args) => tokenize::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Perplexity(args) => perplexity::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Passes(args) => passes::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Tune(args) => tune::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Synth(args) => synth::run(&args),
        Command::Completions(args) => completions::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Cache(args) => cache::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Pull(args) => pull::run(&args),
    }
}
