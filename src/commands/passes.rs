//! `unisonic passes`: what the planner does to a model, and a failing pass once more.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use unisonic_planner::launches::LAUNCH_PASSES;
use unisonic_planner::passes::{PASSES, replay};

use crate::output::{write_json, write_stdout};

const DETAILS: &str = "\
Optional passes are switched off with `--pass NAME=off`, for any command that loads a model: speed changes, results do \
not. `--dump-ir DIR` writes what each made of the graph, `--stop-after NAME` runs no later one.

A pass that fails leaves a file; --replay runs that pass alone on the graph in it.

Examples:
  unisonic passes
  unisonic passes --replay unisonic-crash-fuse-heads.txt";

/// Lists the passes of the planner
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct PassesArgs {
    /// Runs the pass of a crash file on its graph, and prints the graph after it
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    replay: Option<PathBuf>,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

/// A line of the list.
struct Line {
    name: &'static str,
    of: &'static str,
    required: bool,
    after: &'static [&'static str],
    doc: &'static str,
}

/// Runs the command.
pub fn run(args: &PassesArgs) -> anyhow::Result<()> {
    match (&args.replay, args.json) {
        (Some(path), _) => replayed(path),
        (None, true) => {
            write_json(&json!({ "passes": lines().map(|line| as_json(&line)).collect::<Vec<_>>() }))
        }
        (None, false) => write_stdout(&lines().map(|line| text(&line)).collect::<String>()),
    }
}

fn lines() -> impl Iterator<Item = Line> {
    let of_graph = PASSES.iter().map(|pass| Line {
        name: pass.name,
        of: "graph",
        required: pass.required,
        after: pass.after,
        doc: pass.doc,
    });
    let of_launches = LAUNCH_PASSES.iter().map(|pass| Line {
        name: pass.name,
        of: "launches",
        required: false,
        after: &[],
        doc: pass.doc,
    });
    of_graph.chain(of_launches)
}

fn text(line: &Line) -> String {
    let required = if line.required { "required" } else { "optional" };
    format!("{:<8}  {:<20}  {required}  {}\n", line.of, line.name, line.doc)
}

fn as_json(line: &Line) -> serde_json::Value {
    json!({
        "name": line.name,
        "of": line.of,
        "required": line.required,
        "after": line.after,
        "doc": line.doc,
    })
}

fn replayed(path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let graph = replay(&text).with_context(|| format!("cannot replay {}", path.display()))?;
    write_stdout(&graph.to_string())
}
