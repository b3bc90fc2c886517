//! Device memory of a program: whether it fits, one buffer for each area, and where places lie in them.

use std::collections::HashMap;

use unisonic_core::kir::abi::READABLE_LEN_BYTES;
use unisonic_core::launch::{Area, Memory, Place};
use unisonic_core::plan::{DeviceError, Limits, PAGE_TOKENS, Plan};

use crate::machine::{Machine, Span};
use crate::shared::SharedMachine;

/// The buffers of a program; they are freed while nobody else uses the machine.
pub(crate) struct Areas<M: Machine> {
    machine: SharedMachine<M>,
    buffers: HashMap<Area, Buffer<M>>,
}

struct Buffer<M: Machine> {
    handle: M::Buffer,
    len_bytes: u64,
}

impl<M: Machine> Areas<M> {
    /// All that a program will ever have.
    pub(crate) fn allocate(
        machine: &SharedMachine<M>,
        plan: &Plan,
        memory: &Memory,
    ) -> Result<Self, DeviceError> {
        let mut areas = Self { machine: machine.clone(), buffers: HashMap::new() };
        for (index, image) in (0..).zip(&memory.images) {
            areas.add(Area::Image(index), image.len_bytes(plan), &image.name(plan))?;
        }
        for (layer, page_len_bytes) in (0..).zip(&memory.page_len_bytes) {
            let len_bytes = page_len_bytes * u64::from(memory.pages);
            areas.add(Area::Cache(layer), len_bytes, "the KV cache of a layer")?;
        }
        areas.add(Area::Arena, memory.arena_len_bytes, "activations")?;
        areas.add(Area::Inputs, memory.inputs_len_bytes, "the inputs of a run")?;
        Ok(areas)
    }

    fn add(&mut self, area: Area, len_bytes: u64, what: &str) -> Result<(), DeviceError> {
        // No driver gives an empty buffer.
        let padded = len_bytes.max(1).next_multiple_of(READABLE_LEN_BYTES);
        let handle = self.machine.call(|machine| machine.allocate(padded, what))?;
        self.buffers.insert(area, Buffer { handle, len_bytes });
        Ok(())
    }

    /// Copies bytes to an area.
    pub(crate) fn upload(&self, area: Area, offset_bytes: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.machine.call(|machine| machine.upload(&self.buffers[&area].handle, offset_bytes, bytes))
    }

    /// Where a place of the launches is.
    ///
    /// # Panics
    /// If it is not inside its area: the lowering is wrong, and a GPU would write elsewhere.
    pub(crate) fn span(&self, place: &Place) -> Span<M> {
        let buffer = &self.buffers[&place.area];
        let end_bytes = place.offset_bytes.checked_add(place.len_bytes);
        let is_inside = end_bytes.is_some_and(|end_bytes| end_bytes <= buffer.len_bytes);
        assert!(is_inside, "{place:?} is not inside {} bytes", buffer.len_bytes);
        Span { buffer: buffer.handle.clone(), offset_bytes: place.offset_bytes, len_bytes: place.len_bytes }
    }
}

impl<M: Machine> Drop for Areas<M> {
    fn drop(&mut self) {
        self.machine.release(std::mem::take(&mut self.buffers));
    }
}

/// Refuses what the device has no memory for, before any of it is allocated; says which context there is memory for.
pub(crate) fn check_fits(
    device: &str,
    memory: &Memory,
    plan: &Plan,
    limits: Limits,
    free_bytes: Option<u64>,
) -> Result<(), DeviceError> {
    let needed_bytes = memory.len_bytes(plan);
    tracing::info!(device, needed_bytes, free_bytes, "memory of the device");
    let Some(free_bytes) = free_bytes.filter(|&free_bytes| free_bytes < needed_bytes) else {
        return Ok(());
    };
    // What else depends on the context only becomes less with it, so the answer is on the safe side.
    let page_len_bytes: u64 = memory.page_len_bytes.iter().sum();
    let without_context = needed_bytes - page_len_bytes * u64::from(limits.kv_pages.min(memory.pages));
    let fitting_pages =
        free_bytes.checked_sub(without_context).and_then(|left| left.checked_div(page_len_bytes));
    let fitting_tokens = fitting_pages.filter(|&pages| pages > 0).map(|pages| pages * u64::from(PAGE_TOKENS));
    Err(DeviceError::TooLarge { device: device.to_owned(), needed_bytes, free_bytes, fitting_tokens })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisonic_core::launch::{Image, Shape};
    use unisonic_core::plan::BufferId;

    /// 1000 bytes of weights, 10 pages of 300 bytes and one for rows that fill up, 500 bytes of other things.
    fn check(free_bytes: Option<u64>) -> Result<(), String> {
        let plan = Plan {
            architecture: "test".into(),
            vocab_len: 1,
            context_len: 1,
            weights: vec![],
            buffers: vec![],
            rope_tables: vec![],
            kv_layers: vec![],
            input: None,
            steps: vec![],
            logits: BufferId(0),
        };
        let memory = Memory {
            images: vec![Image::Words(vec![0; 250])],
            page_len_bytes: vec![100, 200],
            pages: 11,
            arena_len_bytes: 400,
            inputs_len_bytes: 100,
            largest: Shape { rows: 1, outputs: 1, groups: 1 },
        };
        let limits = Limits { kv_pages: 10, max_rows: 1, max_outputs: 1 };
        check_fits("gpu", &memory, &plan, limits, free_bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn what_fits_is_told_before_anything_is_allocated() {
        assert_eq!(check(None), Ok(()));
        assert_eq!(check(Some(4800)), Ok(()));
        let error = check(Some(4799)).unwrap_err();
        assert!(error.contains("need 4800 bytes of device memory, but 4799 are free"), "{error}");
        assert!(error.ends_with("a context of at most 576 tokens would fit"), "{error}");
        assert!(check(Some(2100)).unwrap_err().ends_with("at most 64 tokens would fit"));
        for free_bytes in [0, 2099] {
            assert!(check(Some(free_bytes)).unwrap_err().contains("no context would fit"));
        }
    }
}
