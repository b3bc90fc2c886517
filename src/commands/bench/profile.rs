//! `bench --profile`: where the time of a step on a GPU goes, launch by launch.

use std::fmt::Write;

use serde_json::{Value as Json, json};
use unisonic_core::plan::{DeviceInfo, LaunchProfile, Plan, RunProfile};

use super::measure::Test;
use super::results::digits;
use super::stats::Summary;
use crate::output::aligned;

/// What a test's step takes. A prefill is its first chunk, a decode its first token.
pub struct Profiled {
    /// The test.
    pub test: Test,
    /// Rows of the step.
    pub rows: u32,
    /// Seconds of the step as the host sees it, one a repetition.
    pub seconds: Vec<f64>,
    /// As the device sees it.
    pub run: RunProfile,
}

/// Launches of the same kernel for the same step of different layers.
struct Group<'a> {
    kernel: &'a str,
    step: &'a str,
    launches: Vec<&'a LaunchProfile>,
}

impl Group<'_> {
    fn sum(&self, of: impl Fn(&LaunchProfile) -> u64) -> u64 {
        self.launches.iter().map(|launch| of(launch)).sum()
    }

    fn total_us(&self) -> f64 {
        self.launches.iter().map(|launch| us(launch)).sum()
    }

    fn median_us(&self) -> f64 {
        Summary::of(self.launches.iter().map(|launch| us(launch))).median
    }
}

/// The median of a launch.
fn us(launch: &LaunchProfile) -> f64 {
    median_us(&launch.ns)
}

fn median_us(ns: &[u64]) -> f64 {
    Summary::of(ns.iter().map(|&ns| ns as f64 * 1e-3)).median
}

/// The label of a step without the number of its layer.
fn without_layer(label: &str) -> &str {
    let of_layer = label.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    of_layer.map_or(label, |(_, step)| step)
}

/// The groups of a step, the one that takes most first.
fn groups<'a>(plan: &'a Plan, run: &'a RunProfile) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = vec![];
    for launch in &run.launches {
        let step = plan.steps.get(launch.step as usize).map_or("", |step| without_layer(&step.label));
        match groups.iter_mut().find(|group| (group.kernel, group.step) == (&*launch.kernel, step)) {
            Some(group) => group.launches.push(launch),
            None => groups.push(Group { kernel: &launch.kernel, step, launches: vec![launch] }),
        }
    }
    groups.sort_by(|a, b| b.total_us().total_cmp(&a.total_us()));
    groups
}

const HEAD: [&str; 9] =
    ["kernel", "step", "launches", "us", "us/launch", "workgroups", "MB", "GB/s", "GMAC/s"];

/// A table for each test, and what its columns mean.
pub fn table(device: &DeviceInfo, plan: &Plan, profiled: &[Profiled]) -> String {
    let mut out = format!("device  {}\n", device.name);
    for Profiled { test, rows, seconds, run } in profiled {
        let groups = groups(plan, run);
        let sum_us: f64 = groups.iter().map(Group::total_us).sum();
        let Test { work, tokens, depth } = test;
        let plural = if *rows == 1 { "" } else { "s" };
        let _ = writeln!(out, "\n{} {tokens} at depth {depth}, a step of {rows} row{plural}", work.as_str());
        let head = HEAD.iter().chain(&["share"]);
        let mut lines = vec![head.map(|&name| name.to_owned()).collect::<Vec<_>>()];
        lines.extend(groups.iter().map(|group| cells(group, sum_us)));
        out.push_str(&aligned(&lines));
        let host_us = Summary::of(seconds.iter().map(|seconds| seconds * 1e6)).median;
        let _ = writeln!(
            out,
            "launches one by one {} us; as they run on the device {} us; with the host {} us; an empty stamp {} us",
            digits(sum_us),
            digits(median_us(&run.whole_ns)),
            digits(host_us),
            digits(median_us(&run.empty_ns)),
        );
    }
    let repetitions = profiled.first().map_or(0, |profiled| profiled.seconds.len());
    let _ = writeln!(
        out,
        "\nMedians of {repetitions} repetitions. MB: what the launches have to move, each operand once; GMAC/s: \
         multiplications of linear layers; share: of all launches one by one. Each launch has the time of its stamp in \
         it, and begins when the one before it has ended, which launches without stamps may not."
    );
    out
}

fn cells(group: &Group<'_>, sum_us: f64) -> Vec<String> {
    let total_us = group.total_us();
    let bytes = group.sum(|launch| launch.bytes) as f64;
    let macs = group.sum(|launch| launch.macs) as f64;
    let workgroups = group.launches.first().map_or(0, |launch| launch.workgroups);
    vec![
        group.kernel.to_owned(),
        group.step.to_owned(),
        group.launches.len().to_string(),
        digits(total_us),
        digits(group.median_us()),
        workgroups.to_string(),
        digits(bytes * 1e-6),
        digits(bytes * 1e-3 / total_us),
        if macs > 0.0 { digits(macs * 1e-3 / total_us) } else { String::new() },
        format!("{:.1} %", total_us / sum_us * 100.0),
    ]
}

/// One line with every launch.
pub fn json(device: &DeviceInfo, plan: &Plan, profiled: &[Profiled]) -> Json {
    let tests = profiled.iter().map(|Profiled { test, rows, seconds, run }| {
        let groups = groups(plan, run);
        let of_group = |group: &Group<'_>| {
            json!({
                "kernel": group.kernel,
                "step": group.step,
                "launches": group.launches.len(),
                "us": group.total_us(),
                "us_per_launch": group.median_us(),
                "bytes": group.sum(|launch| launch.bytes),
                "macs": group.sum(|launch| launch.macs),
            })
        };
        let of_launch = |launch: &LaunchProfile| {
            json!({
                "kernel": launch.kernel,
                "step": plan.steps.get(launch.step as usize).map(|step| &step.label),
                "workgroups": launch.workgroups,
                "bytes": launch.bytes,
                "macs": launch.macs,
                "ns": launch.ns,
            })
        };
        json!({
            "work": test.work.as_str(),
            "tokens": test.tokens,
            "depth": test.depth,
            "rows": rows,
            "seconds": seconds,
            "whole_ns": run.whole_ns,
            "empty_ns": run.empty_ns,
            "sum_us": groups.iter().map(Group::total_us).sum::<f64>(),
            "groups": groups.iter().map(of_group).collect::<Vec<_>>(),
            "launches": run.launches.iter().map(of_launch).collect::<Vec<_>>(),
        })
    });
    json!({ "device": device.name, "profiles": tests.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use unisonic_core::plan::{BufferId, Op, Step};

    use super::super::measure::Work;
    use super::*;

    fn plan() -> Plan {
        let op = Op::Add { a: BufferId(0), b: BufferId(0), out: BufferId(0) };
        let steps = ["blk.0.ffn_down", "blk.12.ffn_down", "output"];
        Plan {
            architecture: "test".into(),
            vocab_len: 1,
            context_len: 1,
            weights: vec![],
            buffers: vec![],
            rope_tables: vec![],
            kv_layers: vec![],
            input: None,
            steps: steps.map(|label| Step { label: label.into(), op: op.clone() }).into(),
            logits: BufferId(0),
        }
    }

    fn profiled() -> Profiled {
        let launch = |kernel: &str, step, bytes, macs, ns: [u64; 3]| LaunchProfile {
            kernel: kernel.into(),
            step,
            workgroups: 10 * (step + 1),
            bytes,
            macs,
            ns: ns.into(),
        };
        Profiled {
            test: Test { work: Work::Decode, tokens: 1, depth: 8 },
            rows: 1,
            seconds: vec![30e-6, 20e-6, 25e-6],
            run: RunProfile {
                launches: vec![
                    launch("linear", 0, 3000, 6000, [2000, 1000, 9000]),
                    launch("linear", 1, 3000, 6000, [4000, 4000, 4000]),
                    launch("quantize", 1, 500, 0, [500, 500, 500]),
                    launch("linear", 2, 9000, 18000, [1500, 1500, 1600]),
                ],
                whole_ns: vec![7000, 6000, 8000],
                empty_ns: vec![100, 200, 300],
            },
        }
    }

    #[test]
    fn launches_are_grouped_by_kernel_and_step() {
        let device = DeviceInfo { id: "x".into(), name: "A GPU".into(), profile: "u1".into(), threads: None };
        expect![[r#"
            device  A GPU

            decode 1 at depth 8, a step of 1 row
            kernel        step  launches     us  us/launch  workgroups     MB   GB/s  GMAC/s   share
            linear    ffn_down         2  6.000      3.000          10  0.006  1.000   2.000  75.0 %
            linear      output         1  1.500      1.500          30  0.009  6.000   12.00  18.8 %
            quantize  ffn_down         1  0.500      0.500          20  0.001  1.000           6.2 %
            launches one by one 8.000 us; as they run on the device 7.000 us; with the host 25.00 us; an empty stamp 0.200 us

            Medians of 3 repetitions. MB: what the launches have to move, each operand once; GMAC/s: multiplications of linear layers; share: of all launches one by one. Each launch has the time of its stamp in it, and begins when the one before it has ended, which launches without stamps may not.
        "#]].assert_eq(&table(&device, &plan(), &[profiled()]));
        let json = json(&device, &plan(), &[profiled()]);
        let profile = &json["profiles"][0];
        assert_eq!(profile["sum_us"], 8.0);
        assert_eq!(profile["groups"][0]["us_per_launch"], 3.0);
        assert_eq!(profile["launches"][1]["step"], "blk.12.ffn_down");
    }
}
