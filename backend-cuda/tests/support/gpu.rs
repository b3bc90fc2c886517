//! The GPU of this machine, if it has one with NVIDIA's driver.

use std::ffi::{CString, c_void};
use std::io::Write;

use cudarc::driver::{result, sys};
use unisonic_core::kir::Kernel;
use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::legal::legalize;
use unisonic_cuda::ptx::{Target, dynamic_shared_len_bytes, emit, entry_name};

/// A GPU whose context is current in this thread.
pub struct Gpu {
    /// What it is emitted for.
    pub target: Target,
    device: sys::CUdevice,
}

impl Gpu {
    /// The first GPU, or none and a line that says so.
    pub fn open(what: &str) -> Option<Self> {
        // SAFETY: opening a library runs its initialisers; the driver's do nothing that anything here relies
        // on.
        if !unsafe { sys::is_culib_present() } || result::init().is_err() {
            // Past libtest's capture.
            let _ = writeln!(std::io::stderr().lock(), "skipped: {what} (no CUDA driver)");
            return None;
        }
        let device = result::device::get(0).unwrap();
        use sys::CUdevice_attribute as Attribute;
        // SAFETY: the device is one that the driver named.
        let capability = unsafe {
            [
                Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            ]
            .map(|attribute| result::device::get_attribute(device, attribute).unwrap() as u32)
        };
        let target = Target::for_compute_capability(capability[0], capability[1])?;
        // SAFETY: the device is one that the driver named; the context is released when this is dropped.
        unsafe {
            let context = result::primary_ctx::retain(device).unwrap();
            result::ctx::set_current(context).unwrap();
        }
        Some(Self { target, device })
    }

    /// Runs a kernel, legalised for a target at or below the GPU's own. What it wrote is in `launch.buffers`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn run(
        &self,
        kernel: &Kernel,
        launch: &mut Launch,
        target: Target,
    ) -> Result<(), result::DriverError> {
        assert!(target <= self.target);
        let kernel = legalize(kernel, &target.caps());
        let module = Module::load(&emit(&kernel, target))?;
        let mut buffers =
            launch.buffers.iter().map(|bytes| Buffer::new(bytes)).collect::<Result<Vec<_>, _>>()?;
        module.launch(&kernel, launch.groups, &buffers, &launch.params)?;
        for (buffer, bytes) in buffers.iter_mut().zip(&mut launch.buffers) {
            buffer.read(bytes)?;
        }
        Ok(())
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: the context was retained once, and nothing of it is left: modules and buffers live in calls
        // of `run`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// A loaded kernel.
pub struct Module(sys::CUmodule);

impl Module {
    /// Assembles and loads a module.
    pub fn load(ptx: &str) -> Result<Self, result::DriverError> {
        let text = CString::new(ptx).unwrap();
        // SAFETY: the text ends with a zero byte, and the driver has read it when the call returns.
        unsafe { result::module::load_data(text.as_ptr().cast::<c_void>()) }.map(Self)
    }

    /// Launches and waits.
    fn launch(
        &self,
        kernel: &Kernel,
        groups: u32,
        buffers: &[Buffer],
        params: &[u32],
    ) -> Result<(), result::DriverError> {
        let addresses: Vec<u64> = buffers.iter().map(|buffer| buffer.address).collect();
        self.enqueue(kernel, groups, &addresses, params, std::ptr::null_mut())?;
        result::ctx::synchronize()
    }

    /// Launches on a stream, which may be one that records. The caller keeps the buffers until the stream is
    /// done.
    pub fn enqueue(
        &self,
        kernel: &Kernel,
        groups: u32,
        addresses: &[u64],
        params: &[u32],
        stream: sys::CUstream,
    ) -> Result<(), result::DriverError> {
        let shared = dynamic_shared_len_bytes(kernel);
        let mut addresses = addresses.to_vec();
        let mut params = params.to_vec();
        let record = addresses.iter_mut().map(|address| std::ptr::from_mut(address).cast::<c_void>());
        let mut record: Vec<*mut c_void> =
            record.chain(params.iter_mut().map(|param| std::ptr::from_mut(param).cast())).collect();
        // SAFETY: the module is loaded; the record points to as many values as the entry has parameters, each
        // of its type, which the driver copies before it returns; the kernel, which the interpreter runs
        // without a trap, touches only its buffers, which live until it has been waited for.
        unsafe {
            let entry = result::module::get_function(self.0, CString::new(entry_name(kernel)).unwrap())?;
            if shared > 0 {
                use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                result::function::set_function_attribute(
                    entry,
                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared as i32,
                )?;
            }
            let block = (kernel.workgroup, 1, 1);
            result::launch_kernel(entry, (groups, 1, 1), block, shared, stream, &mut record)
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: it is loaded, and what was launched from it has been waited for or has failed.
        let _ = unsafe { result::module::unload(self.0) };
    }
}

/// Memory of the GPU.
pub struct Buffer {
    /// Where it begins.
    pub address: u64,
}

impl Buffer {
    /// A buffer of so many bytes, each the same.
    pub fn filled(len_bytes: usize, byte: u8) -> Result<Self, result::DriverError> {
        let len_bytes = len_bytes.next_multiple_of(16).max(16);
        // SAFETY: an allocation of the driver's that is freed once, in `drop`.
        let buffer = Self { address: unsafe { result::malloc_sync(len_bytes) }? };
        // SAFETY: the allocation has this length.
        unsafe { result::memset_d8_sync(buffer.address, byte, len_bytes) }?;
        Ok(buffer)
    }

    /// A buffer that can be read up to the next multiple of 16 bytes of its length.
    fn new(bytes: &[u8]) -> Result<Self, result::DriverError> {
        let len_bytes = bytes.len().next_multiple_of(16).max(16);
        // SAFETY: an allocation of the driver's that is freed once, in `drop`.
        let buffer = Self { address: unsafe { result::malloc_sync(len_bytes) }? };
        let mut filled = bytes.to_vec();
        filled.resize(len_bytes, 0);
        // SAFETY: the allocation has this length.
        unsafe { result::memcpy_htod_sync(buffer.address, &filled) }?;
        Ok(buffer)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), result::DriverError> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the allocation is at least as long.
        unsafe { result::memcpy_dtoh_sync(bytes, self.address) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated once.
        let _ = unsafe { result::free_sync(self.address) };
    }
}
