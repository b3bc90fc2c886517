//! Whether a device computes as the arithmetic contract says: the probes of `unisonic_shaders`, run when a device is first
//! used, and remembered for as long as device, driver and probes stay the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use unisonic_cache::{Cache, Key, Kind};
use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::kernel;
use unisonic_core::launch::Workgroups;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_gpu::machine::{Dispatch, MachineError, Span, Work};
use unisonic_shaders::{Facts, Modes, Needs, Probe, probes, with_modes};

use super::device::Device;
use super::machine::VulkanMachine;
use super::memory::Buffer;
use super::pipeline::{Code, Pipeline};
use super::record::Recording;
use super::upload::Uploader;
use crate::spirv::Target;

/// What was found, in this process, of devices that are used without a cache.
static REMEMBERED: Mutex<Option<HashMap<String, Vec<Fault>>>> = Mutex::new(None);

/// What a device does not do as specified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What of the device is concerned.
    pub of: Needs,
    /// Name of the probe.
    probe: String,
    /// What is wrong.
    pub reason: String,
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTest {
    /// Names of the probes that concern the device: of what it lacks there are none.
    pub probes: Vec<&'static str>,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// Whether the probes ran now; otherwise it is remembered how they did.
    pub ran: bool,
}

/// Asks the device, or remembers. `wrong` names probes whose results are made wrong, for tests.
pub fn self_test(
    device: &Arc<Device>,
    uploader: &mut Uploader,
    target: &Target,
    wrong: &[&'static str],
) -> Result<SelfTest, MachineError> {
    let key = key(device, target, wrong);
    let of_device = of_device(device, target);
    let probes = of_device.iter().map(|probe| probe.name).collect();
    if let Some(faults) = recall(device.kept.as_deref(), &key) {
        return Ok(SelfTest { probes, faults, ran: false });
    }
    let faults = ask(device, uploader, target, of_device, wrong)?;
    match &device.kept {
        Some(cache) => cache.put(&key, &device.features.name, write(&faults).as_bytes()),
        None => {
            let mut remembered = REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner);
            remembered.get_or_insert_default().insert(key.to_string(), faults.clone());
        }
    }
    Ok(SelfTest { probes, faults, ran: true })
}

/// The probes of what a device has.
fn of_device(device: &Device, target: &Target) -> Vec<Probe> {
    let has = |probe: &Probe| match probe.needs {
        Needs::Nothing | Needs::Constants => true,
        Needs::Subgroups => target.subgroup_size > 1,
        Needs::IntegerDot => target.integer_dot,
        Needs::Matrices => device.features.matrices,
    };
    probes().into_iter().filter(has).collect()
}

fn recall(cache: Option<&Cache>, key: &Key) -> Option<Vec<Fault>> {
    match cache {
        Some(cache) => read(&String::from_utf8(cache.get(key)?).ok()?),
        None => {
            let remembered = REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner);
            remembered.as_ref()?.get(&key.to_string()).cloned()
        }
    }
}

/// All that the results depend on.
fn key(device: &Device, target: &Target, wrong: &[&str]) -> Key {
    let builder = Key::builder(Kind::SelfTest)
        .field("device", &device.features.identity)
        .field("target", format!("{target:?} {}", device.features.matrices))
        .field("wrong", wrong.join(" "));
    let with_probe = |builder: unisonic_cache::KeyBuilder, probe: &Probe| {
        let words = probe.words().into_iter().chain(probe.input());
        builder.field(probe.name, words.flat_map(u32::to_le_bytes).collect::<Vec<_>>())
    };
    probes().iter().fold(builder, with_probe).finish()
}

/// A line for each: the probe, and what is wrong.
fn write(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("{}\t{}\n", fault.probe, fault.reason.replace('\n', " "))).collect()
}

/// None if it is not what [`write`] gives.
fn read(text: &str) -> Option<Vec<Fault>> {
    let fault = |line: &str| {
        let (probe, reason) = line.split_once('\t')?;
        let of = probes().iter().find(|known| known.name == probe)?.needs;
        Some(Fault { of, probe: probe.to_owned(), reason: reason.to_owned() })
    };
    text.lines().map(fault).collect()
}

fn ask(
    device: &Arc<Device>,
    uploader: &mut Uploader,
    target: &Target,
    probes: Vec<Probe>,
    wrong: &[&str],
) -> Result<Vec<Fault>, MachineError> {
    let facts = Facts { subgroup_size: target.subgroup_size };
    let (mut faults, mut asked, mut dispatches) = (vec![], vec![], vec![]);
    let mut results = vec![];
    for probe in probes {
        let output_len_bytes = 4 * probe.expected(facts).len() as u64;
        let shader = (&Shader::of_probe(&probe), modes(target));
        match launch(device, uploader, shader, &probe.input(), probe.groups(), output_len_bytes) {
            Ok(dispatch) => {
                let output = &dispatch.spans[1];
                results.push(Span {
                    buffer: output.buffer.clone(),
                    offset_bytes: 0,
                    len_bytes: output.len_bytes,
                });
                dispatches.push(dispatch);
                asked.push(probe);
            }
            Err(MachineError::Kernel { reason, .. }) => faults.push(Fault {
                of: probe.needs,
                probe: probe.name.to_owned(),
                reason: format!("the driver does not take the probe `{}`: {reason}", probe.name),
            }),
            Err(error) => return Err(error),
        }
    }
    let lens_bytes: Vec<usize> = results.iter().map(|span| span.len_bytes as usize).collect();
    let nothing = Buffer::new(device, 1, Default::default(), "the inputs of probes")?;
    let inputs = Span { buffer: nothing, offset_bytes: 0, len_bytes: 0 };
    let work = Work { dispatches, inputs, results };
    let mut recording = Recording::new(device, uploader, &work)?;
    recording.run(device, &[], TileCounts::default(), 1)?;
    let mut rest = recording.results();
    for (probe, len_bytes) in asked.iter().zip(lens_bytes) {
        let (of_probe, after) = rest.split_at(len_bytes / 4);
        rest = after;
        let mut found = of_probe.to_vec();
        if wrong.contains(&probe.name)
            && let Some(first) = found.first_mut()
        {
            *first ^= 1;
        }
        if let Some(reason) = probe.fault_of(&found, facts) {
            faults.push(Fault { of: probe.needs, probe: probe.name.to_owned(), reason });
        }
    }
    Ok(faults)
}

/// SPIR-V that nobody's kernel is: its push constants are the addresses of what it reads and what it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shader {
    /// SPIR-V with an entry point `main`; the modes that kernels declare are added when it runs.
    pub words: Vec<u32>,
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Whether it exchanges values in subgroups.
    pub exchanges: bool,
}

impl Shader {
    /// Of a probe.
    pub fn of_probe(probe: &Probe) -> Self {
        Self {
            words: probe.words(),
            workgroup: probe.workgroup,
            exchanges: matches!(probe.needs, Needs::Subgroups | Needs::Matrices),
        }
    }
}

/// Runs a shader; the words that it wrote.
pub fn run_shader(
    device: &Arc<Device>,
    uploader: &mut Uploader,
    (shader, modes): (&Shader, Modes),
    input: &[u32],
    groups: u32,
    output_len: usize,
) -> Result<Vec<u32>, MachineError> {
    let dispatch = launch(device, uploader, (shader, modes), input, groups, 4 * output_len as u64)?;
    let output = &dispatch.spans[1];
    let len_bytes = 4 * output_len as u64;
    let results = Span { buffer: output.buffer.clone(), offset_bytes: 0, len_bytes };
    let nothing = Buffer::new(device, 1, Default::default(), "the inputs of probes")?;
    let inputs = Span { buffer: nothing, offset_bytes: 0, len_bytes: 0 };
    let work = Work { dispatches: vec![dispatch], inputs, results: vec![results] };
    let mut recording = Recording::new(device, uploader, &work)?;
    recording.run(device, &[], TileCounts::default(), 1)?;
    Ok(recording.results().to_vec())
}

/// As kernels declare them.
pub fn modes(target: &Target) -> Modes {
    Modes { rounds_to_even: target.rounds_to_even, preserves_signed_zeros: target.preserves_signed_zeros }
}

/// A launch of a shader from a buffer to another.
fn launch(
    device: &Arc<Device>,
    uploader: &mut Uploader,
    (shader, modes): (&Shader, Modes),
    input: &[u32],
    groups: u32,
    output_len_bytes: u64,
) -> Result<Dispatch<VulkanMachine>, MachineError> {
    // Of which only name, size and objects count.
    let shell = kernel("main", shader.workgroup, |k| {
        k.read("x", Scalar::U32);
        k.write("y", Scalar::U32);
    });
    let code = Code {
        words: with_modes(&shader.words, modes),
        exchanges: shader.exchanges,
        pushes_record: true,
        is_kept: false,
    };
    let kernel = Pipeline::new(device, &shell, &code)?;
    let input: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    let x = Buffer::new(device, input.len() as u64, Default::default(), "the input of a probe")?;
    uploader.upload(&x, 0, &input)?;
    let y = Buffer::new(device, output_len_bytes, Default::default(), "the output of a probe")?;
    let span = |buffer: Buffer| Span { offset_bytes: 0, len_bytes: buffer.len_bytes(), buffer };
    Ok(Dispatch {
        kernel,
        spans: vec![span(x), span(y)],
        params: vec![],
        workgroups: Workgroups::Fixed(groups),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_written_and_read() {
        let fault = |probe: &str, of| Fault { of, probe: probe.to_owned(), reason: "it is wrong".to_owned() };
        let faults = vec![fault("rounding", Needs::Nothing), fault("dots", Needs::IntegerDot)];
        for faults in [vec![], faults] {
            assert_eq!(read(&write(&faults)), Some(faults));
        }
        for text in ["rounding", "no such probe\twrong\n", "rounding\twrong\n\n"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
