//! What a run of the benchmark found, and the figures that follow from it.

use serde_json::{Value as Json, json};

use super::machine::Machine;
use super::measure::{Continuation, Test, Work};
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
    /// What memory allows; none where there was no room to measure it.
    pub bandwidth: Option<BandwidthFigure>,
    /// Measurements.
    pub rows: Vec<Row>,
    /// What two machines can compare.
    pub continuation: Continuation,
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
    pub file_bytes: u64,
    /// Keys and values of all tokens that the tests run.
    pub kv_bytes: u64,
}

/// Memory bandwidth.
pub struct BandwidthFigure {
    /// Of the fastest pass.
    pub bytes_per_second: f64,
    /// Threads that read.
    pub threads: usize,
    /// What they read.
    pub buffer_len_bytes: u64,
}

/// Measurements of a test.
pub struct Row {
    /// The test.
    pub test: Test,
    /// Of each repetition, in their order.
    pub seconds: Vec<f64>,
    /// Of `seconds`.
    pub summary: Summary,
    /// Multiplications of linear layers in the whole test.
    pub macs: u64,
    /// Bytes that a token of a decode test has to read, averaged over its tokens; none for prefill, where many tokens
    /// share what is read.
    pub bytes_per_token: Option<f64>,
}

impl Row {
    /// Speed.
    pub fn tokens_per_second(&self) -> Summary {
        self.summary.falling(|seconds| f64::from(self.test.tokens) / seconds)
    }

    /// Time of a token in milliseconds.
    pub fn ms_per_token(&self) -> Summary {
        self.summary.times(1e3 / f64::from(self.test.tokens))
    }

    /// Multiplications of linear layers, in units of 10^9 a second.
    pub fn gmacs_per_second(&self) -> f64 {
        self.macs as f64 / self.summary.median * 1e-9
    }

    /// Least time of a token that the memory allows, in milliseconds.
    pub fn floor_ms_per_token(&self, bandwidth: Option<&BandwidthFigure>) -> Option<f64> {
        Some(self.bytes_per_token? / bandwidth?.bytes_per_second * 1e3)
    }

    /// Floor over measured time: 1 is as fast as memory allows.
    pub fn floor_share(&self, bandwidth: Option<&BandwidthFigure>) -> Option<f64> {
        Some(self.floor_ms_per_token(bandwidth)? / self.ms_per_token().median)
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
            .map(|file| json!({ "name": file.name, "size_bytes": file.len_bytes, "sha256": file.sha256 }));
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
            "file_bytes": memory.file_bytes,
            "kv_bytes": memory.kv_bytes,
            "bandwidth": self.bandwidth.as_ref().map(|bandwidth| json!({
                "bytes_per_second": bandwidth.bytes_per_second,
                "threads": bandwidth.threads,
                "buffer_bytes": bandwidth.buffer_len_bytes,
            })),
            "logits_sha256": continuation.logits_sha256,
            "ids_sha256": continuation.ids_sha256,
            "tests": self.rows.iter().map(|row| self.row_json(row)).collect::<Vec<_>>(),
        })
    }

    fn row_json(&self, row: &Row) -> Json {
        let bandwidth = self.bandwidth.as_ref();
        json!({
            "work": row.test.work.as_str(),
            "tokens": row.test.tokens,
            "depth": row.test.depth,
            "seconds": row.seconds,
            "tokens_per_second": summary_json(row.tokens_per_second()),
            "ms_per_token": summary_json(row.ms_per_token()),
            "linear_gmacs_per_second": row.gmacs_per_second(),
            "bytes_per_token": row.bytes_per_token,
            "floor_ms_per_token": row.floor_ms_per_token(bandwidth),
            "floor_share": row.floor_share(bandwidth),
        })
    }

    /// Whether anything was decoded, so that there is a floor.
    pub fn has_decode(&self) -> bool {
        self.rows.iter().any(|row| row.test.work == Work::Decode)
    }
}

fn summary_json(summary: Summary) -> Json {
    json!({ "low": summary.low, "median": summary.median, "high": summary.high })
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
