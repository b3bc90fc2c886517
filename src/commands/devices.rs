//! `unisonic devices`: what a model can run on here, and why not on the rest.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value as Json, json};
use unisonic_devices::{Backend, Listed, SelfTest, list};

use crate::cache_dir::CacheDirArg;
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
    #[command(flatten)]
    cache: CacheDirArg,
}

/// Runs the command.
pub fn run(args: &DevicesArgs) -> anyhow::Result<()> {
    let backends = list(args.cache.open().as_ref());
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
    let notes = (!device.notes.is_empty()).then(|| device.notes.join("; "));
    let self_test = device.self_test.iter().flat_map(of_self_test);
    for line in driver.chain(notes).chain(self_test).chain(missing) {
        let _ = writeln!(text, "      {line}");
    }
    text
}

/// A line, and one for each thing that is not used.
fn of_self_test(test: &SelfTest) -> Vec<String> {
    let probes = format!("self-test: asked for {}", test.probes.join(", "));
    let off = test.switched_off.iter().map(|off| format!("does without {}: {}", off.what, off.reason));
    let all_right = test.switched_off.is_empty().then(|| "computes as specified".to_owned());
    [probes].into_iter().chain(off).chain(all_right).collect()
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
            "variants": device.variants.iter().map(|served| json!({
                "what": served.what,
                "why_not": served.why_not,
            })).collect::<Vec<_>>(),
            "self_test": device.self_test.as_ref().map(|test| json!({
                "probes": test.probes,
                "switched_off": test.switched_off.iter().map(|off| json!({
                    "what": off.what,
                    "reason": off.reason,
                })).collect::<Vec<_>>(),
            })),
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
    use unisonic_devices::{DeviceName, SwitchedOff};

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
            variants: vec![],
            self_test: None,
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

    #[test]
    fn a_device_says_what_it_was_asked_and_does_without() {
        let listed = |switched_off| Listed {
            name: DeviceName::Vulkan(0),
            hardware: "GPU".into(),
            driver: None,
            memory_len_bytes: None,
            missing: vec![],
            notes: vec![],
            variants: vec![],
            self_test: Some(SelfTest { probes: vec!["rounding", "dots"], switched_off }),
        };
        let text = of_device(&listed(vec![]));
        assert!(
            text.ends_with("self-test: asked for rounding, dots\n      computes as specified\n"),
            "{text}"
        );
        let off = SwitchedOff { what: "packed dot products", reason: "sums differ".into() };
        let device = listed(vec![off]);
        let text = of_device(&device);
        assert!(text.ends_with("      does without packed dot products: sums differ\n"), "{text}");
        let json = as_json(&[Backend { name: "Vulkan", devices: Ok(vec![device]) }]);
        let test = &json["backends"][0]["devices"][0]["self_test"];
        assert_eq!(test["probes"], json!(["rounding", "dots"]));
        assert_eq!(test["switched_off"][0]["reason"], "sums differ");
    }
}
