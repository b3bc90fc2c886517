//! What the driver keeps of a pipeline, so that the next start need not compile it.
//!
//! Each pipeline has an entry of its own, found by its code and all else that it is made of: no two processes write over what
//! the other made, and what is not used any more goes by itself.

use ash::vk;
use unisonic_cache::{Key, Kind};

use super::device::Device;
use super::pipeline::Code;

/// A cache of the driver's, for one pipeline.
pub struct Kept<'a> {
    device: &'a Device,
    raw: vk::PipelineCache,
    key: Option<Key>,
    /// Whether what an earlier start kept is in it.
    pub is_filled: bool,
}

impl<'a> Kept<'a> {
    /// With what an earlier start kept of a pipeline of this code. `how` is all else that the pipeline is made of.
    pub fn new(device: &'a Device, code: &Code, how: &str) -> Self {
        let mut kept = Self { device, raw: vk::PipelineCache::null(), key: None, is_filled: false };
        let Some(cache) = device.kept.as_ref().filter(|_| code.is_kept) else { return kept };
        let words: Vec<u8> = code.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let key = Key::builder(Kind::VulkanPipeline)
            .field("code", words)
            .field("pipeline", how)
            .field("device", &device.features.identity)
            .finish();
        kept.key = Some(key);
        let data = cache.get(&key);
        kept.is_filled = data.is_some() && kept.create(data.as_deref().unwrap_or_default());
        if !kept.is_filled {
            if data.is_some() {
                cache.remove(&key);
            }
            kept.create(&[]);
        }
        kept
    }

    /// Whether the driver has made a cache with this in it.
    fn create(&mut self, data: &[u8]) -> bool {
        let info = vk::PipelineCacheCreateInfo::default().initial_data(data);
        // SAFETY: the structure lives through the call; the data is nothing, or what this driver gave, whole.
        match unsafe { self.device.raw.create_pipeline_cache(&info, None) } {
            Ok(raw) => self.raw = raw,
            // It goes without.
            Err(error) => tracing::debug!("vkCreatePipelineCache failed: {error}"),
        }
        self.raw != vk::PipelineCache::null()
    }

    /// For making the pipeline; null where nothing is kept.
    pub fn raw(&self) -> vk::PipelineCache {
        self.raw
    }

    /// Keeps what the driver has put into it, once the pipeline is made.
    pub fn keep(&self, label: &str) {
        let (Some(cache), Some(key), false) = (&self.device.kept, &self.key, self.is_filled) else { return };
        if self.raw == vk::PipelineCache::null() {
            return;
        }
        // SAFETY: the cache is the device's.
        match unsafe { self.device.raw.get_pipeline_cache_data(self.raw) } {
            Ok(data) => cache.put(key, &format!("{label}, {}", self.device.features.name), &data),
            Err(error) => tracing::debug!("vkGetPipelineCacheData failed: {error}"),
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once, and a pipeline does not need it once it is made. A null handle is ignored.
        unsafe { self.device.raw.destroy_pipeline_cache(self.raw, None) };
    }
}
