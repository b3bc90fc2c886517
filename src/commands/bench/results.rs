//! What a run of the benchmark found, and the figures that follow from it.

use serde_json::{Value as Json, json};

use super::machine::Machine;
use super::measure::{Continuation, Test};
use super::stats::Summary;

/// Everything that the outputs show.
pub struct Results {
    /// Version of this program.
    pub version: String,
    /// What ran.
    pub model: Model,
    /// What it ran on.
    pub device: unisonic_core::plan::DeviceInfo,
    /// The host.
    pub machine: Machine,
    /// Tokens of a prompt that were run at a time.
    pub chunk: u32,
    /// From the file to a loaded model.
    pub load_seconds: f64,
    /// Where the memory went.
    pub memory: Memory,
    /// How fast memory is, or why that was not measured.
    pub bandwidth: Result<BandwidthFigure, String>,
    /// Measurements.
    pub rows: Vec<Row>,
    /// What two machines can compare; none where the model was made for shorter texts.
    pub continuation: Option<Continuation>,
}

/// The model.
pub struct Model {
    /// `general.name`, where the file has one.
    pub name: Option<String>,
    /// `general.architecture`.
    pub architecture: String,
    /// Tensor types with the number of tensors of each, such as `F32 61, Q4_1 210`.
    pub types: String,
    /// Elements of all tensors.
    pub parameters: u64,
    /// All shards.
    pub files: Vec<ModelFile>,
}

/// A file of the model.
pub struct ModelFile {
    /// Without its folder.
    pub name: String,
    /// Length.
    pub len_bytes: u64,
    /// Digest, where it was asked for.
    pub sha256: Option<String>,
}

/// Memory of the process.
pub struct Memory {
    /// Most that was ever resident, before the bandwidth was measured; none where the system does not tell.
    pub peak_bytes: Option<u64>,
    /// Length of the model's files.
    pub file_len_bytes: u64,
    /// Keys and values of all tokens that the tests run.
    pub kv_len_bytes: u64,
}

/// Memory bandwidth.
pub struct BandwidthFigure {
    /// Of each round.
    pub bytes_per_second: Vec<f64>,
    /// Threads that read.
    pub threads: usize,
    /// What they read.
    pub buffer_len_bytes: u64,
}

impl BandwidthFigure {
    /// Median of the rounds.
    pub fn median(&self) -> f64 {
        Summary::of(self.bytes_per_second.iter().copied()).median
    }
}

/// Measurements of a test.
pub struct Row {
    /// The test.
    pub test: Test,
    /// Of each repetition, in their order.
    pub seconds: Vec<f64>,
    /// Multiplications of linear layers in the whole test.
    pub macs: u64,
    /// Bytes that a token of a decode test has to read, averaged over its tokens; none for prefill, where many tokens
    /// share what is read.
    pub bytes_per_token: Option<f64>,
}

impl Row {
    /// Speed.
    pub fn tokens_per_second(&self) -> Summary {
        self.summary(|seconds| f64::from(self.test.tokens) / seconds)
    }

    /// Time of a token in milliseconds.
    pub fn ms_per_token(&self) -> Summary {
        self.summary(|seconds| seconds * 1e3 / f64::from(self.test.tokens))
    }

    /// Multiplications of linear layers, in units of 10^9 a second.
    pub fn gmacs_per_second(&self) -> f64 {
        self.summary(|seconds| self.macs as f64 / seconds * 1e-9).median
    }

    /// Time in which memory delivers what a token reads, in milliseconds, at the median of the measured bandwidths.
    pub fn floor_ms_per_token(&self, bandwidth: &BandwidthFigure) -> Option<f64> {
        Some(self.bytes_per_token? / bandwidth.median() * 1e3)
    }

    /// That time over the time it took, each from the same round: median of the rounds. It can exceed 1 where a cache
    /// holds a part of what is read.
    pub fn floor_share(&self, bandwidth: &BandwidthFigure) -> Option<f64> {
        let bytes = self.bytes_per_token? * f64::from(self.test.tokens);
        let rounds = self.seconds.iter().zip(&bandwidth.bytes_per_second);
        Some(Summary::of(rounds.map(|(seconds, bandwidth)| bytes / bandwidth / seconds)).median)
    }

    fn summary(&self, figure: impl Fn(f64) -> f64) -> Summary {
        Summary::of(self.seconds.iter().map(|&seconds| figure(seconds)))
    }

    /// Such as `prefill 512` or `decode 64 at 4096`.
    pub fn label(&self) -> String {
        let Test { work, tokens, depth } = self.test;
        match depth {
            0 => format!("{} {tokens}", work.as_str()),
            depth => format!("{} {tokens} at {depth}", work.as_str()),
        }
    }
}

impl Results {
    /// All of it for machines.
    pub fn json(&self) -> Json {
        let Self { model, device, machine, memory, continuation, .. } = self;
        let files = model
            .files
            .iter()
            .map(|file| json!({ "name": file.name, "len_bytes": file.len_bytes, "sha256": file.sha256 }));
        json!({
            "version": self.version,
            "model": {
                "name": model.name,
                "architecture": model.architecture,
                "types": model.types,
                "parameters": model.parameters,
                "files": files.collect::<Vec<_>>(),
            },
            "device": device.id,
            "device_name": device.name,
            "profile": device.profile,
            "cpu": machine.cpu,
            "system": machine.system,
            "chunk": self.chunk,
            "load_seconds": self.load_seconds,
            "peak_memory_bytes": memory.peak_bytes,
            "file_len_bytes": memory.file_len_bytes,
            "kv_len_bytes": memory.kv_len_bytes,
            "bandwidth": self.bandwidth.as_ref().ok().map(|bandwidth| json!({
                "bytes_per_second": bandwidth.bytes_per_second,
                "threads": bandwidth.threads,
                "buffer_len_bytes": bandwidth.buffer_len_bytes,
            })),
            "bandwidth_not_measured": self.bandwidth.as_ref().err(),
            "logits_sha256": continuation.as_ref().map(|continuation| &continuation.logits_sha256),
            "ids_sha256": continuation.as_ref().map(|continuation| &continuation.ids_sha256),
            "tests": self.rows.iter().map(|row| self.row_json(row)).collect::<Vec<_>>(),
        })
    }

    fn row_json(&self, row: &Row) -> Json {
        let bandwidth = self.bandwidth.as_ref().ok();
        json!({
            "work": row.test.work.as_str(),
            "tokens": row.test.tokens,
            "depth": row.test.depth,
            "seconds": row.seconds,
            "tokens_per_second": summary_json(row.tokens_per_second()),
            "ms_per_token": summary_json(row.ms_per_token()),
            "linear_gmacs_per_second": row.gmacs_per_second(),
            "bytes_per_token": row.bytes_per_token,
            "floor_ms_per_token": bandwidth.and_then(|bandwidth| row.floor_ms_per_token(bandwidth)),
            "floor_share": bandwidth.and_then(|bandwidth| row.floor_share(bandwidth)),
        })
    }
}

fn summary_json(summary: Summary) -> Json {
    json!({ "q1": summary.q1, "median": summary.median, "q3": summary.q3 })
}

/// A number to about four digits.
pub fn digits(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}
