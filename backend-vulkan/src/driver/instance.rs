//! The instance: our connection to the loader.

use std::path::Path;
use std::sync::Arc;

use ash::{Entry, vk};

use super::loader::{NoVulkan, load};
use super::validation::{LAYER, Validation};

/// An instance, which goes when nothing uses it any more.
pub struct Instance {
    /// Calls of the instance.
    pub raw: ash::Instance,
    /// Calls of the loader; holds its library.
    pub entry: Entry,
    validation: Option<Validation>,
}

impl Instance {
    /// Opens the loader and makes one.
    pub fn new(loader: Option<&Path>, validation: bool) -> Result<Arc<Self>, NoVulkan> {
        let entry = load(loader)?;
        let app = vk::ApplicationInfo::default()
            .application_name(c"unisonic")
            .engine_name(c"unisonic")
            .api_version(vk::API_VERSION_1_3);
        let (mut layers, mut extensions) = (vec![], vec![]);
        if validation {
            layers.push(LAYER.as_ptr());
            extensions.push(ash::ext::debug_utils::NAME.as_ptr());
        }
        let info = vk::InstanceCreateInfo::default()
            .application_info(&app)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&extensions);
        // SAFETY: the structures and what they point to live through the call.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|error| match error {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => NoVulkan::NoDriver,
            vk::Result::ERROR_LAYER_NOT_PRESENT | vk::Result::ERROR_EXTENSION_NOT_PRESENT => {
                NoVulkan::NoValidation
            }
            error => NoVulkan::Failed { call: "vkCreateInstance", reason: error.to_string() },
        })?;
        let mut instance = Self { raw, entry, validation: None };
        if validation {
            let messenger = Validation::new(&instance.entry, &instance.raw);
            instance.validation = Some(messenger.map_err(|error| NoVulkan::Failed {
                call: "vkCreateDebugUtilsMessengerEXT",
                reason: error.to_string(),
            })?);
        }
        Ok(Arc::new(instance))
    }

    /// What the loader finds, in its order.
    pub fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>, NoVulkan> {
        // SAFETY: the instance is valid.
        let devices = unsafe { self.raw.enumerate_physical_devices() }.map_err(|error| NoVulkan::Failed {
            call: "vkEnumeratePhysicalDevices",
            reason: error.to_string(),
        })?;
        if devices.is_empty() { Err(NoVulkan::NoDriver) } else { Ok(devices) }
    }

    /// What the validation layer has said.
    pub fn validation_messages(&self) -> Vec<String> {
        self.validation.as_ref().map_or(vec![], Validation::messages)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The messenger is the instance's and goes first.
        self.validation = None;
        // SAFETY: devices hold the instance, so that none is left; it is destroyed once.
        unsafe { self.raw.destroy_instance(None) };
    }
}
