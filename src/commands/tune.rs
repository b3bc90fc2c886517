//! `unisonic tune`: which forms of a model's kernels are fast on a device.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use unisonic_core::launch::Hardware;
use unisonic_core::plan::Device;
use unisonic_engine::tune::{TableDevice, TuneOptions, TuneProgress, TuneReport, TuningTable, tune};
use unisonic_planner::tune::Tuning;

use crate::atomic;
use crate::cli::{FileArg, LoadArgs};
use crate::model::{self, Capacity};
use crate::output::{progress_bar, say, write_json, write_stdout};
use crate::{interrupt, tuning_tables};

const DETAILS: &str = "\
A GPU runs a linear layer or an attention in one of several forms. Which is chosen changes speed and never a result; \
without this command it is chosen by rules. It measures the forms on the device, with the model's sizes, and keeps the \
fastest in the cache, where run, batch and bench find them. What was measured before is not measured again.

The table of a device can be carried to another computer with the same device and driver: it is text, one line a kernel.

Examples:
  unisonic tune model.gguf --device cuda
  unisonic tune model.gguf --device vulkan --budget 2m --export table.jsonl
  unisonic tune model.gguf --device vulkan --import table.jsonl
  unisonic run model.gguf \"Hello\" --device cuda --feature tuning-table=off";

/// Measures which forms of a model's kernels are fast on a GPU
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct TuneArgs {
    #[command(flatten)]
    file: FileArg,
    /// How long to measure, such as 30s or 5m; 0s measures nothing
    #[arg(long, value_name = "TIME", value_parser = parse_budget, default_value = "30s")]
    budget: Duration,
    /// Writes the table of the device to a file
    #[arg(long, value_name = "PATH")]
    export: Option<PathBuf>,
    /// Takes over a table of the same device, driver and version first
    #[arg(long, value_name = "PATH")]
    import: Option<PathBuf>,
    /// Prints one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
}

/// Whole milliseconds, seconds or minutes.
fn parse_budget(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 3] = [("ms", 1), ("s", 1000), ("m", 60_000)];
    let unit = UNITS.iter().find_map(|&(unit, ms)| Some((text.strip_suffix(unit)?, ms)));
    let ms = unit.and_then(|(number, ms)| number.parse::<u64>().ok()?.checked_mul(ms));
    ms.map(Duration::from_millis)
        .ok_or_else(|| "expected a whole number with ms, s or m, such as 30s".to_owned())
}

/// Runs the command.
pub fn run(args: &TuneArgs) -> anyhow::Result<()> {
    interrupt::install()?;
    args.export.as_deref().map_or(Ok(()), atomic::check)?;
    let (device, tuning) = model::open_device(&args.load)?;
    let of = TableDevice::of(&*device);
    let cache = args.load.cache.open();
    let mut table = cache.as_deref().and_then(|cache| tuning_tables::kept(cache, &of));
    let table = table.get_or_insert_with(|| TuningTable::new(of.clone()));
    if let Some(path) = &args.import {
        table.merge(import(path, &of)?);
    }
    let report = match device.hardware() {
        Some(hardware) => measure(args, &*device, (&tuning, &hardware), table)?,
        None => {
            // Before it is said that there is nothing to do for it.
            model::open(&args.file.file)?;
            TuneReport::default()
        }
    };
    match (&cache, table.kernels.is_empty()) {
        (_, true) => {}
        (Some(cache), _) => tuning_tables::keep(cache, table),
        (None, _) if args.export.is_none() => {
            say(format_args!("note: there is no cache that could keep the table, and no --export"));
        }
        (None, _) => {}
    }
    if let Some(path) = &args.export {
        atomic::write(path, table.to_text().as_bytes())?;
    }
    let has_rows = device.hardware().is_some();
    match args.json {
        true => write_json(&as_json(table, &report, has_rows)),
        false => write_stdout(&as_text(table, &report, has_rows)),
    }
}

fn import(path: &Path, device: &TableDevice) -> anyhow::Result<TuningTable> {
    let cannot = || format!("cannot take over {}", path.display());
    let text = std::fs::read_to_string(path).with_context(cannot)?;
    TuningTable::parse(&text, device).with_context(cannot)
}

fn measure(
    args: &TuneArgs,
    device: &dyn Device,
    (tuning, hardware): (&Tuning, &Hardware),
    table: &mut TuningTable,
) -> anyhow::Result<TuneReport> {
    let path = &args.file.file;
    let file = model::open(path)?;
    let options = TuneOptions { budget: args.budget, ..TuneOptions::default() };
    let capacity = Capacity { context_len: args.load.context, sequences: 1, max_outputs: 64 };
    let mut engine = model::load_on(device, &file, path, &args.load, &capacity, &|_| {})?;
    let bar = progress_bar("measuring", 0);
    let mut progress = |TuneProgress { step_rows, kernels, done, total }: TuneProgress| {
        bar.set_message(format!("{kernels} kernels of a step of {step_rows} rows"));
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    };
    let clock = model::clock();
    let report = tune(&mut engine, (tuning, hardware), table, &options, &clock, &mut progress);
    bar.finish_and_clear();
    report.with_context(|| format!("cannot measure the kernels of {}", path.display()))
}

fn as_json(table: &TuningTable, report: &TuneReport, has_rows: bool) -> serde_json::Value {
    let steps = report.steps.iter().map(|step| {
        json!({
            "rows": step.rows,
            "kernels": step.kernels,
            "changed": step.changed,
            "rules_ns": step.rules_ns,
            "tuned_ns": step.tuned_ns,
        })
    });
    json!({
        "device": table.device.name,
        "driver": table.device.driver,
        "has_rows": has_rows,
        "measured": report.measured,
        "known": report.known,
        "unfinished": report.unfinished,
        "left_out": report.left_out,
        "kernels": table.kernels.len(),
        "steps": steps.collect::<Vec<_>>(),
    })
}

fn as_text(table: &TuningTable, report: &TuneReport, has_rows: bool) -> String {
    let name = &table.device.name;
    if !has_rows {
        return format!(
            "{name} has no tuning rows: it runs a model's steps without kernels; nothing was measured\n"
        );
    }
    let TuneReport { measured, known, unfinished, left_out, steps } = report;
    let mut out = format!("{name}: measured {measured} kernels; {known} were known\n");
    for step in steps {
        let us = |ns: u64| ns as f64 * 1e-3;
        let plural = if step.rows == 1 { "" } else { "s" };
        out += &format!(
            "a step of {} row{plural}: {:.1} us by the rules, {:.1} us with {} of {} kernels in another form\n",
            step.rows,
            us(step.rules_ns),
            us(step.tuned_ns),
            step.changed,
            step.kernels
        );
    }
    if *unfinished > 0 || !left_out.is_empty() {
        let rows: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        let rows = if rows.is_empty() {
            String::new()
        } else {
            format!("; none for steps of {} rows", rows.join(", "))
        };
        out += &format!(
            "the budget ended with forms of {unfinished} kernels untried{rows}; run it again, or with a longer --budget\n"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_have_units() {
        let ms = |text| parse_budget(text).map(|budget| budget.as_millis());
        assert_eq!([ms("30s"), ms("5m"), ms("250ms"), ms("0s")], [Ok(30_000), Ok(300_000), Ok(250), Ok(0)]);
        for wrong in ["", "s", "30", "-1s", "1.5s", "1h", "99999999999999999999s"] {
            assert!(parse_budget(wrong).is_err(), "{wrong}");
        }
    }
}
