//! What is tested: something that runs legal kernels over buffers. Every machine of a backend is one.

use unisonic_core::kir::abi::ALIGN_BYTES;
use unisonic_core::kir::build::kernel;
use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::kernel::Space;
use unisonic_core::kir::legal::is_legal;
use unisonic_core::kir::verify::WORD_LEN_BYTES;
use unisonic_core::kir::{Kernel, Scalar, verify};
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::launch::{Hardware, Workgroups};
use unisonic_gpu::machine::{Dispatch, Machine, MachineError, Span, Work};
use unisonic_planner::kernels::samples::data::POISON;
use unisonic_shaders::Needs;
use unisonic_vulkan::driver::{Shader, VulkanMachine};

/// What is known of a device that is tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// As `--device` has it.
    pub device: String,
    /// Hardware.
    pub name: String,
    /// Driver and version; empty where there is none.
    pub driver: String,
    /// What it offers kernels.
    pub hardware: Hardware,
    /// Workgroups that a launch may have.
    pub max_groups: u32,
    /// Whether it is a program on the processor, whose compiler takes minutes for what is large.
    pub is_software: bool,
    /// Whether f32 operations have to keep subnormals: the contract does without, but PTX and the interpreter promise it.
    pub keeps_subnormals: bool,
}

/// What a device is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Which language.
    pub language: Language,
    /// For people.
    pub text: String,
}

/// What code is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// NVIDIA's.
    Ptx,
    /// Disassembled.
    SpirV,
    /// The kernel itself is run.
    KernelIr,
}

impl Language {
    /// As in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ptx => "ptx",
            Self::SpirV => "spir-v",
            Self::KernelIr => "kernel-ir",
        }
    }
}

/// Runs kernels.
pub trait Kernels {
    /// What it is.
    fn facts(&self) -> &Facts;

    /// Runs a legal kernel so many times, each time over the buffers as the launch has them, and shows what it left in them;
    /// ends early when `look` says so.
    fn run(
        &mut self,
        kernel: &Kernel,
        launch: &Launch,
        repeats: u32,
        look: &mut dyn FnMut(Vec<Vec<u8>>) -> bool,
    ) -> Result<(), MachineError>;

    /// What it is given for a legal kernel.
    fn code(&self, kernel: &Kernel) -> Code;

    /// Takes device memory and keeps it, until little is left; how many bytes.
    fn take_memory(&mut self) -> u64 {
        0
    }

    /// Where it takes SPIR-V that people write.
    fn shaders(&mut self) -> Option<&mut dyn Shaders> {
        None
    }

    /// Why it has no room for a legal kernel, if so.
    fn misfit(&self, kernel: &Kernel) -> Option<String> {
        let hardware = &self.facts().hardware;
        let shared = kernel.objects.iter().map(|object| match object.space {
            Space::Shared { len } => u64::from(len) * WORD_LEN_BYTES,
            _ => 0,
        });
        let shared_len_bytes: u64 = shared.sum();
        if kernel.workgroup > hardware.workgroup {
            let most = hardware.workgroup;
            return Some(format!("workgroups of {}, of which the device has {most}", kernel.workgroup));
        }
        (shared_len_bytes > u64::from(hardware.shared_len_bytes)).then(|| {
            let most = hardware.shared_len_bytes;
            format!("{shared_len_bytes} bytes of shared memory, of which the device has {most}")
        })
    }
}

/// Runs SPIR-V.
pub trait Shaders {
    /// What of the device changes results of probes.
    fn probe_facts(&self) -> unisonic_shaders::Facts;

    /// What the device lacks for a probe, if so.
    fn lacks(&self, needs: Needs) -> Option<&'static str>;

    /// The words that a shader writes over an input.
    fn run_shader(
        &mut self,
        shader: &Shader,
        input: &[u32],
        groups: u32,
        output_len: usize,
    ) -> Result<Vec<u32>, MachineError>;
}

impl Shaders for Machinery<VulkanMachine> {
    fn probe_facts(&self) -> unisonic_shaders::Facts {
        unisonic_shaders::Facts { subgroup_size: self.machine.target().subgroup_size }
    }

    fn lacks(&self, needs: Needs) -> Option<&'static str> {
        let target = self.machine.target();
        match needs {
            Needs::Subgroups if target.subgroup_size < 2 => Some("exchanges in subgroups"),
            Needs::IntegerDot if !target.integer_dot => Some("packed dot products"),
            Needs::Matrices if !self.machine.offers_matrices() => Some("matrices of s8 16x8x32"),
            _ => None,
        }
    }

    fn run_shader(
        &mut self,
        shader: &Shader,
        input: &[u32],
        groups: u32,
        output_len: usize,
    ) -> Result<Vec<u32>, MachineError> {
        self.machine.run_shader(shader, input, groups, output_len)
    }
}

/// Gives what takes SPIR-V of a machine, if anything does.
type ShadersOf<M> = fn(&mut Machinery<M>) -> Option<&mut dyn Shaders>;

/// A machine as what is tested.
pub struct Machinery<M: Machine> {
    machine: M,
    facts: Facts,
    code: fn(&M, &Kernel) -> Code,
    shaders: ShadersOf<M>,
    /// All buffers of a launch lie in one.
    arena: Option<(M::Buffer, u64)>,
    /// What runs before each launch, so that what was never written is no zero.
    dirt: Option<Dirt<M>>,
    /// Memory that is held for nothing.
    taken: Vec<M::Buffer>,
}

/// Memory that is left where all else is taken: other processes open the device too.
const LEFT_LEN_BYTES: u64 = 4 << 30;
/// How much is taken at a time.
const PIECE_LEN_BYTES: u64 = 256 << 20;
/// What is taken of a processor's memory, which is everybody's.
const SOFTWARE_TAKEN_LEN_BYTES: u64 = 512 << 20;

/// A kernel that fills shared memory, and where it writes what it read there.
struct Dirt<M: Machine> {
    kernel: M::Kernel,
    buffer: M::Buffer,
    groups: u32,
}

impl<M: Machine> Machinery<M> {
    /// A machine; `code` is what it makes of a kernel.
    pub fn new(machine: M, facts: Facts, code: fn(&M, &Kernel) -> Code) -> Self {
        Self { machine, facts, code, shaders: |_| None, arena: None, dirt: None, taken: vec![] }
    }

    /// The same, with what takes SPIR-V.
    pub fn with_shaders(self, shaders: ShadersOf<M>) -> Self {
        Self { shaders, ..self }
    }

    /// A launch that leaves words in shared memory that nobody wrote there for others; none for the interpreter, which knows
    /// what was not written.
    fn dirt(&mut self) -> Result<Option<Dispatch<M>>, MachineError> {
        if self.facts.driver.is_empty() {
            return Ok(None);
        }
        if self.dirt.is_none() {
            let Hardware { shared_len_bytes, multiprocessors, .. } = self.facts.hardware;
            let kernel = self.machine.compile(&dirty(shared_len_bytes / 4))?;
            // Several for each that may run one later.
            let groups = multiprocessors.clamp(1, 1024) * 8;
            let buffer = self.machine.allocate(4 * u64::from(groups), "a word of each workgroup")?;
            self.dirt = Some(Dirt { kernel, buffer, groups });
        }
        let dispatch = self.dirt.as_ref().map(|Dirt { kernel, buffer, groups }| Dispatch {
            kernel: kernel.clone(),
            spans: vec![Span { buffer: buffer.clone(), offset_bytes: 0, len_bytes: 4 * u64::from(*groups) }],
            params: vec![0],
            workgroups: Workgroups::Fixed(*groups),
        });
        Ok(dispatch)
    }

    fn arena(&mut self, len_bytes: u64) -> Result<M::Buffer, MachineError> {
        if let Some((buffer, has_bytes)) = &self.arena
            && *has_bytes == len_bytes
        {
            return Ok(buffer.clone());
        }
        self.arena = None;
        let buffer = self.machine.allocate(len_bytes, "the buffers of a case")?;
        Ok(self.arena.insert((buffer, len_bytes)).0.clone())
    }
}

/// Fills so many words of shared memory, and stores one, so that no compiler leaves the others out.
fn dirty(words: u32) -> Kernel {
    const INVOCATIONS: u32 = 64;
    kernel("dirty", INVOCATIONS, |k| {
        let (shared, out) = (k.shared("s", Scalar::U32, words), k.write("out", Scalar::U32));
        let one = k.param("one", Scalar::U32);
        k.each(k.local_id(), k.u32(words), INVOCATIONS, |at| shared.store(at, at ^ k.u32(0xA5A5_A5A5)));
        k.barrier();
        let is_first = k.local_id().eq(k.u32(0));
        k.when(is_first, || out.store(k.group_id(), shared.load(one)));
    })
}

/// Where the buffers of a launch lie in one, what it holds at first, and how long it is.
fn lay_out(launch: &Launch) -> (Vec<u64>, Vec<u8>) {
    let (mut offsets, mut bytes) = (vec![], vec![]);
    for buffer in &launch.buffers {
        offsets.push(bytes.len() as u64);
        bytes.extend(buffer);
        // What lies behind a buffer is nobody's: at least a few words, so that what is written there is seen.
        let end = (bytes.len() + 16).next_multiple_of(ALIGN_BYTES as usize);
        bytes.resize(end, POISON);
    }
    if bytes.is_empty() {
        bytes.resize(ALIGN_BYTES as usize, POISON);
    }
    (offsets, bytes)
}

impl<M: Machine> Kernels for Machinery<M> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn run(
        &mut self,
        kernel: &Kernel,
        launch: &Launch,
        repeats: u32,
        look: &mut dyn FnMut(Vec<Vec<u8>>) -> bool,
    ) -> Result<(), MachineError> {
        check(kernel, &self.facts.hardware)?;
        let (offsets, before) = lay_out(launch);
        let dirt = self.dirt()?;
        let compiled = self.machine.compile(kernel)?;
        let buffer = self.arena(before.len() as u64)?;
        let span = |offset_bytes: u64, len_bytes: usize| Span {
            buffer: buffer.clone(),
            offset_bytes,
            len_bytes: len_bytes as u64,
        };
        let spans = offsets.iter().zip(&launch.buffers).map(|(&at, bytes)| span(at, bytes.len()));
        let dispatch = Dispatch {
            kernel: compiled,
            spans: spans.collect(),
            params: launch.params.clone(),
            workgroups: Workgroups::Fixed(launch.groups),
        };
        let whole = || span(0, before.len());
        let work = Work {
            dispatches: dirt.into_iter().chain([dispatch]).collect(),
            inputs: whole(),
            results: vec![whole()],
        };
        let mut recording = self.machine.record(&work)?;
        let mut after = vec![0; before.len()];
        for _ in 0..repeats {
            self.machine.run(&mut recording, &before, TileCounts::default(), &mut after)?;
            let mut found = vec![];
            for (&at, buffer) in offsets.iter().zip(&launch.buffers) {
                let (start, end) = (at as usize, at as usize + buffer.len());
                let behind = end..(end + 16).next_multiple_of(ALIGN_BYTES as usize);
                if let Some(near) = after[behind].iter().position(|&byte| byte != POISON) {
                    let reason = format!("it wrote {near} bytes behind the end of a buffer");
                    return Err(MachineError::Driver { call: format!("running `{}`", kernel.name), reason });
                }
                found.push(after[start..end].to_vec());
            }
            if !look(found) {
                break;
            }
        }
        Ok(())
    }

    fn code(&self, kernel: &Kernel) -> Code {
        (self.code)(&self.machine, kernel)
    }

    fn take_memory(&mut self) -> u64 {
        let most = if self.facts.is_software { SOFTWARE_TAKEN_LEN_BYTES } else { u64::MAX };
        let mut taken_len_bytes = 0;
        while let Some(free_bytes) = self.machine.free_bytes()
            && free_bytes > LEFT_LEN_BYTES + PIECE_LEN_BYTES
            && taken_len_bytes < most
            && let Ok(piece) = self.machine.allocate(PIECE_LEN_BYTES, "memory that others do not get")
        {
            self.taken.push(piece);
            taken_len_bytes += PIECE_LEN_BYTES;
        }
        taken_len_bytes
    }

    fn shaders(&mut self) -> Option<&mut dyn Shaders> {
        (self.shaders)(self)
    }
}

/// What is not legal for a device is not given to it: its emitter may panic.
fn check(kernel: &Kernel, hardware: &Hardware) -> Result<(), MachineError> {
    let refused = |reason| Err(MachineError::Kernel { kernel: kernel.name.clone(), reason });
    if let Some(fault) = verify(kernel).first() {
        return refused(fault.to_string());
    }
    match is_legal(kernel, &hardware.caps) {
        true => Ok(()),
        false => refused("it has operations that the device lacks".to_owned()),
    }
}
