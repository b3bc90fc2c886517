//! Golden tokens: tiny models (`model.rs`) are run greedily on a device, and all logits compared with those of the scalar device;
//! of that one with what it computed when this was written.

mod model;

use std::sync::Arc;
use std::time::Instant;

use unisonic_core::numerics::sampling::most_likely;
use unisonic_core::plan::{Batch, Device, Limits, MemoryWeights, Plan};
use unisonic_cpu::scalar::{Arithmetic, ScalarDevice};
use unisonic_devices::DeviceName;

pub use model::Tiny;

use super::{Event, Judged, only_row};
use crate::open::is_software;
use crate::outcome::{Difference, Outcome};
use crate::suite::Task;

const LIMITS: Limits = Limits { kv_pages: 2, max_rows: 8, max_outputs: 8 };
/// Tokens of the prompt, in batches of so many: how they are cut changes no bit.
const PROMPT: &[usize] = &[5, 1];
/// The same for software devices, whose compilers take minutes for kernels of several rows.
const SOFTWARE_PROMPT: &[usize] = &[1; 6];
/// Tokens that are generated.
const GENERATED: usize = 3;

/// The tiny models.
pub fn models() -> Vec<Tiny> {
    model::all()
}

/// Runs a tiny model by its number.
pub fn run(number: usize, task: &Task, device: DeviceName, say: &mut dyn FnMut(Event<'_>)) {
    let Some(&tiny) = models().get(number).filter(|_| task.skip == 0) else { return };
    say(Event::Begin(super::ONLY));
    let start = Instant::now();
    let outcome = compare(tiny, number, device).unwrap_or_else(Outcome::failed);
    only_row(task, start, &Judged { outcome, is_lost: false }, say);
}

fn compare(tiny: Tiny, number: usize, device: DeviceName) -> Result<Outcome, String> {
    let (plan, weights) = tiny.made().map_err(|error| format!("the case is wrong: {error}"))?;
    let plan = Arc::new(plan);
    let right = logits(&ScalarDevice::new(Arithmetic::U1), &plan, &weights, PROMPT)?;
    let digest = digest(&right);
    if DIGESTS.get(number) != Some(&digest) {
        let known = DIGESTS.get(number).copied().unwrap_or_default();
        let reason = format!("the scalar device has logits of digest {digest:016x}, not {known:016x}");
        return Ok(Outcome::failed(reason));
    }
    if device == DeviceName::CpuScalar {
        return Ok(Outcome::Passed);
    }
    let opened = unisonic_devices::open(device, Default::default()).map_err(|error| error.to_string())?;
    let prompt = if is_software(device) { SOFTWARE_PROMPT } else { PROMPT };
    let found = logits(&*opened, &plan, &weights, prompt)?;
    let names: Vec<String> =
        (0..right.len()).map(|position| format!("logits of position {position}")).collect();
    let rows = names.iter().zip(&right).zip(&found).map(|((name, a), b)| (name.as_str(), &a[..], &b[..]));
    Ok(match Difference::of_words(rows) {
        None => Outcome::Passed,
        difference => Outcome::Failed { reason: "other logits".to_owned(), difference },
    })
}

/// Bits of the logits after each token: of a prompt, and of tokens that follow greedily.
fn logits(
    device: &dyn Device,
    plan: &Arc<Plan>,
    weights: &MemoryWeights,
    prompt: &[usize],
) -> Result<Vec<Vec<u32>>, String> {
    let failed = |error: unisonic_core::plan::DeviceError| error.to_string();
    let mut program = device.load(Arc::clone(plan), weights, LIMITS, &|_| {}).map_err(failed)?;
    let mut all: Vec<Vec<u32>> = vec![];
    let mut next = 0;
    let batches = prompt.iter().copied().chain([1; GENERATED]).enumerate();
    for (number, rows) in batches {
        let first = all.len() as u32;
        let tokens: Vec<u32> = match number < prompt.len() {
            true => (0..rows as u32).map(|row| (7 * (first + row) + 3) % model::VOCAB_LEN).collect(),
            false => vec![next],
        };
        let positions: Vec<u32> = (first..first + rows as u32).collect();
        let outputs: Vec<u32> = (0..rows as u32).collect();
        let batch = Batch {
            tokens: &tokens,
            positions: &positions,
            sequences: &vec![0; rows],
            page_tables: &[&[1, 0]],
            outputs: &outputs,
            values: &[],
        };
        let flags = program.run(&batch).map_err(failed)?;
        if let Some(flag) = flags.first() {
            return Err(format!("a range contract was broken: {flag:?}"));
        }
        for row in 0..rows {
            let logits = program.logits(row);
            next = most_likely(logits).unwrap_or(0);
            all.push(logits.iter().map(|logit| logit.to_bits()).collect());
        }
    }
    Ok(all)
}

/// FNV-1a of the bits.
fn digest(logits: &[Vec<u32>]) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    let bytes = logits.iter().flatten().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, mix)
}

/// What the scalar device computes of each model: the arithmetic has not changed.
const DIGESTS: [u64; 18] = [
    0x07BC_542D_9EDB_421C,
    0x7275_6574_3E55_8632,
    0xC658_1265_EC09_BDA4,
    0xF01D_19A8_8CA8_EC97,
    0x3090_7467_FF8D_0422,
    0xB974_249A_AE0F_982A,
    0xF2E1_233D_634A_97DA,
    0x2DF1_4043_0CD8_0449,
    0x6778_42ED_9842_0939,
    0x201D_63DC_8446_C1FE,
    0xD31D_E798_ACDC_91AA,
    0xBC0F_876F_8142_F98F,
    0x7813_67D3_AC22_B129,
    0x0077_77A6_291F_B87B,
    0x270F_7A63_2678_0BB4,
    0x3305_DABD_793F_4099,
    0x6FB8_EDF0_1E0B_60D2,
    0xB940_06D4_FA54_5580,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the arithmetic has changed, or the models have.
    #[test]
    fn models_compute_what_they_did() {
        let found: Vec<String> = models()
            .iter()
            .map(|tiny| {
                let (plan, weights) = tiny.made().unwrap_or_else(|error| panic!("{}: {error}", tiny.name()));
                let plan = Arc::new(plan);
                let [logits, by_one] = [PROMPT, SOFTWARE_PROMPT].map(|prompt| {
                    let logits = logits(&ScalarDevice::new(Arithmetic::U1), &plan, &weights, prompt);
                    logits.unwrap_or_else(|error| panic!("{}: {error}", tiny.name()))
                });
                assert_eq!(logits, by_one, "{}", tiny.name());
                // Tokens have a say in the logits.
                assert_ne!(logits[0], logits[1], "{}", tiny.name());
                format!("0x{:016X}", digest(&logits))
            })
            .collect();
        let expected: Vec<String> = DIGESTS.iter().map(|digest| format!("0x{digest:016X}")).collect();
        assert_eq!(found, expected);
    }
}
