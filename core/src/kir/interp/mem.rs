//! Memory: bounds, what was never written, and races.
//!
//! Each element remembers who wrote and who read it last, and in which epoch: a barrier begins a new one for
//! its workgroup. Two invocations that touch an element in the same epoch, at least one of them writing,
//! race; so do workgroups, which no barrier orders. An element that is being copied to may be touched by
//! nobody.

use super::super::kernel::{Attr, Inst, Kernel, ObjectId, Space};
use super::super::op::{MATRIX_CLUSTER, Op};
use super::super::waits::is_early;
use super::active::Active;
use super::copies::Copy;
use super::{Machine, Trap};

const CLUSTER: usize = MATRIX_CLUSTER as usize;

/// An invocation at a time: workgroup, epoch in it, and lane, from 1; 0 for nobody.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Touch {
    group: u32,
    epoch: u32,
    lane: u32,
}

impl Touch {
    /// The lane of several readers of an epoch, or of one that is not known: none that exists.
    const SEVERAL: u32 = u32::MAX;
    /// The lane of a copy that has not arrived.
    const COPYING: u32 = u32::MAX - 1;
    /// The lane of readers in several workgroups.
    const GROUPS: u32 = u32::MAX - 2;

    fn is_somebody(self) -> bool {
        self.lane != 0
    }

    /// Whether another touch comes after this one for sure.
    fn is_before(self, other: Touch) -> bool {
        let is_over = self.lane == other.lane || self.epoch < other.epoch;
        self.group == other.group && is_over && !matches!(self.lane, Self::COPYING | Self::GROUPS)
    }

    fn text(self, what: &str, at: usize) -> String {
        match self.lane {
            Self::COPYING => format!("element {at} is being copied to: wait for the copy"),
            Self::GROUPS => format!("a race: element {at} was {what} by several workgroups"),
            Self::SEVERAL => format!("a race: element {at} was {what} by several invocations just now"),
            // Groups are counted from 1 here.
            lane => format!(
                "a race: element {at} was {what} by invocation {} of workgroup {} just now",
                lane - 1,
                self.group - 1
            ),
        }
    }
}

/// All objects.
pub struct Memory {
    objects: Vec<Array>,
    group: u32,
    epoch: u32,
}

struct Array {
    words: Vec<u32>,
    /// Of the buffer; the last word may be filled up.
    len_bytes: usize,
    is_shared: bool,
    writers: Vec<Touch>,
    /// Kept for objects that are read and written.
    readers: Vec<Touch>,
}

impl Array {
    /// The element that begins a vector, if all of it exists.
    fn at(&self, index: u32, width: usize) -> Result<usize, String> {
        let (at, len) = (index as usize, self.words.len());
        if width > 1 && !at.is_multiple_of(width) {
            return Err(format!("index {index} is no multiple of {width}"));
        }
        if at + width <= len { Ok(at) } else { Err(format!("element {index} of {len}")) }
    }

    /// Notes that an invocation reads an element.
    fn read(&mut self, at: usize, now: Touch) -> Result<(), String> {
        let Some(&writer) = self.writers.get(at) else { return Ok(()) };
        if self.is_shared && !writer.is_somebody() {
            return Err(format!("element {at} was not written"));
        }
        if writer.is_somebody() && !writer.is_before(now) {
            return Err(writer.text("written", at));
        }
        let reader = &mut self.readers[at];
        *reader = if !reader.is_somebody() || reader.is_before(now) {
            now
        } else if reader.group != now.group || reader.lane == Touch::GROUPS {
            Touch { lane: Touch::GROUPS, ..now }
        } else {
            Touch { lane: Touch::SEVERAL, ..now }
        };
        Ok(())
    }

    /// Notes that an invocation writes an element, and leaves `mark` as its writer.
    fn write(&mut self, at: usize, now: Touch, mark: Touch) -> Result<(), String> {
        let others = [(Some(self.writers[at]), "written"), (self.readers.get(at).copied(), "read")];
        for (other, what) in others {
            if let Some(other) = other.filter(|other| other.is_somebody() && !other.is_before(now)) {
                return Err(other.text(what, at));
            }
        }
        self.writers[at] = mark;
        Ok(())
    }
}

impl Memory {
    /// Buffers for the objects that are not shared, in order.
    pub fn new(kernel: &Kernel, buffers: Vec<Vec<u8>>) -> Self {
        let mut buffers = buffers.into_iter();
        let objects = kernel.objects.iter().map(|object| {
            let (words, len_bytes, is_shared) = match object.space {
                Space::Shared { len } => (vec![0; len as usize], 0, true),
                _ => {
                    let bytes = buffers.next().unwrap_or_else(|| panic!("no buffer for `{}`", object.name));
                    (words(&bytes), bytes.len(), false)
                }
            };
            let len = words.len();
            let touches = |kept: bool| if kept { vec![Touch::default(); len] } else { Vec::new() };
            let (written, both) =
                (object.space.is_writable(), object.space.is_writable() && object.space.is_readable());
            Array { words, len_bytes, is_shared, writers: touches(written), readers: touches(both) }
        });
        let objects = objects.collect();
        assert!(buffers.next().is_none(), "more buffers than objects");
        Self { objects, group: 0, epoch: 0 }
    }

    /// The buffers, as the kernel left them.
    pub fn into_buffers(self) -> Vec<Vec<u8>> {
        let buffers = self.objects.into_iter().filter(|array| !array.is_shared).map(|array| {
            let mut bytes: Vec<u8> = array.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.truncate(array.len_bytes);
            bytes
        });
        buffers.collect()
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

    fn touch(&self, lane: usize) -> Touch {
        Touch { group: self.group, epoch: self.epoch, lane: lane as u32 + 1 }
    }

    fn load(&mut self, id: ObjectId, index: u32, lane: usize, out: &mut [u32]) -> Result<(), String> {
        let now = self.touch(lane);
        let array = &mut self.objects[id.index()];
        let at = array.at(index, out.len())?;
        for (at, out) in (at..).zip(out) {
            array.read(at, now)?;
            *out = array.words[at];
        }
        Ok(())
    }

    /// The words of a matrix B that an invocation gets. Which of the cluster's invocations reads them nobody
    /// says, so what one of them has just written itself is in a race too.
    fn load_b(
        &mut self,
        id: ObjectId,
        index: u32,
        stride: u32,
        lane: usize,
        out: &mut [u32],
    ) -> Result<(), String> {
        let now = Touch { lane: Touch::SEVERAL, ..self.touch(lane) };
        let array = &mut self.objects[id.index()];
        let (g, t) = (lane % CLUSTER / 4, lane % 4);
        let column = array.at(index, 4)? + g * stride as usize;
        for (at, out) in (column + t..).step_by(4).zip(out) {
            let len = array.words.len();
            let word = array.words.get(at).copied().ok_or_else(|| format!("element {at} of {len}"))?;
            array.read(at, now)?;
            *out = word;
        }
        Ok(())
    }

    fn store(&mut self, id: ObjectId, index: u32, lane: usize, words: &[u32]) -> Result<(), String> {
        let now = self.touch(lane);
        let array = &mut self.objects[id.index()];
        let at = array.at(index, words.len())?;
        for (at, &word) in (at..).zip(words) {
            array.write(at, now, now)?;
            array.words[at] = word;
        }
        Ok(())
    }

    /// The words that a copy reads; its destination is out of bounds until [`Self::arrive`].
    fn begin_copy(
        &mut self,
        lane: usize,
        (to, at): (ObjectId, u32),
        (from, index): (ObjectId, u32),
    ) -> Result<Copy, String> {
        let mut words = [0; 4];
        self.load(from, index, lane, &mut words)?;
        let now = self.touch(lane);
        let array = &mut self.objects[to.index()];
        let first = array.at(at, 4)?;
        for at in first..first + 4 {
            array.write(at, now, Touch { lane: Touch::COPYING, ..now })?;
        }
        Ok(Copy { to, at, words })
    }

    fn arrive(&mut self, lane: usize, copy: Copy) {
        let now = self.touch(lane);
        let array = &mut self.objects[copy.to.index()];
        for (at, word) in (copy.at as usize..).zip(copy.words) {
            array.writers[at] = now;
            array.words[at] = word;
        }
    }
}

/// Little-endian words; a last one that is not whole is filled up with zeros.
fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    };
    bytes.chunks(4).map(word).collect()
}

impl Machine<'_> {
    /// An operation on memory.
    pub(super) fn mem(&mut self, inst: &Inst, active: &Active) -> Result<(), Trap> {
        if self.is_early && !is_early(self.kernel, inst) {
            let problem = "the launches before this one have not been waited for".to_owned();
            return Err(self.trap(active.lanes().next().unwrap_or(0), self.kernel.inst_text(inst), problem));
        }
        match (inst.op, inst.attr) {
            (Op::Barrier, _) => self.memory.epoch += 1,
            (Op::WaitLaunches, _) => self.is_early = false,
            (Op::Prefetch, Attr::Object(id)) => return self.prefetch(inst, id, active),
            (Op::Store, Attr::Object(id)) => return self.store(inst, id, active),
            (Op::LoadB, Attr::Columns { of, stride }) => return self.load_b(inst, of, stride, active),
            (Op::CopyAsync, Attr::Copy { to, from }) => return self.begin_copy(inst, to, from, active),
            (Op::CopyCommit, _) => active.lanes().for_each(|lane| self.copies.commit(lane)),
            (Op::CopyWait, Attr::Index(groups)) => {
                for lane in active.lanes() {
                    for copy in self.copies.arrived(lane, groups) {
                        self.memory.arrive(lane, copy);
                    }
                }
            }
            (_, Attr::Object(id)) => return self.load(inst, id, active),
            _ => unreachable!("`{}` has another attribute", inst.op.row().mnemonic),
        }
        Ok(())
    }

    /// Only looks whether the elements exist.
    fn prefetch(&mut self, inst: &Inst, id: ObjectId, active: &Active) -> Result<(), Trap> {
        for lane in active.lanes() {
            let index = self.registers[inst.operands[0].index()][lane];
            let found = self.memory.objects[id.index()].at(index, 1);
            found.map_err(|problem| self.trap(lane, self.kernel.inst_text(inst), problem))?;
        }
        Ok(())
    }

    fn load(&mut self, inst: &Inst, id: ObjectId, active: &Active) -> Result<(), Trap> {
        let Some(result) = inst.result else { return Ok(()) };
        let mut out = std::mem::take(&mut self.registers[result.index()]);
        let width = out.len() / self.lanes;
        for lane in active.lanes() {
            let index = self.registers[inst.operands[0].index()][lane];
            let loaded = self.memory.load(id, index, lane, &mut out[lane * width..][..width]);
            loaded.map_err(|problem| self.trap(lane, self.kernel.inst_text(inst), problem))?;
        }
        self.registers[result.index()] = out;
        Ok(())
    }

    fn load_b(&mut self, inst: &Inst, of: ObjectId, stride: u32, active: &Active) -> Result<(), Trap> {
        let Some(result) = inst.result else { return Ok(()) };
        let mut out = std::mem::take(&mut self.registers[result.index()]);
        for lane in active.lanes() {
            let indices = &self.registers[inst.operands[0].index()];
            let (index, first) = (indices[lane], indices[lane / CLUSTER * CLUSTER]);
            let loaded = if index == first {
                self.memory.load_b(of, index, stride, lane, &mut out[2 * lane..][..2])
            } else {
                Err(format!("index {index} in a cluster whose first invocation has {first}"))
            };
            loaded.map_err(|problem| self.trap(lane, self.kernel.inst_text(inst), problem))?;
        }
        self.registers[result.index()] = out;
        Ok(())
    }

    fn store(&mut self, inst: &Inst, id: ObjectId, active: &Active) -> Result<(), Trap> {
        let (indices, value) = (inst.operands[0].index(), inst.operands[1].index());
        let width = self.registers[value].len() / self.lanes;
        for lane in active.lanes() {
            let index = self.registers[indices][lane];
            let words = &self.registers[value][lane * width..][..width];
            let stored = self.memory.store(id, index, lane, words);
            stored.map_err(|problem| self.trap(lane, self.kernel.inst_text(inst), problem))?;
        }
        Ok(())
    }

    fn begin_copy(&mut self, inst: &Inst, to: ObjectId, from: ObjectId, active: &Active) -> Result<(), Trap> {
        for lane in active.lanes() {
            let [at, index] = [0, 1].map(|operand| self.registers[inst.operands[operand].index()][lane]);
            match self.memory.begin_copy(lane, (to, at), (from, index)) {
                Ok(copy) => self.copies.begin(lane, copy),
                Err(problem) => return Err(self.trap(lane, self.kernel.inst_text(inst), problem)),
            }
        }
        Ok(())
    }
}
