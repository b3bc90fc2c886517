//! Cases of operations that touch memory or wait.

use super::super::kernel::Space;
use super::super::op::Op;
use super::super::types::{Scalar, Type};
use super::{Case, Contents, INVOCATIONS, Mem, V, WORKGROUP, Writer, case};

/// None for operations that the table tells all of.
pub fn cases(op: Op) -> Vec<Case> {
    match op {
        Op::Load | Op::LoadStream => of_types(op, |writer, ty| writer.loads(op, ty)),
        Op::Store => of_types(op, |writer, ty| writer.stores(ty)),
        Op::CopyAsync | Op::CopyCommit | Op::CopyWait => {
            vec![case(op, op.row().mnemonic, WORKGROUP, |writer| writer.copies())]
        }
        Op::LoadB => [8, 12, 28]
            .map(|stride| {
                case(op, &format!("load_b_{stride}"), WORKGROUP, |writer| writer.loads_of_b(stride))
            })
            .into(),
        Op::Prefetch => vec![case(op, op.row().mnemonic, WORKGROUP, |writer| writer.prefetches())],
        Op::WaitLaunches => vec![case(op, op.row().mnemonic, WORKGROUP, |writer| writer.waits())],
        Op::Barrier => vec![case(op, op.row().mnemonic, WORKGROUP, |writer| writer.barriers())],
        _ => vec![],
    }
}

fn of_types(op: Op, write: impl Fn(&Writer<'_>, Type)) -> Vec<Case> {
    let stored = Scalar::ALL.into_iter().filter(|scalar| scalar.is_stored());
    let types = stored.flat_map(|scalar| Type::WIDTHS.map(|width| Type { scalar, width }));
    types
        .map(|ty| case(op, &format!("{}_{ty}", op.row().mnemonic), WORKGROUP, |writer| write(writer, ty)))
        .collect()
}

/// An index that is known beforehand, a multiple of every width.
const KNOWN: u32 = 8;

impl<'k> Writer<'k> {
    /// From every kind of memory, at an index that differs and at one that is known.
    fn loads(&self, op: Op, ty: Type) {
        let (elem, width) = (ty.scalar, u32::from(ty.width));
        let load = |from: Mem<'k>, of: V<'k>| {
            for at in [of * width, self.k.u32(KNOWN)] {
                let loaded = if op == Op::Load {
                    from.load_vector(at, ty.width)
                } else {
                    from.load_stream(at, ty.width)
                };
                self.keep(loaded);
            }
        };
        for (name, space) in [("read", Space::Read), ("readwrite", Space::ReadWrite)] {
            load(self.buffer(name, elem, space, Contents::of(elem), INVOCATIONS * width), self.i);
        }
        // Shared memory that was written as vectors of each width.
        for written in Type::WIDTHS {
            let ty = Type { width: written, ..ty };
            let shared =
                self.k.shared(&format!("s{written}"), elem, WORKGROUP * u32::from(written).max(width));
            let turns = width.div_ceil(written.into());
            for turn in 0..turns {
                let at = (self.lane + turn * WORKGROUP) * u32::from(written);
                shared.store(at, self.operand(ty, Contents::of(elem)));
            }
            self.k.barrier();
            load(shared, self.lane);
        }
    }

    /// To every kind of memory, what differs and what is known, at an index that differs and at one that is
    /// known.
    fn stores(&self, ty: Type) {
        let (elem, width) = (ty.scalar, u32::from(ty.width));
        let known = self.k.constant(ty, Contents::of(elem).constants()[3]);
        let values = [self.operand(ty, Contents::of(elem)), known];
        let shared = self.k.shared("s", elem, 3 * width * WORKGROUP);
        let len = 3 * width * INVOCATIONS;
        let [write, both] = [("write", Space::Write), ("readwrite", Space::ReadWrite)]
            .map(|(name, space)| self.buffer(name, elem, space, Contents::Output, len));
        for (mem, of, count) in
            [(write, self.i, INVOCATIONS), (both, self.i, INVOCATIONS), (shared, self.lane, WORKGROUP)]
        {
            for (turn, value) in (0..).zip(values) {
                mem.store((of + turn * count) * width, value);
            }
            self.k.when(of.eq(self.k.u32(1)), || mem.store(self.k.u32(2 * width * count), values[0]));
        }
        self.k.barrier();
        // What others stored, and what one did.
        let other = self.k.u32(WORKGROUP - 1) - self.lane;
        for turn in 0..2 {
            self.keep(shared.load_vector((other + turn * WORKGROUP) * width, ty.width));
            self.keep(both.load_vector((self.i + turn * INVOCATIONS) * width, ty.width));
        }
        self.keep(shared.load_vector(self.k.u32(2 * width * WORKGROUP), ty.width));
    }

    /// Copies in two groups; the first is waited for and read by others, then the second.
    fn copies(&self) {
        let shared = self.k.shared("s", Scalar::U32, 8 * WORKGROUP);
        let (from, to) = (self.i * 4, self.lane * 4);
        for (name, half) in [("first", 0), ("second", 1)] {
            let buffer = self.buffer(name, Scalar::U32, Space::Read, Contents::Words, 4 * INVOCATIONS);
            shared.copy_async(to + half * 4 * WORKGROUP, buffer, from);
            self.k.copy_commit();
        }
        let mirrored = self.k.u32(4 * WORKGROUP - 4) - to;
        for (groups, from) in [(1, mirrored), (0, mirrored + 4 * WORKGROUP)] {
            self.k.copy_wait(groups);
            self.k.barrier();
            self.keep(shared.load_vector(from, 4));
        }
    }

    /// What others stored as a matrix, in a loop: used as words, as a matrix, as both and in the next turn, at indices
    /// that are known, that are not, and that differ between clusters.
    fn loads_of_b(&self, stride: u32) {
        let (k, len) = (self.k, 4 * WORKGROUP);
        let bytes = |width| Type { scalar: Scalar::I8x4, width };
        let shared = k.shared("s", Scalar::I8x4, len);
        let (a, stored) = (self.operand(bytes(4), Contents::Words), self.operand(bytes(4), Contents::Words));
        let zero = k.constant(Type { scalar: Scalar::I32, width: 4 }, 0);
        let of_cluster = (self.lane >> 5) * (len - 7 * stride - 8);
        let first = [zero, k.constant(bytes(2), 0)];
        let [sum, last] = k.fold(k.u32(0), k.u32(2), 1, first, |turn, [sum, before]| {
            shared.store(self.lane * 4, stored);
            k.barrier();
            let [words, matrix, both] =
                [k.u32(KNOWN), turn * 4, of_cluster].map(|at| shared.load_b(at, stride));
            let sum = k.mma(a, before, sum);
            let sum = k.mma(a, matrix, sum) + k.mma(a, both, zero);
            k.barrier();
            let mixed = both.part(1).cast(Scalar::U32) ^ words.part(0).cast(Scalar::U32);
            shared.store(self.lane, mixed.cast(Scalar::I8x4));
            k.barrier();
            let next = k.vector([words.part(1), shared.load(self.lane ^ 1)]);
            k.barrier();
            [sum, next]
        });
        self.keep(sum);
        self.keep(last);
        shared.store(self.lane * 4, stored);
        k.barrier();
        self.keep(shared.load_b(of_cluster, stride));
    }

    /// Before what is there is read.
    fn prefetches(&self) {
        let from = self.buffer("from", Scalar::U32, Space::Read, Contents::Words, INVOCATIONS);
        for at in [self.i, self.k.u32(KNOWN)] {
            from.prefetch(at);
            self.keep(from.load(at));
        }
    }

    /// In the first turn of a loop, after what no launch writes has been read and before all else.
    fn waits(&self) {
        let k = self.k;
        let early = self.buffer("early", Scalar::U32, Space::Read, Contents::Words, 2 * INVOCATIONS);
        let late = self.buffer("late", Scalar::U32, Space::Read, Contents::Words, 2 * INVOCATIONS);
        let [sum] = k.fold(k.u32(0), k.u32(2), 1, [k.u32(0)], |turn, [sum]| {
            let (at, first) = (self.i + turn * INVOCATIONS, turn.eq(k.u32(0)));
            let word = early.load_stream(at, 1);
            k.when(first, || k.wait_launches());
            [sum + (word ^ late.load(at))]
        });
        self.keep(sum);
    }

    /// What others wrote before a barrier, to a buffer and to shared memory, in a loop.
    fn barriers(&self) {
        let k = self.k;
        let shared = k.shared("s", Scalar::U32, WORKGROUP);
        let first = self.operand(Scalar::U32.into(), Contents::Words);
        let buffer = self.buffer("y", Scalar::U32, Space::ReadWrite, Contents::Output, INVOCATIONS);
        let other = k.u32(WORKGROUP - 1) - self.lane;
        let far = k.group_id() * WORKGROUP + other;
        let [last] = k.fold(k.u32(0), k.u32(5), 1, [first], |_, [word]| {
            shared.store(self.lane, word);
            buffer.store(self.i, word);
            k.barrier();
            let sum = shared.load(other) + buffer.load(far);
            k.barrier();
            [sum]
        });
        self.keep(last);
    }
}
