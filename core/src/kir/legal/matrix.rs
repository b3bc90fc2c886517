//! Products of matrices: smaller ones by larger ones, or by dot products of what others have staged in shared
//! memory. Loads of matrices by loads of their words.

use super::super::build::V;
use super::super::kernel::ObjectId;
use super::super::types::Scalar;
use super::Writer;
use super::lanes::parts;

impl<'k> Writer<'k, '_> {
    /// `sum + a b`; `interp/matrix.rs` says which invocation holds what.
    pub(super) fn mma(&self, a: V<'k>, b: V<'k>, sum: V<'k>) -> V<'k> {
        let halves = u32::from(a.ty().width) / 2;
        if halves == 1 && self.caps.mma32 {
            let zero = self.k.constant(Scalar::I8x4.into(), 0);
            let a = self.k.vector([a.part(0), a.part(1), zero, zero]);
            return self.k.mma(a, self.k.vector([b, zero]), sum);
        }
        let (k, stage, id) = (self.k, self.stage(), self.k.local_id());
        // All words of A, then all of B: those of an invocation side by side.
        let a_at = |id: V<'k>, word: u32| id * (2 * halves) + word;
        let b_at = |id: V<'k>, word: u32| id * halves + (word + self.kernel.workgroup * 2 * halves);
        for (word, part) in (0..).zip(parts(a)) {
            stage.store(a_at(id, word), part.cast(Scalar::U32));
        }
        for (word, part) in (0..).zip(parts(b)) {
            stage.store(b_at(id, word), part.cast(Scalar::U32));
        }
        k.barrier();

        let (cluster, lane) = (id & !31, id & 31);
        let (g, t) = (lane >> 2, lane & 3);
        let bytes = |index: V<'k>| stage.load(index).cast(Scalar::I8x4);
        let mut sums = parts(sum);
        for half in 0..halves {
            for other in 0..4 {
                let of_row = cluster + (g << 2) + other;
                let rows = [0, 1].map(|below| bytes(a_at(of_row, 2 * half + below)));
                let columns = [0, 1].map(|next| bytes(b_at(cluster + (t << 3) + (4 * next + other), half)));
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = self.dot(rows[i / 2], columns[i % 2], *sum);
                }
            }
        }
        k.barrier();
        self.join(&sums)
    }

    /// The words of B from where they lie.
    pub(super) fn load_b(&self, of: ObjectId, index: V<'k>, stride: u32) -> V<'k> {
        let (mem, lane) = (self.k.mem(of), self.k.local_id() & 31);
        let at = index + (lane >> 2) * stride + (lane & 3);
        self.k.vector([mem.load(at), mem.load(at + 4)])
    }
}
