//! `unisonic completions`: a script by which a shell completes commands and options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::write_stdout;

const DETAILS: &str = "\
Where the script goes, for your account:
  bash (needs the package bash-completion)
    unisonic completions bash \\
      > ~/.local/share/bash-completion/completions/unisonic
  zsh (with `fpath+=(~/.zfunc); autoload -Uz compinit; compinit` in ~/.zshrc)
    unisonic completions zsh > ~/.zfunc/_unisonic
  fish
    unisonic completions fish > ~/.config/fish/completions/unisonic.fish
  elvish
    unisonic completions elvish >> ~/.config/elvish/rc.elv
  powershell
    unisonic completions powershell >> $PROFILE

Make the folder first if there is none; new shells complete.";

/// Prints a script that completes commands and options in a shell
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    write_stdout(&String::from_utf8(script)?)
}
