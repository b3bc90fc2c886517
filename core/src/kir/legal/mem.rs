//! Vectors that are wider than the device moves at once, and copies that it does not have.

use super::super::build::V;
use super::super::kernel::ObjectId;
use super::super::op::Op;
use super::Writer;
use super::lanes::parts;

impl<'k> Writer<'k, '_> {
    /// A load in pieces.
    pub(super) fn load(&self, op: Op, id: ObjectId, index: V<'k>, width: u8) -> V<'k> {
        let (mem, piece) = (self.k.mem(id), self.caps.vector.min(width));
        let pieces = (0..width / piece).map(|i| {
            let at = index + u32::from(i * piece);
            if op == Op::LoadStream { mem.load_stream(at, piece) } else { mem.load_vector(at, piece) }
        });
        let words: Vec<V<'k>> = pieces.flat_map(parts).collect();
        self.join(&words)
    }

    /// A store in pieces.
    pub(super) fn store(&self, id: ObjectId, index: V<'k>, value: V<'k>) {
        let (mem, words) = (self.k.mem(id), parts(value));
        let piece = usize::from(self.caps.vector).min(words.len());
        for (i, words) in (0..).zip(words.chunks_exact(piece)) {
            mem.store(index + i * piece as u32, self.join(words));
        }
    }

    /// Four elements, at once: nobody touches the destination of a copy before it has been waited for.
    pub(super) fn copy(&self, to: ObjectId, to_index: V<'k>, from: ObjectId, from_index: V<'k>) {
        let words = self.load(Op::Load, from, from_index, 4);
        self.store(to, to_index, words);
    }
}
