//! The command-line program: `unisonic run model.gguf "prompt"`.
//!
//! [`cli`] says what can be typed; each command is a file of [`commands`]. What ends on stdout is the result
//! and nothing else; progress, figures and errors go to stderr. Exit codes: 0 done, 1 something failed, 2 the
//! command line is wrong, 3 a receipt differs from what was recomputed, 130 interrupted.
//!
//! Start reading at [`commands::run`].

mod atomic;
mod cache_dir;
mod chat_template;
mod cli;
mod commands;
mod constraint;
mod digest;
mod interrupt;
mod model;
mod numbers;
mod output;
mod receipt;
mod sampling;
mod sessions;
mod speculation;
mod text;
mod tuning_tables;

use std::process::ExitCode;

use output::{StdoutClosed, say};
use unisonic_engine::chat::ChatError;

fn main() -> ExitCode {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    cli::start_logging(cli.verbose);
    match commands::dispatch(cli.command) {
        Ok(code) => code,
        // Whoever read the output has enough of it: no error.
        Err(error) if error.is::<StdoutClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: {error:#}"));
            // Only --date gives a date, and only the chat template's renderer reads it.
            let is_usage = matches!(error.downcast_ref(), Some(ChatError::Date { .. }));
            if is_usage { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
