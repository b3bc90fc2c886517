//! What the Khronos validation layer says.

use std::ffi::{CStr, c_void};
use std::sync::{Mutex, PoisonError};

use ash::prelude::VkResult;
use ash::{Entry, ext, vk};

/// The layer.
pub const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// Listens to the layer.
pub struct Validation {
    calls: ext::debug_utils::Instance,
    messenger: vk::DebugUtilsMessengerEXT,
    /// Boxed, as the layer holds its address.
    messages: Box<Mutex<Vec<String>>>,
}

impl Validation {
    /// Begins to listen.
    pub fn new(entry: &Entry, instance: &ash::Instance) -> VkResult<Self> {
        use vk::{DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Kind};
        let messages = Box::new(Mutex::new(vec![]));
        let calls = ext::debug_utils::Instance::new(entry, instance);
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(Severity::ERROR | Severity::WARNING)
            .message_type(Kind::VALIDATION | Kind::PERFORMANCE)
            .pfn_user_callback(Some(hear))
            .user_data((&raw const *messages).cast_mut().cast());
        // SAFETY: the instance has the extension; what the callback is given lives until the messenger is destroyed.
        let messenger = unsafe { calls.create_debug_utils_messenger(&info, None) }?;
        Ok(Self { calls, messenger, messages })
    }

    /// All that was heard.
    pub fn messages(&self) -> Vec<String> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Validation {
    fn drop(&mut self) {
        // SAFETY: the instance still lives, and the messenger is destroyed once.
        unsafe { self.calls.destroy_debug_utils_messenger(self.messenger, None) };
    }
}

/// Called by the layer, from any thread, inside a call of ours.
unsafe extern "system" fn hear(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    messages: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer gives a valid structure, and what `Validation::new` gave it, which lives as long as the messenger.
    let (text, messages) = unsafe {
        let text =
            (*data).message_as_c_str().map_or_else(String::new, |text| text.to_string_lossy().into_owned());
        (text, &*messages.cast::<Mutex<Vec<String>>>())
    };
    tracing::error!("Vulkan validation: {text}");
    messages.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    // The call goes on.
    vk::FALSE
}
