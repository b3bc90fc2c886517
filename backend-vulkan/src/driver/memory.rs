//! Buffers.

use std::sync::Arc;

use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use gpu_allocator::{AllocationError, MemoryLocation};
use unisonic_core::kir::abi::ALIGN_BYTES;
use unisonic_gpu::machine::MachineError;

use super::device::Device;
use super::error::{is_out_of_memory, misuse};

/// A handle to device memory. The memory is freed with the last handle.
#[derive(Clone)]
pub struct Buffer(Arc<Addressed>);

struct Addressed {
    raw: Raw,
    address: vk::DeviceAddress,
    len_bytes: u64,
}

impl Buffer {
    /// Device memory whose address is a multiple of [`ALIGN_BYTES`]; `usage` is beside what all have: addresses and copies.
    pub fn new(
        device: &Arc<Device>,
        len_bytes: u64,
        usage: vk::BufferUsageFlags,
        what: &str,
    ) -> Result<Self, MachineError> {
        device.health.check("vkCreateBuffer")?;
        let usage = usage
            | vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let raw = Raw::new(device, len_bytes, usage, MemoryLocation::GpuOnly, what)?;
        let info = vk::BufferDeviceAddressInfo::default().buffer(raw.buffer);
        // SAFETY: the buffer was made for this and is bound to memory of a device that has the feature.
        let address = unsafe { device.raw.get_buffer_device_address(&info) };
        if !address.is_multiple_of(ALIGN_BYTES) {
            let reason = format!("0x{address:x} is no multiple of {ALIGN_BYTES}");
            return Err(misuse("vkGetBufferDeviceAddress", reason));
        }
        Ok(Self(Arc::new(Addressed { raw, address, len_bytes })))
    }

    /// Its length, as it was asked for.
    pub fn len_bytes(&self) -> u64 {
        self.0.len_bytes
    }

    /// Where it begins.
    pub(super) fn address(&self) -> vk::DeviceAddress {
        self.0.address
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> vk::Buffer {
        self.0.raw.buffer
    }

    /// An error unless so many bytes from an offset on lie in it, and it is of this device. `call` and `what` are for messages.
    pub(super) fn check(
        &self,
        device: &Arc<Device>,
        offset_bytes: u64,
        len_bytes: u64,
        call: &str,
        what: &str,
    ) -> Result<(), MachineError> {
        if !Arc::ptr_eq(device, &self.0.raw.device) {
            return Err(misuse(call, format!("{what} is of another device")));
        }
        match offset_bytes.checked_add(len_bytes) {
            Some(end) if end <= self.0.len_bytes => Ok(()),
            _ => {
                let has = self.0.len_bytes;
                Err(misuse(
                    call,
                    format!("{what}: {len_bytes} bytes from {offset_bytes} on, in a buffer of {has}"),
                ))
            }
        }
    }
}

/// Memory that the host sees.
pub struct Mapped {
    raw: Raw,
    at: std::ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value, and is read and written through it alone.
unsafe impl Send for Mapped {}

impl Mapped {
    /// For what the host writes and copies take from.
    pub fn staging(device: &Arc<Device>, len: usize, what: &str) -> Result<Self, MachineError> {
        Self::new(device, len, vk::BufferUsageFlags::TRANSFER_SRC, MemoryLocation::CpuToGpu, what)
    }

    /// For what copies bring and the host reads: cached, where that can be had.
    pub fn readback(device: &Arc<Device>, len: usize, what: &str) -> Result<Self, MachineError> {
        Self::new(device, len, vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu, what)
    }

    fn new(
        device: &Arc<Device>,
        len: usize,
        usage: vk::BufferUsageFlags,
        location: MemoryLocation,
        what: &str,
    ) -> Result<Self, MachineError> {
        let raw = Raw::new(device, len as u64, usage, location, what)?;
        let at = raw.allocation.as_ref().and_then(Allocation::mapped_ptr);
        let at = at.ok_or_else(|| misuse("vkMapMemory", format!("{what} is not mapped")))?;
        Ok(Self { raw, at: at.cast(), len })
    }

    /// The driver's handle.
    pub fn raw(&self) -> vk::Buffer {
        self.raw.buffer
    }

    /// Whether the host reads it as fast as its own.
    pub fn is_cached(&self) -> bool {
        let properties = self.raw.allocation.as_ref().map(Allocation::memory_properties);
        properties.is_some_and(|properties| properties.contains(vk::MemoryPropertyFlags::HOST_CACHED))
    }

    /// Its whole words. The device does not write them meanwhile.
    pub fn words(&self) -> &[u32] {
        // SAFETY: the map covers the whole buffer, which begins at a multiple of at least four bytes, and nobody writes it
        // while this is borrowed.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.len / 4) }
    }

    /// Writes bytes. The device does not use them meanwhile.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset <= self.len && bytes.len() <= self.len - offset,
            "{offset} + {} in {}",
            bytes.len(),
            self.len
        );
        // SAFETY: the map covers the whole buffer, the bytes lie in it, and nothing else refers to it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.as_ptr().add(offset), bytes.len()) };
    }

    /// Reads bytes from the start on. The device does not use them meanwhile.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn read(&self, bytes: &mut [u8]) {
        assert!(bytes.len() <= self.len, "{} in {}", bytes.len(), self.len);
        // SAFETY: the map covers the whole buffer, the bytes lie in it, and nothing else refers to it.
        unsafe { std::ptr::copy_nonoverlapping(self.at.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
    }
}

/// A buffer and its memory.
struct Raw {
    device: Arc<Device>,
    buffer: vk::Buffer,
    allocation: Option<Allocation>,
    /// What it takes of the limit.
    counted_bytes: u64,
}

impl Raw {
    fn new(
        device: &Arc<Device>,
        len_bytes: u64,
        usage: vk::BufferUsageFlags,
        location: MemoryLocation,
        what: &str,
    ) -> Result<Self, MachineError> {
        // What lies between the end of a buffer and the next multiple may be read.
        let padded = len_bytes.max(1).checked_next_multiple_of(ALIGN_BYTES).unwrap_or(u64::MAX);
        if let Some((limit, most)) = device.features.limits.broken_by(padded) {
            return Err(MachineError::OutOfMemory {
                what: format!("{what} in one buffer (this device's {limit} is {most})"),
                needed_bytes: padded,
                free_bytes: None,
            });
        }
        let mut raw =
            Self { device: device.clone(), buffer: vk::Buffer::null(), allocation: None, counted_bytes: 0 };
        if location == MemoryLocation::GpuOnly {
            raw.count(padded, what)?;
        }
        if raw.is_to_fail() {
            return Err(raw.out_of_memory(padded, what));
        }
        let info = vk::BufferCreateInfo::default().size(padded).usage(usage);
        // SAFETY: the size is not above the device's limit, and the structure lives through the call.
        raw.buffer = unsafe { device.raw.create_buffer(&info, None) }.map_err(|error| {
            if is_out_of_memory(error) {
                raw.out_of_memory(padded, what)
            } else {
                device.health.failed("vkCreateBuffer", error)
            }
        })?;
        raw.bind(location, what)?;
        Ok(raw)
    }

    /// Whether this is the one for which there is to be no memory.
    fn is_to_fail(&self) -> bool {
        let mut memory = self.device.memory();
        let left = memory.left;
        memory.left = left.and_then(|left| left.checked_sub(1));
        left == Some(0)
    }

    /// Takes bytes of the limit.
    fn count(&mut self, len_bytes: u64, what: &str) -> Result<(), MachineError> {
        let device = self.device.clone();
        let mut memory = device.memory();
        let used_bytes = memory.used_bytes.saturating_add(len_bytes);
        if memory.limit_bytes.is_some_and(|limit| used_bytes > limit) {
            return Err(MachineError::OutOfMemory {
                what: what.to_owned(),
                needed_bytes: len_bytes,
                free_bytes: device.free_bytes(&memory),
            });
        }
        memory.used_bytes = used_bytes;
        self.counted_bytes = len_bytes;
        Ok(())
    }

    fn bind(&mut self, location: MemoryLocation, what: &str) -> Result<(), MachineError> {
        let device = self.device.clone();
        // SAFETY: the buffer is the device's.
        let mut requirements = unsafe { device.raw.get_buffer_memory_requirements(self.buffer) };
        requirements.alignment = requirements.alignment.max(ALIGN_BYTES);
        let request = AllocationCreateDesc {
            name: what,
            requirements,
            location,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let allocation = match device.memory().allocator.as_mut() {
            Some(allocator) => allocator.allocate(&request),
            None => return Err(misuse("vkAllocateMemory", "the device is closed".to_owned())),
        };
        let allocation = allocation.map_err(|error| self.refused(error, requirements.size, what))?;
        // SAFETY: the memory was allocated for what the buffer requires, and outlives it (`drop`).
        let bound =
            unsafe { device.raw.bind_buffer_memory(self.buffer, allocation.memory(), allocation.offset()) };
        self.allocation = Some(allocation);
        device.health.of("vkBindBufferMemory", bound)
    }

    /// What the allocator's error means. It keeps the driver's result as text only.
    fn refused(&self, error: AllocationError, needed_bytes: u64, what: &str) -> MachineError {
        match error {
            AllocationError::OutOfMemory => self.out_of_memory(needed_bytes, what),
            AllocationError::Internal(text) if text.contains("ERROR_OUT_OF_HOST_MEMORY") => {
                self.out_of_memory(needed_bytes, what)
            }
            AllocationError::Internal(text) if text.contains("ERROR_DEVICE_LOST") => {
                self.device.health.failed("vkAllocateMemory", vk::Result::ERROR_DEVICE_LOST)
            }
            error => misuse("vkAllocateMemory", format!("{needed_bytes} bytes for {what}: {error}")),
        }
    }

    fn out_of_memory(&self, needed_bytes: u64, what: &str) -> MachineError {
        let free_bytes = self.device.free_bytes(&self.device.memory());
        MachineError::OutOfMemory { what: what.to_owned(), needed_bytes, free_bytes }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.device.health.hangs() {
            // The device may still write to it.
            std::mem::forget(self.allocation.take());
            return;
        }
        // SAFETY: whoever gives the device a buffer to use holds it until that is over; it is destroyed once, before its
        // memory. A null handle is ignored.
        unsafe { self.device.raw.destroy_buffer(self.buffer, None) };
        let mut memory = self.device.memory();
        memory.used_bytes -= self.counted_bytes;
        if let (Some(allocation), Some(allocator)) = (self.allocation.take(), memory.allocator.as_mut())
            && let Err(error) = allocator.free(allocation)
        {
            tracing::error!("device memory could not be freed: {error}");
        }
    }
}
