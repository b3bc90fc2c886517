//! Opens devices by name, as machines, in each of their variants. (`unisonic_devices` opens them for plans.)

use unisonic_core::kir::Kernel;
use unisonic_core::launch::Hardware;
use unisonic_cuda::driver::{CudaMachine, OpenOptions as CudaOptions, Without as CudaWithout};
use unisonic_cuda::ptx;
use unisonic_devices::DeviceName;
use unisonic_gpu::interpreter::InterpreterMachine;
use unisonic_gpu::machine::Machine;
use unisonic_vulkan::driver::{DeviceKind, OpenOptions as VulkanOptions, VulkanMachine, Without};
use unisonic_vulkan::spirv;

use crate::kernels::{Code, Facts, Kernels, Language, Machinery};

/// A way to use a device that changes no bit of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As products use it.
    AsItIs,
    /// Without exchanges in subgroups.
    NoSubgroups,
    /// Without packed dot products.
    NoDots,
    /// Without matrices.
    NoMatrices,
    /// Without any of these.
    Nothing,
    /// Without launches that begin before those before them have ended.
    NoDependentLaunches,
    /// The interpreter as a Vulkan device with matrices.
    Cooperative,
    /// The interpreter as the least of devices.
    Least,
    /// A Vulkan device with nothing switched off, whatever it computes: for what is known to be wrong.
    AnyArithmetic,
}

impl Variant {
    /// All.
    pub const ALL: [Variant; 9] = [
        Variant::AsItIs,
        Variant::NoSubgroups,
        Variant::NoDots,
        Variant::NoMatrices,
        Variant::Nothing,
        Variant::NoDependentLaunches,
        Variant::Cooperative,
        Variant::Least,
        Variant::AnyArithmetic,
    ];

    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::AsItIs => "as-it-is",
            Self::NoSubgroups => "no-subgroups",
            Self::NoDots => "no-dots",
            Self::NoMatrices => "no-matrices",
            Self::Nothing => "nothing",
            Self::NoDependentLaunches => "no-dependent-launches",
            Self::Cooperative => "cooperative",
            Self::Least => "least",
            Self::AnyArithmetic => "any-arithmetic",
        }
    }

    /// The variant of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.name() == name)
    }

    fn without(self) -> Without {
        let all = self == Self::Nothing;
        Without {
            subgroups: all || self == Self::NoSubgroups,
            integer_dot: all || self == Self::NoDots,
            matrices: all || self == Self::NoMatrices,
        }
    }
}

/// The variants of a device, the most used first.
pub fn variants(device: DeviceName) -> &'static [Variant] {
    match device {
        DeviceName::Cpu | DeviceName::CpuScalar => &[Variant::AsItIs],
        DeviceName::Interpreter => &[Variant::AsItIs, Variant::Cooperative, Variant::Least],
        DeviceName::Cuda(_) => &[Variant::AsItIs, Variant::NoDependentLaunches],
        DeviceName::Vulkan(_) => {
            use Variant::*;
            &[AsItIs, NoMatrices, NoDots, NoSubgroups, Nothing]
        }
    }
}

/// A device in one of its variants.
pub enum Opened {
    /// It runs kernels.
    Kernels(Box<dyn Kernels>),
    /// It runs whole plans, without kernels of the kernel IR.
    Plans {
        /// What it is.
        name: String,
    },
    /// There is no such variant of it.
    NoVariant {
        /// Why.
        reason: String,
    },
}

/// Opens a device; the error says why it cannot be.
pub fn open(device: DeviceName, variant: Variant) -> Result<Opened, String> {
    match device {
        DeviceName::Cpu | DeviceName::CpuScalar => {
            let opened =
                unisonic_devices::open(device, Default::default()).map_err(|error| error.to_string())?;
            Ok(Opened::Plans { name: opened.info().name })
        }
        DeviceName::Interpreter => Ok(Opened::Kernels(Box::new(interpreter(variant)))),
        DeviceName::Cuda(index) => cuda(index, variant),
        DeviceName::Vulkan(index) => vulkan(index as usize, variant),
    }
}

/// Whether a device is a program on the processor that compiles kernels: that takes it long.
pub fn is_software(device: DeviceName) -> bool {
    let DeviceName::Vulkan(index) = device else { return false };
    let found = unisonic_vulkan::driver::enumerate().unwrap_or_default();
    found.iter().any(|found| found.index == index as usize && found.kind == DeviceKind::Software)
}

/// The interpreter as some device.
fn interpreter(variant: Variant) -> Machinery<InterpreterMachine> {
    let hardware = match variant {
        Variant::Cooperative => Hardware::COOPERATIVE,
        Variant::Least => Hardware::LEAST,
        _ => Hardware::SM_86,
    };
    let machine = InterpreterMachine { hardware };
    let facts = Facts {
        device: "interpreter".to_owned(),
        name: machine.info().name,
        driver: String::new(),
        hardware,
        max_groups: u32::MAX,
        is_software: false,
        keeps_subnormals: true,
    };
    Machinery::new(machine, facts, |_, kernel| Code {
        language: Language::KernelIr,
        text: kernel.to_string(),
    })
}

fn cuda(index: u32, variant: Variant) -> Result<Opened, String> {
    let without =
        CudaWithout { dependent_launches: variant == Variant::NoDependentLaunches, ..CudaWithout::default() };
    let options = CudaOptions { without, ..CudaOptions::default() };
    let machine = unisonic_cuda::driver::open(index, options).map_err(|error| error.to_string())?;
    if variant == Variant::NoDependentLaunches
        && machine.found().target(CudaWithout::default()) == machine.found().target(without)
    {
        return Ok(Opened::NoVariant { reason: "launches do not depend on it anyway".to_owned() });
    }
    let info = machine.info();
    let facts = Facts {
        device: info.id,
        name: info.name,
        driver: machine.driver_version().unwrap_or_default(),
        hardware: machine.hardware(),
        max_groups: i32::MAX as u32,
        is_software: false,
        keeps_subnormals: true,
    };
    Ok(Opened::Kernels(Box::new(Machinery::new(machine, facts, ptx_of))))
}

fn ptx_of(machine: &CudaMachine, kernel: &Kernel) -> Code {
    Code { language: Language::Ptx, text: ptx::emit(kernel, machine.target()) }
}

fn vulkan(index: usize, variant: Variant) -> Result<Opened, String> {
    let is_software = is_software(DeviceName::Vulkan(index as u32));
    let any_arithmetic = variant == Variant::AnyArithmetic;
    let options = VulkanOptions { without: variant.without(), any_arithmetic, ..VulkanOptions::default() };
    let machine = unisonic_vulkan::driver::open(index, &options).map_err(|error| error.to_string())?;
    let hardware = machine.hardware();
    if !matches!(variant, Variant::AsItIs | Variant::AnyArithmetic) {
        let whole = unisonic_vulkan::driver::open(index, &VulkanOptions::default())
            .map_err(|error| error.to_string())?;
        if whole.hardware() == hardware {
            return Ok(Opened::NoVariant {
                reason: "the device has nothing of what it leaves out".to_owned(),
            });
        }
    }
    let (info, max_groups) = (machine.info(), machine.max_groups());
    let facts = Facts {
        device: info.id,
        name: info.name,
        driver: machine.driver().to_owned(),
        hardware,
        max_groups,
        is_software,
        keeps_subnormals: false,
    };
    let machinery = Machinery::new(machine, facts, spirv_of).with_shaders(|machinery| Some(machinery));
    Ok(Opened::Kernels(Box::new(machinery)))
}

fn spirv_of(machine: &VulkanMachine, kernel: &Kernel) -> Code {
    disassembled(&spirv::emit(kernel, machine.target()))
}

/// SPIR-V for people.
pub fn disassembled(words: &[u32]) -> Code {
    use rspirv::binary::Disassemble;
    let text = match rspirv::dr::load_words(words) {
        Ok(module) => module.disassemble(),
        Err(error) => format!("; it cannot be disassembled: {error}"),
    };
    Code { language: Language::SpirV, text }
}
