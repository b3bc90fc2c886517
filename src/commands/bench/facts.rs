//! What is said above the figures: of the model, the device, memory and the digest.

use super::measure::{DIGEST_PROMPT_TOKENS, DIGEST_TOKENS};
use super::results::{Memory, Results, digits};
use crate::output::bytes;

/// Facts with their names; `quoted` makes text that comes from files harmless.
pub fn facts(results: &Results, quoted: &dyn Fn(&str) -> String) -> Vec<(&'static str, String)> {
    let Results { model, device, .. } = results;
    let name = model.name.as_deref().map_or("without a name".into(), quoted);
    let (architecture, types) = (&model.architecture, &model.types);
    let parameters = format!("{:.1} million parameters", model.parameters as f64 * 1e-6);
    let device_name = quoted(&device.name);
    let logits = match &results.continuation {
        Some(continuation) => format!(
            "sha256 {} ({DIGEST_TOKENS} greedy tokens after {DIGEST_PROMPT_TOKENS} fixed ids)",
            continuation.logits_sha256
        ),
        None => "no digest: it takes more tokens than the model was made for".into(),
    };
    vec![
        ("model", format!("{name}, {architecture}, {parameters}, {types}")),
        ("device", format!("{device_name}, profile {}, chunks of {} tokens", device.profile, results.chunk)),
        ("load", format!("{} s", digits(results.load_seconds))),
        ("memory", memory_text(&results.memory)),
        ("logits", logits),
    ]
}

/// Peak memory against what the model and its cache take.
fn memory_text(memory: &Memory) -> String {
    let (file, kv) = (memory.file_len_bytes, memory.kv_len_bytes);
    let peak = match memory.peak_bytes {
        Some(peak) => format!("{}, {:.2} x", bytes(peak), peak as f64 / (file + kv) as f64),
        None => "not known".into(),
    };
    format!("peak {peak} (file {} + KV {})", bytes(file), bytes(kv))
}
