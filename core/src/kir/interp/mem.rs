//! Memory: bounds, what was never written, and races.
//!
//! Each element remembers who wrote and who read it last, and in which epoch: a barrier begins a new one for its workgroup.
//! Two invocations that touch an element in the same epoch, at least one of them writing, race; so do workgroups, which no
//! barrier orders.

use super::super::kernel::{Attr, Inst, Kernel, ObjectId, Space};
use super::{Machine, Trap};

/// An invocation at a time: workgroup, epoch in it, and lane, from 1; 0 for nobody.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Touch {
    group: u32,
    epoch: u32,
    lane: u32,
}

impl Touch {
    fn is_somebody(self) -> bool {
        self.lane != 0
    }

    /// Whether another touch comes after this one for sure.
    fn is_before(self, other: Touch) -> bool {
        self.group == other.group && (self.lane == other.lane || self.epoch < other.epoch)
    }
}

/// All objects.
pub struct Memory {
    objects: Vec<Array>,
    group: u32,
    epoch: u32,
}

struct Array {
    bytes: Vec<u8>,
    elem_len_bytes: usize,
    is_shared: bool,
    writers: Vec<Touch>,
    /// Kept for objects that are read and written.
    readers: Vec<Touch>,
}

impl Memory {
    /// Buffers for the objects that are not shared, in order.
    pub fn new(kernel: &Kernel, buffers: Vec<Vec<u8>>) -> Self {
        let mut buffers = buffers.into_iter();
        let objects = kernel.objects.iter().map(|object| {
            let elem_len_bytes = object.elem.stored_len_bytes().unwrap_or(4) as usize;
            let (bytes, is_shared) = match object.space {
                Space::Shared { len } => (vec![0; len as usize * elem_len_bytes], true),
                _ => (buffers.next().unwrap_or_else(|| panic!("no buffer for `{}`", object.name)), false),
            };
            let len = bytes.len() / elem_len_bytes;
            let touches = |kept: bool| if kept { vec![Touch::default(); len] } else { Vec::new() };
            let (written, both) =
                (object.space.is_writable(), object.space.is_writable() && object.space.is_readable());
            Array { bytes, elem_len_bytes, is_shared, writers: touches(written), readers: touches(both) }
        });
        let objects = objects.collect();
        assert!(buffers.next().is_none(), "more buffers than objects");
        Self { objects, group: 0, epoch: 0 }
    }

    /// The buffers, as the kernel left them.
    pub fn into_buffers(self) -> Vec<Vec<u8>> {
        self.objects.into_iter().filter(|array| !array.is_shared).map(|array| array.bytes).collect()
    }

    /// Begins the next workgroup: shared memory is undefined again.
    pub fn next_group(&mut self) {
        self.group += 1;
        self.epoch = 1;
        for array in self.objects.iter_mut().filter(|array| array.is_shared) {
            array.writers.fill(Touch::default());
            array.readers.fill(Touch::default());
        }
    }

    /// Begins the next epoch of the workgroup.
    pub fn barrier(&mut self) {
        self.epoch += 1;
    }

    fn touch(&self, lane: usize) -> Touch {
        Touch { group: self.group, epoch: self.epoch, lane: lane as u32 + 1 }
    }

    fn check(&self, id: ObjectId, index: u32, width: usize) -> Result<usize, String> {
        let array = &self.objects[id.index()];
        let len = array.bytes.len() / array.elem_len_bytes;
        if !(index as usize).is_multiple_of(width) {
            return Err(format!("index {index} is no multiple of {width}"));
        }
        match (index as usize).checked_add(width) {
            Some(end) if end <= len => Ok(index as usize),
            _ => Err(format!("element {index} of {len}")),
        }
    }

    fn load(&mut self, id: ObjectId, index: u32, lane: usize, out: &mut [u32]) -> Result<(), String> {
        let (at, now) = (self.check(id, index, out.len())?, self.touch(lane));
        let array = &mut self.objects[id.index()];
        for (at, out) in (at..).zip(out) {
            if let Some(&writer) = array.writers.get(at) {
                if array.is_shared && !writer.is_somebody() {
                    return Err(format!("element {at} was not written"));
                }
                if writer.is_somebody() && !writer.is_before(now) {
                    return Err(format!(
                        "a race: element {at} was written by invocation {} just now",
                        writer.lane - 1
                    ));
                }
                let reader = &mut array.readers[at];
                // Of several readers of an epoch, one is remembered: two at least are told by the lane that nobody has.
                let is_shared_read = reader.is_somebody() && !reader.is_before(now);
                *reader = if is_shared_read { Touch { lane: u32::MAX, ..now } } else { now };
            }
            let bytes = &array.bytes[at * array.elem_len_bytes..][..array.elem_len_bytes];
            *out = match *bytes {
                [a, b] => u32::from(u16::from_le_bytes([a, b])),
                [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
                _ => unreachable!("elements have two or four bytes"),
            };
        }
        Ok(())
    }

    fn store(&mut self, id: ObjectId, index: u32, lane: usize, words: &[u32]) -> Result<(), String> {
        let (at, now) = (self.check(id, index, words.len())?, self.touch(lane));
        let array = &mut self.objects[id.index()];
        for (at, word) in (at..).zip(words) {
            let others = [Some(array.writers[at]), array.readers.get(at).copied()];
            if others.into_iter().flatten().any(|other| other.is_somebody() && !other.is_before(now)) {
                return Err(format!("a race: another invocation touched element {at} just now"));
            }
            array.writers[at] = now;
            let bytes = &mut array.bytes[at * array.elem_len_bytes..][..array.elem_len_bytes];
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    }
}

impl Machine<'_> {
    pub(super) fn load(&mut self, inst: &Inst, active: &[bool]) -> Result<(), Trap> {
        let (Attr::Object(id), Some(result)) = (inst.attr, inst.result) else { return Ok(()) };
        let mut out = std::mem::take(&mut self.registers[result.index()]);
        let width = out.len() / self.lanes;
        for lane in 0..self.lanes {
            if active[lane] {
                let index = self.registers[inst.operands[0].index()][lane];
                let loaded = self.memory.load(id, index, lane, &mut out[lane * width..][..width]);
                loaded.map_err(|problem| self.trap(lane, self.kernel.inst_text(inst), problem))?;
            }
        }
        self.registers[result.index()] = out;
        Ok(())
    }

    pub(super) fn store(&mut self, inst: &Inst, active: &[bool]) -> Result<(), Trap> {
        let Attr::Object(id) = inst.attr else { return Ok(()) };
        let value = std::mem::take(&mut self.registers[inst.operands[1].index()]);
        let width = value.len() / self.lanes;
        for lane in 0..self.lanes {
            if active[lane] {
                // A value may be its own index.
                let index = match inst.operands[0] == inst.operands[1] {
                    true => value[lane],
                    false => self.registers[inst.operands[0].index()][lane],
                };
                let stored = self.memory.store(id, index, lane, &value[lane * width..][..width]);
                stored.map_err(|problem| self.trap(lane, self.kernel.inst_text(inst), problem))?;
            }
        }
        self.registers[inst.operands[1].index()] = value;
        Ok(())
    }
}
