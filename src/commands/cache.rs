//! `unisonic cache`: what is kept on disk, and an end to it.

use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde_json::json;
use unisonic_cache::{Cache, Listed};

use crate::cache_dir::CacheDirArg;
use crate::output::{aligned, bytes, write_json, write_stdout};

const EXAMPLES: &str = "\
Examples:
  unisonic cache ls
  unisonic cache clear

Nothing in the cache is needed: what is missing is made again.";

/// Shows or clears what is kept on disk for the next start, such as compiled kernels
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CacheArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Lists what is kept, what was used last first
    Ls {
        /// Prints one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        dir: CacheDirArg,
    },
    /// Removes all that is kept
    Clear {
        #[command(flatten)]
        dir: CacheDirArg,
    },
}

/// Runs the command.
pub fn run(args: &CacheArgs) -> anyhow::Result<()> {
    let (Action::Ls { dir, .. } | Action::Clear { dir }) = &args.action;
    let none = || anyhow!("there is no cache: give its folder with --cache-dir");
    let cache = dir.open().ok_or_else(none)?;
    match &args.action {
        Action::Ls { json, .. } => list(&cache, *json),
        Action::Clear { .. } => {
            let cleared = cache.clear().with_context(|| cannot("clear", &cache))?;
            let (entries, freed) = (cleared.entries, bytes(cleared.len_bytes));
            write_stdout(&format!("removed {entries} entries, {freed}, of {}\n", cache.folder().display()))
        }
    }
}

fn cannot(act: &str, cache: &Cache) -> String {
    format!("cannot {act} the cache {}", cache.folder().display())
}

fn list(cache: &Cache, as_json: bool) -> anyhow::Result<()> {
    let entries = cache.list().with_context(|| cannot("read", cache))?;
    let folder = cache.folder().display();
    if as_json {
        let of_entry = |entry: &Listed| {
            json!({
                "kind": entry.kind.name(),
                "label": entry.label,
                "bytes": entry.len_bytes,
                "unused_seconds": unused(entry).as_secs(),
            })
        };
        let entries: Vec<_> = entries.iter().map(of_entry).collect();
        return write_json(&json!({ "folder": folder.to_string(), "entries": entries }));
    }
    let total = bytes(entries.iter().map(|entry| entry.len_bytes).sum());
    if !cache.folder().exists() {
        return write_stdout(&format!("{folder}: 0 entries; there is no such folder\n"));
    }
    let lines: Vec<Vec<String>> = entries.iter().map(line).collect();
    write_stdout(&format!("{folder}: {} entries, {total}\n{}", entries.len(), aligned(&lines)))
}

fn line(entry: &Listed) -> Vec<String> {
    let kind = entry.kind.name().to_owned();
    vec![kind, bytes(entry.len_bytes), age(unused(entry)), entry.label.clone()]
}

/// Since when it was not used.
fn unused(entry: &Listed) -> Duration {
    entry.used.elapsed().unwrap_or_default()
}

/// A time in the largest unit that it has one of.
fn age(time: Duration) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "days"), (3600, "hours"), (60, "minutes")];
    let seconds = time.as_secs();
    match UNITS.into_iter().find(|&(unit, _)| seconds >= 2 * unit) {
        Some((unit, name)) => format!("{} {name} ago", seconds / unit),
        None => format!("{seconds} seconds ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_units() {
        let of = |seconds| age(Duration::from_secs(seconds));
        assert_eq!([of(0), of(119)], ["0 seconds ago", "119 seconds ago"]);
        assert_eq!([of(120), of(7200), of(200_000)], ["2 minutes ago", "2 hours ago", "2 days ago"]);
    }
}
