//! Fixed results for the tests of the outputs.

use super::machine::Machine;
use super::measure::{Continuation, Test, Work};
use super::results::{BandwidthFigure, Memory, Model, ModelFile, Results, Row};

/// Prefill and decode, the decode at two depths.
pub fn results() -> Results {
    let row = |work, tokens, depth, seconds: [f64; 3], bytes_per_token| Row {
        test: Test { work, tokens, depth },
        seconds: seconds.to_vec(),
        macs: 100_000_000 * u64::from(tokens),
        bytes_per_token,
    };
    Results {
        version: "0.1.0".into(),
        model: Model {
            name: Some("Small <& quick>".into()),
            architecture: "llama".into(),
            types: "F32 61, Q4_1 210, Q8_0 1".into(),
            parameters: 134_515_008,
            files: vec![ModelFile {
                name: "small.gguf".into(),
                len_bytes: 98_362_432,
                sha256: Some("b179c9".into()),
            }],
        },
        device: unisonic_core::plan::DeviceInfo {
            id: "cpu".into(),
            name: "CPU, AVX2, 2 threads".into(),
            profile: "u1".into(),
            threads: Some(2),
        },
        machine: Machine {
            cpu: Some("Some CPU".into()),
            system: "Debian 13, kernel 6.1, linux x86_64".into(),
        },
        chunk: 64,
        load_seconds: 0.25,
        memory: Memory {
            peak_bytes: Some(120_000_000),
            file_len_bytes: 98_362_432,
            kv_len_bytes: 10_000_000,
        },
        bandwidth: Ok(BandwidthFigure {
            bytes_per_second: vec![20e9, 16e9, 21e9],
            threads: 2,
            buffer_len_bytes: 256 << 20,
        }),
        rows: vec![
            row(Work::Prefill, 512, 0, [0.5, 0.4, 0.6], None),
            row(Work::Decode, 64, 0, [0.64, 0.7, 0.62], Some(100e6)),
            row(Work::Decode, 64, 4096, [1.0, 1.28, 1.1], Some(150e6)),
        ],
        continuation: Some(Continuation { logits_sha256: "aa11".into(), ids_sha256: "bb22".into() }),
    }
}
