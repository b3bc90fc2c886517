//! Machine code of kernels, so that it can be kept: the driver's linker compiles a text and hands out the
//! image.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys;
use unisonic_gpu::machine::MachineError;

use super::context::Context;

/// A link that is under way, which holds the image that it made.
struct Link<'a> {
    context: &'a Context,
    state: sys::CUlinkState,
}

/// The machine code that the driver makes of a text for the context's GPU.
pub fn compile(context: &Context, text: &CStr) -> Result<Vec<u8>, MachineError> {
    context.enter()?;
    let mut link = Link { context, state: ptr::null_mut() };
    // SAFETY: the context is current; there are no options; the state is written to a pointer of its type.
    let result = unsafe { sys::cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), &mut link.state) };
    context.check("cuLinkCreate", result)?;
    let text = text.to_bytes_with_nul();
    // SAFETY: the link is there; the text has this length, which includes the zero byte, and is only read,
    // during the call; there are no options.
    let result = unsafe {
        sys::cuLinkAddData_v2(
            link.state,
            sys::CUjitInputType::CU_JIT_INPUT_PTX,
            text.as_ptr().cast_mut().cast::<c_void>(),
            text.len(),
            c"kernel".as_ptr(),
            0 as c_uint,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    context.check("cuLinkAddData", result)?;
    let (mut image, mut len_bytes) = (ptr::null_mut(), 0);
    // SAFETY: the link is there; pointer and length are written to places of their types.
    let result = unsafe { sys::cuLinkComplete(link.state, &mut image, &mut len_bytes) };
    context.check("cuLinkComplete", result)?;
    if image.is_null() {
        let reason = "there is no image".to_owned();
        return Err(MachineError::Driver { call: "cuLinkComplete".to_owned(), reason });
    }
    // SAFETY: the driver's image has this length and lives as long as the link.
    Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), len_bytes) }.to_vec())
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if !self.state.is_null() {
            // SAFETY: it was made once, and of its image there is a copy.
            self.context.give_back("cuLinkDestroy", || unsafe { sys::cuLinkDestroy(self.state) });
        }
    }
}
