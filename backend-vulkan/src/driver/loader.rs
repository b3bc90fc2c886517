//! The loader: the library that finds drivers.

use std::path::Path;

use ash::{Entry, vk};

/// The Vulkan version that devices have to have.
pub const LEAST_VERSION: u32 = vk::API_VERSION_1_2;

/// Why there is no Vulkan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVulkan {
    /// There is no loader.
    #[error(
        "no Vulkan loader ({reason}); install it: libvulkan1 on Debian and Ubuntu, vulkan-loader on Fedora, \
         vulkan-icd-loader on Arch, the GPU vendor's driver on Windows"
    )]
    Loader {
        /// What the system said.
        reason: String,
    },
    /// The loader is older than what we ask of it.
    #[error(
        "the Vulkan loader is of version {found}, and 1.2 is the oldest that serves; install a newer one"
    )]
    OldLoader {
        /// Its version.
        found: String,
    },
    /// The loader found no driver.
    #[error(
        "the Vulkan loader found no driver; install the GPU vendor's, or mesa-vulkan-drivers on Debian, Ubuntu and \
         Fedora; if VK_ICD_FILENAMES or VK_DRIVER_FILES is set, it has to name the driver's file"
    )]
    NoDriver,
    /// The validation layer was asked for and is not there.
    #[error(
        "the Vulkan validation layer is not installed; install vulkan-validationlayers (Debian, Ubuntu, Fedora) or do \
         without"
    )]
    NoValidation,
    /// The loader failed.
    #[error("the Vulkan loader failed in {call}: {reason}")]
    Failed {
        /// What was asked for.
        call: &'static str,
        /// What it said.
        reason: String,
    },
}

/// Opens the loader.
pub fn load(path: Option<&Path>) -> Result<Entry, NoVulkan> {
    // SAFETY: the library is the system's Vulkan loader, or one that the user names as such, whose initialisation has no
    // requirements; the entry keeps it loaded, and everything made from it keeps the entry.
    let entry = unsafe {
        match path {
            Some(path) => Entry::load_from(path),
            None => Entry::load(),
        }
    };
    let entry = entry.map_err(|error| NoVulkan::Loader { reason: error.to_string() })?;
    // SAFETY: the call has no requirements.
    let version = unsafe { entry.try_enumerate_instance_version() };
    let version = version
        .map_err(|error| NoVulkan::Failed { call: "vkEnumerateInstanceVersion", reason: error.to_string() })?
        .unwrap_or(vk::API_VERSION_1_0);
    if version < LEAST_VERSION {
        return Err(NoVulkan::OldLoader { found: version_text(version) });
    }
    Ok(entry)
}

/// A version of the API, as people write it.
pub fn version_text(version: u32) -> String {
    let [major, minor, patch] =
        [vk::api_version_major(version), vk::api_version_minor(version), vk::api_version_patch(version)];
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_loader_says_what_to_install() {
        let error = load(Some(Path::new("/nowhere/libvulkan.so.1"))).err();
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.starts_with("no Vulkan loader ("), "{text}");
        assert!(text.contains("/nowhere/libvulkan.so.1") && text.contains("libvulkan1 on Debian"), "{text}");
    }

    #[test]
    fn versions_are_written_as_three_numbers() {
        assert_eq!(version_text(vk::make_api_version(0, 1, 3, 239)), "1.3.239");
    }
}
