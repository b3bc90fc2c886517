//! Kernels, compiled by the driver, or kept from an earlier start.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;
use unisonic_cache::{Cache, Key, Kind};
use unisonic_core::kir::abi;
use unisonic_core::kir::{Kernel, Op, legal};
use unisonic_core::launch::Hardware;
use unisonic_gpu::machine::{CompileCounts, MachineError};

use super::context::Context;
use super::error::reason;
use super::jit;
use super::library::Version;
use crate::ptx::{Target, dynamic_shared_len_bytes, emit, entry_name};

/// A handle to a kernel, ready to run.
#[derive(Clone)]
pub struct CudaKernel(Arc<Loaded>);

struct Loaded {
    context: Arc<Context>,
    module: sys::CUmodule,
    entry: sys::CUfunction,
    name: String,
    addresses: usize,
    params: usize,
    workgroup: u32,
    dynamic_shared_len_bytes: u32,
    /// Whether it waits for the launches before it.
    is_dependent: bool,
}

// SAFETY: the driver API may be called from any thread with any module; nothing else is behind the pointers.
unsafe impl Send for Loaded {}
// SAFETY: as above, and from several threads at once.
unsafe impl Sync for Loaded {}

/// For which devices kernels are compiled.
pub struct Compiler {
    /// What is emitted.
    pub target: Target,
    /// Whether what they prefetch is.
    pub prefetches: bool,
    /// What kernels may use.
    pub hardware: Hardware,
    /// The driver's.
    pub version: Version,
    /// The GPU's name and compute capability.
    pub gpu: String,
    /// Where machine code is kept.
    pub cache: Option<Arc<Cache>>,
    /// How it came to its kernels.
    pub counts: Cell<CompileCounts>,
}

impl Compiler {
    /// As [`unisonic_gpu::machine::Machine::compile`].
    pub fn compile(&self, context: &Arc<Context>, kernel: &Kernel) -> Result<CudaKernel, MachineError> {
        let refuse = |reason: String| MachineError::Kernel { kernel: kernel.name.clone(), reason };
        self.check(kernel).map_err(refuse)?;
        let text = match self.prefetches {
            true => emit(kernel, self.target),
            false => emit(&kernel.without(Op::Prefetch), self.target),
        };
        let [text, entry_name] = [text, entry_name(kernel)]
            .map(|text| CString::new(text).map_err(|_| refuse("its name has a zero byte".to_owned())));
        let module = self.module(context, &kernel.name, &text?)?;
        let mut loaded = Loaded {
            context: context.clone(),
            module,
            entry: ptr::null_mut(),
            name: kernel.name.clone(),
            addresses: abi::addressed(kernel).count(),
            params: kernel.params.len(),
            workgroup: kernel.workgroup,
            dynamic_shared_len_bytes: dynamic_shared_len_bytes(kernel),
            is_dependent: self.target.has_dependent_launches(),
        };
        loaded.find_entry(&entry_name?)?;
        Ok(CudaKernel(Arc::new(loaded)))
    }

    /// Whether the kernel is within what the hardware offers.
    fn check(&self, kernel: &Kernel) -> Result<(), String> {
        let Hardware { caps, shared_len_bytes, workgroup, .. } = self.hardware;
        let shared = dynamic_shared_len_bytes(kernel);
        if shared > shared_len_bytes {
            return Err(format!(
                "it needs {shared} bytes of shared memory, and there are {shared_len_bytes}"
            ));
        }
        if kernel.workgroup > workgroup {
            return Err(format!("it has {} invocations, and {workgroup} are the most", kernel.workgroup));
        }
        if !legal::is_legal(kernel, &caps) {
            return Err(format!("it has operations that {} does not have", self.target.name()));
        }
        Ok(())
    }

    /// The module of a text: of machine code that was kept, or compiled, and then kept.
    fn module(&self, context: &Context, name: &str, text: &CStr) -> Result<sys::CUmodule, MachineError> {
        let Some(cache) = &self.cache else { return self.load(context, name, text) };
        let key = Key::builder(Kind::CudaKernel)
            .field("ptx", text.to_bytes())
            .field("driver", self.version.to_string())
            .field("gpu", &self.gpu)
            .finish();
        if let Some(image) = cache.get(&key) {
            match self.load_image(context, &image) {
                Ok(module) => {
                    self.count(|counts| counts.kept += 1);
                    return Ok(module);
                }
                Err(error @ MachineError::Lost { .. }) => return Err(error),
                Err(error) => {
                    tracing::info!("kernel `{name}` is compiled again: {error}");
                    cache.remove(&key);
                }
            }
        }
        let made =
            jit::compile(context, text).and_then(|image| Ok((self.load_image(context, &image)?, image)));
        match made {
            Ok((module, image)) => {
                self.count(|counts| counts.compiled += 1);
                cache.put(&key, &format!("{name}, {}", self.gpu), &image);
                Ok(module)
            }
            Err(error @ MachineError::Lost { .. }) => Err(error),
            // Loading the text itself does without the linker, or says what is wrong with the text.
            Err(error) => {
                tracing::debug!("the machine code of `{name}` cannot be kept: {error}");
                self.load(context, name, text)
            }
        }
    }

    fn count(&self, count: impl FnOnce(&mut CompileCounts)) {
        let mut counts = self.counts.get();
        count(&mut counts);
        self.counts.set(counts);
    }

    /// Loads machine code.
    fn load_image(&self, context: &Context, image: &[u8]) -> Result<sys::CUmodule, MachineError> {
        // The driver reads as much as the image says of itself; this is its format, ELF, and it is whole: the cache says so.
        if !image.starts_with(b"\x7fELF") {
            let reason = "the machine code is no ELF image".to_owned();
            return Err(MachineError::Driver { call: "cuModuleLoadDataEx".to_owned(), reason });
        }
        context.enter()?;
        let mut module = ptr::null_mut();
        // SAFETY: the context is current; the image is one that the driver made; there are no options.
        let result = unsafe {
            sys::cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 0, ptr::null_mut(), ptr::null_mut())
        };
        context.check("cuModuleLoadDataEx", result).map(|()| module)
    }

    /// Has a text compiled and loaded.
    fn load(&self, context: &Context, name: &str, text: &CStr) -> Result<sys::CUmodule, MachineError> {
        const LOG_LEN_BYTES: usize = 8 << 10;
        context.enter()?;
        let mut log = vec![0_u8; LOG_LEN_BYTES];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // A number travels as a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_LEN_BYTES)];
        let mut module = ptr::null_mut();
        // SAFETY: the context is current; the text ends with a zero byte; there are as many values as options, the log is as
        // long as said, and all of it has been read or written when the call returns.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        match context.check("cuModuleLoadDataEx", result) {
            Err(MachineError::Driver { .. }) => {
                let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
                let reason = self.reason(result, text, &log);
                Err(MachineError::Kernel { kernel: name.to_owned(), reason })
            }
            checked => {
                checked?;
                self.count(|counts| counts.compiled += 1);
                Ok(module)
            }
        }
    }

    /// What to say of a text that the driver does not take.
    fn reason(&self, result: sys::CUresult, text: &CStr, log: &str) -> String {
        let reason = reason(result);
        if result == sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION {
            let text = text.to_string_lossy();
            let version = text.strip_prefix(".version ").and_then(|rest| rest.lines().next()).unwrap_or("?");
            return format!(
                "{reason}: it is PTX {version} and the driver is for CUDA {}; install a newer driver",
                self.version
            );
        }
        format!("{reason}: {}", log.trim())
    }
}

impl Loaded {
    fn find_entry(&mut self, name: &CStr) -> Result<(), MachineError> {
        use sys::CUfunction_attribute_enum as Attribute;
        self.context.enter()?;
        // SAFETY: the module is loaded; the name ends with a zero byte; the function is written to a pointer of its type.
        let result =
            unsafe { sys::cuModuleGetFunction(&mut self.entry, self.module, name.as_ptr().cast::<c_char>()) };
        self.context.check("cuModuleGetFunction", result)?;
        if self.dynamic_shared_len_bytes > 0 {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let len_bytes = self.dynamic_shared_len_bytes as c_int;
            // SAFETY: the function is the module's.
            let result = unsafe { sys::cuFuncSetAttribute(self.entry, attribute, len_bytes) };
            self.context.check("cuFuncSetAttribute", result)?;
        }
        // Also brings the code to the device, which the driver otherwise does at the first launch.
        let mut threads = 0;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: the function is the module's; the number is written to a place of its type.
        let result = unsafe { sys::cuFuncGetAttribute(&mut threads, attribute, self.entry) };
        self.context.check("cuFuncGetAttribute", result)?;
        if threads.unsigned_abs() < self.workgroup {
            let reason =
                format!("it has {} invocations, and its registers leave room for {threads}", self.workgroup);
            return Err(MachineError::Kernel { kernel: self.name.clone(), reason });
        }
        Ok(())
    }
}

impl CudaKernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.0.context, context)
    }

    /// How many addresses and parameters its launches have.
    pub(super) fn record(&self) -> (usize, usize) {
        (self.0.addresses, self.0.params)
    }

    /// Whether a launch may begin before the one before it has ended: it waits for that itself.
    pub(super) fn is_dependent(&self) -> bool {
        self.0.is_dependent
    }

    /// Puts a launch into a stream; with `early` it may begin before the launch that comes before it has ended.
    ///
    /// # Safety
    /// `early` only of a kernel that is [`CudaKernel::is_dependent`], after a launch of another that is. `arguments` points to as many addresses and parameters as [`CudaKernel::record`] says, in the order of
    /// [`unisonic_core::kir::abi`]; until the launch is done (or the graph that is captured is no more) the addresses are of
    /// memory that holds all the kernel touches, and the kernel is loaded.
    pub(super) unsafe fn launch(
        &self,
        stream: sys::CUstream,
        workgroups: u32,
        arguments: &mut [*mut c_void],
        early: bool,
    ) -> Result<(), MachineError> {
        let Loaded { context, entry, workgroup, dynamic_shared_len_bytes, .. } = &*self.0;
        context.enter()?;
        if early {
            // SAFETY: as the caller says.
            return unsafe { self.launch_early(stream, workgroups, arguments) };
        }
        // SAFETY: the entry takes this record, and the caller vouches for the rest; the driver has copied the arguments when
        // it returns.
        let result = unsafe {
            let (grid, block) = ((workgroups, 1, 1), (*workgroup, 1, 1));
            sys::cuLaunchKernel(
                *entry,
                grid.0,
                grid.1,
                grid.2,
                block.0,
                block.1,
                block.2,
                *dynamic_shared_len_bytes,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        context.check(&format!("the launch of `{}`", self.0.name), result)
    }

    unsafe fn launch_early(
        &self,
        stream: sys::CUstream,
        workgroups: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), MachineError> {
        let Loaded { context, entry, workgroup, dynamic_shared_len_bytes, .. } = &*self.0;
        let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
        value.programmaticStreamSerializationAllowed = 1;
        let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let config = sys::CUlaunchConfig {
            gridDimX: workgroups,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: *workgroup,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: *dynamic_shared_len_bytes,
            hStream: stream,
            attrs: &mut attribute,
            numAttrs: 1,
        };
        // SAFETY: the function is there, as the kernel is dependent; the configuration and its one attribute live through
        // the call; the rest is as for `launch`.
        let result =
            unsafe { sys::cuLaunchKernelEx(&config, *entry, arguments.as_mut_ptr(), ptr::null_mut()) };
        context.check(&format!("the launch of `{}`", self.0.name), result)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: it was loaded once, and what holds no handle runs nothing of it.
        self.context.give_back("cuModuleUnload", || unsafe { sys::cuModuleUnload(self.module) });
    }
}

#[cfg(test)]
mod tests {
    use unisonic_core::kir::Scalar;
    use unisonic_core::kir::build::kernel;

    use super::*;

    fn compiler(hardware: Hardware) -> Compiler {
        let version = Version { major: 11, minor: 4 };
        let (gpu, counts) = ("a GPU".to_owned(), Cell::default());
        Compiler { target: Target::Sm86, prefetches: true, hardware, version, gpu, cache: None, counts }
    }

    #[test]
    fn kernels_beyond_the_hardware_are_refused() {
        let shared = |len| {
            kernel("k", 64, |k| {
                k.shared("a", Scalar::F32, len);
            })
        };
        let compiler = compiler(Hardware::SM_86);
        assert_eq!(compiler.check(&shared(99 * 256)), Ok(()));
        let error = compiler.check(&shared(99 * 256 + 4)).err().unwrap_or_default();
        assert!(error.contains("101392") && error.contains("101376"), "{error}");
        let small = Hardware { workgroup: 32, ..Hardware::SM_86 };
        let error = self::compiler(small).check(&shared(1)).err().unwrap_or_default();
        assert!(error.contains("64 invocations"), "{error}");
    }

    #[test]
    fn the_drivers_reasons_are_told() {
        let text = CString::new(emit(&kernel("k", 32, |_| {}), Target::Sm89)).expect("text");
        let unsupported = sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
        let compiler = compiler(Hardware::SM_86);
        let reason = compiler.reason(unsupported, &text, "");
        assert_eq!(
            reason,
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): it is PTX 7.8 and the driver is for CUDA 11.4; install a newer driver"
        );
        let invalid = sys::CUresult::CUDA_ERROR_INVALID_PTX;
        let reason = compiler.reason(invalid, &text, "ptxas line 3: unexpected `x`\n");
        assert_eq!(reason, "CUDA_ERROR_INVALID_PTX (218): ptxas line 3: unexpected `x`");
    }
}
