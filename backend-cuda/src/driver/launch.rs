//! A kernel with its arguments.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use unisonic_core::kir::abi::ALIGN_BYTES;
use unisonic_core::launch::Workgroups;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_gpu::machine::{Dispatch, MachineError};

use super::context::Context;
use super::machine::CudaMachine;
use super::memory::Buffer;
use super::module::CudaKernel;
use super::stream::Stream;

/// A launch that can be put into streams again and again. It holds what it runs and what it runs on.
pub struct Launch {
    kernel: CudaKernel,
    arguments: Arguments,
    workgroups: Workgroups,
    _buffers: Vec<Buffer>,
}

impl Launch {
    /// Looks up addresses and checks the dispatch against the kernel: an error if there are too few or too
    /// many spans or parameters, if a span is not within its buffer or not aligned, or if something is
    /// another machine's.
    pub fn new(context: &Arc<Context>, dispatch: &Dispatch<CudaMachine>) -> Result<Self, MachineError> {
        let Dispatch { kernel, spans, params, workgroups } = dispatch;
        let what = format!("recording a launch of `{}`", kernel.name());
        if !kernel.is_of(context) {
            return Err(MachineError::Driver { call: what, reason: "it is another machine's".to_owned() });
        }
        let part = |span: &unisonic_gpu::machine::Span<CudaMachine>| {
            span.buffer.part(context, span.offset_bytes, span.len_bytes, &what)
        };
        let addresses = spans.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let arguments = Arguments { addresses, params: params.clone() };
        arguments.check(kernel.record()).map_err(|reason| MachineError::Driver { call: what, reason })?;
        Ok(Self {
            kernel: kernel.clone(),
            arguments,
            workgroups: *workgroups,
            _buffers: spans.iter().map(|span| span.buffer.clone()).collect(),
        })
    }

    /// Whether its size is the same in each run.
    pub fn is_fixed(&self) -> bool {
        matches!(self.workgroups, Workgroups::Fixed(_))
    }

    /// Whether it may begin before the launch before it has ended, and then waits for that itself.
    pub fn is_dependent(&self) -> bool {
        self.kernel.is_dependent()
    }

    /// Puts it into a stream, if it has any workgroups; whether it has. With `early` it may begin before the
    /// launch that comes before it has ended.
    ///
    /// # Safety
    /// `early` only where this and the launch before it are dependent. It lives until the stream, or the
    /// graph that is captured from it, is done with it.
    pub unsafe fn enqueue(
        &self,
        stream: &Stream,
        tiles: TileCounts,
        early: bool,
    ) -> Result<bool, MachineError> {
        let workgroups = size(self.workgroups, tiles).ok_or_else(|| MachineError::Driver {
            call: format!("the launch of `{}`", self.kernel.name()),
            reason: format!("{:?} is too much for {tiles:?}", self.workgroups),
        })?;
        if workgroups == 0 {
            return Ok(false);
        }
        // SAFETY: there are as many arguments as the kernel has; this holds the kernel and the buffers, and
        // lives long enough as the caller says. That a kernel which verifies touches only its objects'
        // elements, and that they lie in the spans, is the contract of `Machine::record`.
        unsafe { self.kernel.launch(stream.raw(), workgroups, &mut self.arguments.pointers(), early) }?;
        Ok(true)
    }
}

/// How many workgroups; none if they are more than the driver takes.
fn size(workgroups: Workgroups, tiles: TileCounts) -> Option<u32> {
    let count = match workgroups {
        Workgroups::Fixed(count) => count,
        Workgroups::PerTile(rows, count) => count.checked_mul(tiles.of(rows))?,
    };
    (count <= i32::MAX as u32).then_some(count)
}

/// The record of a launch (`core::kir::abi`).
struct Arguments {
    addresses: Vec<u64>,
    params: Vec<u32>,
}

impl Arguments {
    /// Whether it has so many addresses and parameters, and the addresses are aligned.
    fn check(&self, (addresses, params): (usize, usize)) -> Result<(), String> {
        let found = (self.addresses.len(), self.params.len());
        if found != (addresses, params) {
            return Err(format!(
                "it takes {addresses} buffers and {params} parameters, and got {} and {}",
                found.0, found.1
            ));
        }
        match self.addresses.iter().position(|address| !address.is_multiple_of(ALIGN_BYTES)) {
            Some(at) => Err(format!("buffer {at} does not begin at a multiple of {ALIGN_BYTES} bytes")),
            None => Ok(()),
        }
    }

    /// Pointers to all, in order, for the driver, which only reads.
    fn pointers(&self) -> Vec<*mut c_void> {
        let addresses = self.addresses.iter().map(|address| ptr::from_ref(address).cast::<c_void>());
        let params = self.params.iter().map(|param| ptr::from_ref(param).cast());
        addresses.chain(params).map(<*const c_void>::cast_mut).collect()
    }
}

#[cfg(test)]
mod tests {
    use unisonic_core::plan::Rows;

    use super::*;

    #[test]
    fn arguments_are_addresses_then_parameters() {
        let arguments = Arguments { addresses: vec![0x1_0000_0100, 0x200], params: vec![7, u32::MAX] };
        assert_eq!(arguments.check((2, 2)), Ok(()));
        let pointers = arguments.pointers();
        assert_eq!(pointers.len(), 4);
        // SAFETY: they point to the addresses and parameters above.
        let found = unsafe {
            let [a, b] = [0, 1].map(|at| pointers[at].cast::<u64>().read());
            let [c, d] = [2, 3].map(|at| pointers[at].cast::<u32>().read());
            (a, b, c, d)
        };
        assert_eq!(found, (0x1_0000_0100, 0x200, 7, u32::MAX));
    }

    #[test]
    fn arguments_that_the_kernel_does_not_take_are_refused() {
        let arguments = Arguments { addresses: vec![256, 512], params: vec![1] };
        for record in [(1, 1), (3, 1), (2, 0), (2, 2)] {
            let error = arguments.check(record).err().unwrap_or_default();
            assert!(error.ends_with("got 2 and 1"), "{error}");
        }
        let arguments = Arguments { addresses: vec![256, 520], params: vec![] };
        assert_eq!(
            arguments.check((2, 0)),
            Err("buffer 1 does not begin at a multiple of 256 bytes".to_owned())
        );
    }

    #[test]
    fn sizes_stay_within_what_the_driver_takes() {
        let most = i32::MAX as u32;
        let per_tile = |count| Workgroups::PerTile(Rows::All, count);
        for (workgroups, all, expected) in [
            (Workgroups::Fixed(3), 9, Some(3)),
            (per_tile(3), 9, Some(27)),
            (per_tile(3), 0, Some(0)),
            (Workgroups::PerTile(Rows::Outputs, 3), 9, Some(6)),
            (Workgroups::Fixed(most), 1, Some(most)),
            (Workgroups::Fixed(most + 1), 1, None),
            (per_tile(1 << 16), 1 << 16, None),
            (per_tile(1 << 16), 1 << 15, None),
        ] {
            let tiles = TileCounts { all, outputs: 2 };
            assert_eq!(size(workgroups, tiles), expected, "{workgroups:?} {tiles:?}");
        }
    }
}
