//! What `--device` takes.

use std::fmt;
use std::str::FromStr;

/// A device by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceName {
    /// `cpu`: the processor, fast.
    #[default]
    Cpu,
    /// `cpu-scalar`: the processor, by the executable specification; slow.
    CpuScalar,
    /// `interpreter`: the kernels of a GPU on the interpreter of the kernel IR; very slow.
    Interpreter,
    /// `cuda` or `cuda:N`: an NVIDIA GPU through CUDA.
    Cuda(u32),
    /// `vulkan` or `vulkan:N`: a GPU through Vulkan.
    Vulkan(u32),
}

/// What to write for each.
const FORMS: &str = "cpu, cpu-scalar, interpreter, cuda, cuda:N, vulkan, vulkan:N";

/// A name that no device has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no device `{0}`; expected one of {FORMS}, N a number of `unisonic devices`")]
pub struct UnknownDevice(pub String);

impl FromStr for DeviceName {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        let unknown = || UnknownDevice(text.to_owned());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                (name, Some(number.parse().map_err(|_| unknown())?))
            }
            Some(_) => return Err(unknown()),
            None => (text, None),
        };
        match (name, number) {
            ("cpu", None) => Ok(Self::Cpu),
            ("cpu-scalar", None) => Ok(Self::CpuScalar),
            ("interpreter", None) => Ok(Self::Interpreter),
            ("cuda", number) => Ok(Self::Cuda(number.unwrap_or(0))),
            ("vulkan", number) => Ok(Self::Vulkan(number.unwrap_or(0))),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::CpuScalar => f.write_str("cpu-scalar"),
            Self::Interpreter => f.write_str("interpreter"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Vulkan(index) => write!(f, "vulkan:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, name) in [
            ("cpu", DeviceName::Cpu),
            ("cpu-scalar", DeviceName::CpuScalar),
            ("interpreter", DeviceName::Interpreter),
            ("cuda:1", DeviceName::Cuda(1)),
            ("vulkan:10", DeviceName::Vulkan(10)),
        ] {
            assert_eq!((text.parse(), name.to_string()), (Ok(name), text.to_owned()));
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        for wrong in
            ["", "cpu:0", "cuda:", "cuda:-1", "cuda:+1", "cuda:4294967296", "metal", "CUDA", "cuda:0:1"]
        {
            assert_eq!(wrong.parse::<DeviceName>(), Err(UnknownDevice(wrong.to_owned())));
        }
    }
}
