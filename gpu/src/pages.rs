//! KV pages to the host and back, in the order that all devices share ([`KvLayer`]).

use std::sync::Arc;

use unisonic_core::launch::{Lowered, Memory};
use unisonic_core::plan::{KvLayer, Plan};

/// How pages lie in device memory, and outside of it.
pub(crate) struct PageLayout {
    layers: Vec<Layer>,
}

struct Layer {
    layer: KvLayer,
    /// Which byte of a head's part each byte outside is; layers that are alike share it.
    bytes: Arc<[u32]>,
}

impl PageLayout {
    /// Of a program; none if its pages cannot be had from outside.
    pub(crate) fn of(plan: &Plan, lowered: &dyn Lowered) -> Option<Self> {
        let mut layers: Vec<Layer> = Vec::with_capacity(plan.kv_layers.len());
        for (index, &layer) in plan.kv_layers.iter().enumerate() {
            let alike = layers.iter().find(|other| other.layer.head_len == layer.head_len);
            let bytes = match alike {
                Some(alike) => Arc::clone(&alike.bytes),
                None => lowered.page_bytes(index)?.into(),
            };
            layers.push(Layer { layer, bytes });
        }
        fits(&layers, lowered.memory()).then_some(Self { layers })
    }

    /// Bytes of a page in each layer.
    pub(crate) fn len_bytes(&self) -> impl Iterator<Item = usize> {
        self.layers.iter().map(|layer| layer.layer.page_len_bytes())
    }

    /// Appends a page, which is `from` on the device, all layers one after the other.
    pub(crate) fn export(&self, from: &[u8], to: &mut Vec<u8>) {
        self.each_head(from.len(), |bytes, at| {
            let head = &from[at..][..bytes.len()];
            to.extend(bytes.iter().map(|&byte| head[byte as usize]));
        });
    }

    /// A page as the device has it.
    pub(crate) fn import(&self, from: &[u8]) -> Vec<u8> {
        let mut to = vec![0; from.len()];
        self.each_head(from.len(), |bytes, at| {
            let (from, to) = (&from[at..][..bytes.len()], &mut to[at..][..bytes.len()]);
            bytes.iter().zip(from).for_each(|(&byte, &value)| to[byte as usize] = value);
        });
        to
    }

    /// Calls for each head of each layer, with where its part begins.
    fn each_head(&self, len_bytes: usize, mut call: impl FnMut(&[u32], usize)) {
        debug_assert_eq!(self.len_bytes().sum::<usize>(), len_bytes);
        let mut at = 0;
        for Layer { layer, bytes } in &self.layers {
            for _ in 0..layer.heads {
                call(bytes, at);
                at += bytes.len();
            }
        }
    }
}

/// Whether pages are as long on the device as outside, as they are if each of their bytes has one place.
fn fits(layers: &[Layer], memory: &Memory) -> bool {
    let is_whole = |layer: &Layer| layer.bytes.len() == layer.layer.head_len_bytes();
    let lens = layers.iter().map(|layer| layer.layer.page_len_bytes() as u64);
    layers.iter().all(is_whole) && lens.eq(memory.page_len_bytes.iter().copied())
}
