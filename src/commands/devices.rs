//! `unisonic devices`: what a model can run on here, and why not on the rest.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value as Json, json};
use unisonic_devices::{Backend, Listed, list};

use crate::output::{bytes, write_json, write_stdout};

const EXAMPLES: &str = "\
Examples:
  unisonic devices
  unisonic devices --json
  unisonic run --device cuda:0 model.gguf \"The capital of France is\"";

/// Lists what a model can run on here: processors and GPUs with their drivers, and why not on the rest
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DevicesArgs {
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &DevicesArgs) -> anyhow::Result<()> {
    let backends = list();
    if args.json {
        return write_json(&as_json(&backends));
    }
    write_stdout(&as_text(&backends))
}

fn as_text(backends: &[Backend]) -> String {
    let mut text = String::new();
    for backend in backends {
        let _ = writeln!(text, "{}", backend.name);
        match &backend.devices {
            Ok(devices) => devices.iter().for_each(|device| text.push_str(&of_device(device))),
            Err(why) => {
                let _ = writeln!(text, "  none: {why}");
            }
        }
    }
    text
}

fn of_device(device: &Listed) -> String {
    let mut text = format!("  --device {:<10} {}", device.name.to_string(), device.hardware);
    if let Some(len_bytes) = device.memory_len_bytes {
        let _ = write!(text, ", {}", bytes(len_bytes));
    }
    text.push('\n');
    let driver = device.driver.iter().map(|driver| format!("driver: {driver}"));
    let missing = device.missing.iter().map(|missing| format!("cannot be used: {missing}"));
    for line in driver.chain((!device.notes.is_empty()).then(|| device.notes.join("; "))).chain(missing) {
        let _ = writeln!(text, "      {line}");
    }
    text
}

fn as_json(backends: &[Backend]) -> Json {
    let of_device = |device: &Listed| {
        json!({
            "device": device.name.to_string(),
            "hardware": device.hardware,
            "driver": device.driver,
            "memory_bytes": device.memory_len_bytes,
            "missing": device.missing,
            "notes": device.notes,
        })
    };
    let of_backend = |backend: &Backend| match &backend.devices {
        Ok(devices) => json!({
            "backend": backend.name,
            "devices": devices.iter().map(of_device).collect::<Vec<_>>(),
        }),
        Err(why) => json!({ "backend": backend.name, "devices": [], "why": why }),
    };
    json!({ "backends": backends.iter().map(of_backend).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use unisonic_devices::DeviceName;

    use super::*;

    #[test]
    fn a_device_says_why_it_cannot_be_used() {
        let device = Listed {
            name: DeviceName::Cuda(1),
            hardware: "GTX 9".into(),
            driver: Some("CUDA 12.4".into()),
            memory_len_bytes: Some(8 << 30),
            missing: vec!["it is too old".into()],
            notes: vec!["a".into(), "b".into()],
        };
        let backends = [
            Backend { name: "CUDA", devices: Ok(vec![device]) },
            Backend { name: "Vulkan", devices: Err("no loader".into()) },
        ];
        let text = as_text(&backends);
        for part in
            ["--device cuda:1", "GTX 9, 8", "driver: CUDA 12.4", "a; b", "cannot be used: it is too old"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(text.ends_with("Vulkan\n  none: no loader\n"), "{text}");
        assert_eq!(as_json(&backends)["backends"][0]["devices"][0]["device"], "cuda:1");
    }
}
