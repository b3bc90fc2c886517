//! Random kernels that verify and have one result: what a device, an emitter or the legaliser makes of them
//! has to be what the interpreter makes.
//!
//! [`random_kernel`] writes a kernel of operations from the table, branches, loops and exchanges; the same
//! seed gives the same kernel and the same launch. Values that the table excludes do not occur: divisors are
//! odd, shifts are below 32, floats are brought to ±[1, 2) before they are used, so that neither subnormals
//! nor NaN arise, whose bits are nobody's promise.

use super::build::{Build, Mem, V, kernel};
use super::interp::Launch;
use super::kernel::{Attr, Kernel};
use super::op::{AttrKind, CLUSTER_WIDTHS, Effect, Family, Op, Pattern};
use super::types::{Scalar, Type};

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;
/// Workgroups of a launch.
const GROUPS: u32 = 2;
/// Elements of the buffer that is read: a power of two, for masks.
const INPUT_LEN: u32 = 1024;
/// Blocks inside of blocks.
const MAX_NESTING: u32 = 3;

/// A kernel of about `size` operations, and a launch for it. The last buffer is what it writes.
pub fn random_kernel(seed: u64, size: u32) -> (Kernel, Launch) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let input = (0..INPUT_LEN).flat_map(|_| random.word().to_le_bytes()).collect();
    let param = random.word();
    let written = kernel("random", WORKGROUP, |k| {
        let param = k.param("p", Scalar::U32);
        let (input, output) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let shared = k.shared("s", Scalar::U32, WORKGROUP);
        let matrices = k.shared("b", Scalar::I8x4, 2 * WORKGROUP);
        let id = k.group_id() * WORKGROUP + k.local_id();
        let mut writer =
            Writer { k, random: &mut random, input, shared, matrices, known: vec![], nesting: 0 };
        writer.known = vec![param, id, k.local_id(), input.load(id)];
        writer.statements(size / 2, true);
        // So far it has read what no launch writes.
        if writer.random.below(2) == 0 {
            k.wait_launches();
        }
        writer.statements(size - size / 2, true);
        // Everything that is visible at the end counts.
        let mut sum = k.u32(0);
        for value in writer.known.clone() {
            for word in writer.words(value) {
                sum = (sum ^ word) * 0x0100_0193;
            }
        }
        output.store(id, sum);
    });
    let output = vec![0xEE; (4 * GROUPS * WORKGROUP) as usize];
    let launch = Launch { groups: GROUPS, params: vec![param], buffers: vec![input, output], fuel: 1 << 32 };
    (written, launch)
}

struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let word = (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32;
        // Small numbers and edges, now and then.
        match word % 16 {
            0 => word >> 28,
            1 => 0x8000_0000 | (word >> 31),
            2 => u32::MAX,
            _ => word,
        }
    }

    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(end)) >> 32) as u32
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}

struct Writer<'k, 'r> {
    k: &'k Build,
    random: &'r mut Random,
    input: Mem<'k>,
    shared: Mem<'k>,
    /// Two words of each invocation, for matrices.
    matrices: Mem<'k>,
    /// Values that the next statement may use.
    known: Vec<V<'k>>,
    nesting: u32,
}

impl<'k> Writer<'k, '_> {
    /// Writes statements. Exchanges may be among them where the whole workgroup is `together`.
    fn statements(&mut self, count: u32, together: bool) {
        for _ in 0..count {
            match self.random.below(24) {
                0 if self.nesting < MAX_NESTING => self.branch(count / 4, together),
                1 if self.nesting < MAX_NESTING => self.turns(count / 4, together),
                2 if together => self.through_shared(),
                3 if together => self.load_b(),
                4 => self.read_input(),
                _ => self.operation(together),
            }
        }
    }

    /// An operation of the table on known values.
    fn operation(&mut self, together: bool) {
        let op = self.random.one_of(Op::ALL);
        let row = op.row();
        let is_exchange = row.effect == Effect::Exchanges;
        if (is_exchange && !together) || !(is_exchange || row.effect == Effect::Pure) {
            return;
        }
        let variable = self.random.one_of(&self.known.clone()).ty();
        let operands: Vec<V<'k>> = (0..row.operands.len()).map(|at| self.operand(op, at, variable)).collect();
        let types: Vec<Type> = operands.iter().map(|operand| operand.ty()).collect();
        let stated = (row.result == Some(Pattern::Stated)).then(|| {
            let scalar = self.random.one_of(&Scalar::ALL);
            types.first().map_or(Type::one(scalar), |ty| ty.with(scalar))
        });
        let Some(attr) = self.attr(op, variable, stated) else { return };
        if row.check(&types, stated).is_ok() {
            let values: Vec<_> = operands.iter().map(|operand| operand.value()).collect();
            self.known.extend(self.k.inst(op, attr, &values, stated));
        }
    }

    /// A value of the type that an operand has if `T` is `variable`, in the range that the operation takes.
    fn operand(&mut self, op: Op, at: usize, variable: Type) -> V<'k> {
        let row = op.row();
        let ty = match row.operands[at] {
            Pattern::Is(scalar) => Type { scalar, width: if row.by_word { variable.width } else { 1 } },
            Pattern::OneT => Type::one(variable.scalar),
            Pattern::Words(width) => Type { width, ..variable },
            Pattern::Many(scalar, width) => Type { scalar, width },
            Pattern::T | Pattern::Stated => variable,
        };
        let value = self.value(ty);
        match (op, at) {
            (Op::UDiv | Op::URem, 1) => value | value.constant(1),
            (Op::Half, _) => value & value.constant(0xBFFF_BFFF),
            (Op::Shl | Op::Shr, 1) => value & value.constant(31),
            _ if op.row().family == Family::Alu && ty.scalar == Scalar::F32 && op != Op::Cast => {
                let bits = value.cast(Scalar::U32);
                let tame = (bits & bits.constant(0x807F_FFFF)) | bits.constant(0x3F80_0000);
                tame.cast(Scalar::F32)
            }
            _ => value,
        }
    }

    fn attr(&mut self, op: Op, variable: Type, stated: Option<Type>) -> Option<Attr> {
        Some(match op.row().attr {
            AttrKind::None => Attr::None,
            AttrKind::Word if stated.is_some_and(|ty| ty.scalar == Scalar::Bool) => {
                Attr::Word(self.random.below(2))
            }
            AttrKind::Word => Attr::Word(self.random.word()),
            AttrKind::Index => match op {
                // Bytes of one word.
                Op::Byte if variable.width > 1 => return None,
                Op::Byte => Attr::Index(self.random.below(4)),
                Op::Half => Attr::Index(self.random.below(2)),
                _ => Attr::Index(self.random.below(variable.width.into())),
            },
            AttrKind::Selector => Attr::Selector(self.random.word() as u16 & 0x7777),
            AttrKind::Cluster => {
                let width = self.random.one_of(&CLUSTER_WIDTHS);
                Attr::Cluster { width, lane: self.random.below(width) }
            }
            AttrKind::Param | AttrKind::Object | AttrKind::Copy | AttrKind::Columns => return None,
        })
    }

    /// A known value of a type, or a new one of the known words.
    fn value(&mut self, ty: Type) -> V<'k> {
        let fitting: Vec<V<'k>> = self.known.iter().copied().filter(|value| value.ty() == ty).collect();
        if !fitting.is_empty() && self.random.below(4) > 0 {
            return self.random.one_of(&fitting);
        }
        if ty.width > 1 {
            let parts: Vec<V<'k>> = (0..ty.width).map(|_| self.value(Type::one(ty.scalar))).collect();
            return match parts[..] {
                [a, b] => self.k.vector([a, b]),
                [a, b, c, d] => self.k.vector([a, b, c, d]),
                _ => unreachable!("vectors have two or four words"),
            };
        }
        let words: Vec<V<'k>> = self.known.iter().copied().filter(|v| v.ty() == Scalar::U32.into()).collect();
        let (word, other) = (self.random.one_of(&words), self.random.one_of(&words));
        match ty.scalar {
            Scalar::U32 => word ^ self.k.u32(self.random.word()),
            Scalar::Bool => word.lt(other),
            scalar => word.cast(scalar),
        }
    }

    fn branch(&mut self, count: u32, together: bool) {
        let is_alike = self.random.below(2) == 0;
        let condition = match is_alike {
            true => self.k.group_id().eq(self.k.u32(self.random.below(GROUPS))),
            false => self.value(Scalar::Bool.into()),
        };
        let ty = self.random.one_of(&self.known.clone()).ty();
        let blocks = [0, 1].map(|_| {
            self.inner(|writer| {
                writer.statements(count, together && is_alike);
                vec![writer.value(ty)]
            })
        });
        let [then, otherwise] = blocks;
        self.known.extend(self.k.choose_block(condition, then, otherwise));
    }

    fn turns(&mut self, count: u32, together: bool) {
        let is_alike = self.random.below(2) == 0;
        let turns = match is_alike {
            true => self.k.u32(self.random.below(4)),
            false => self.value(Scalar::U32.into()) & self.k.u32(3),
        };
        let first: Vec<V<'k>> =
            (0..self.random.below(3)).map(|_| self.random.one_of(&self.known.clone())).collect();
        let types: Vec<Type> = first.iter().map(|value| value.ty()).collect();
        let (k, known) = (self.k, self.known.len());
        self.nesting += 1;
        let results = k.fold_any([k.u32(0), turns], 1, &first, |turn, inside| {
            self.known.push(turn);
            self.known.extend(inside);
            self.statements(count, together && is_alike);
            types.iter().map(|&ty| self.value(ty)).collect()
        });
        self.nesting -= 1;
        self.known.truncate(known);
        self.known.extend(results);
    }

    /// What another invocation has stored.
    fn through_shared(&mut self) {
        let (mine, other) = (self.value(Scalar::U32.into()), self.value(Scalar::U32.into()));
        self.shared.store(self.k.local_id(), mine);
        self.k.barrier();
        self.known.push(self.shared.load(other & (WORKGROUP - 1)));
        self.k.barrier();
    }

    /// A matrix of what the workgroup has stored, at an index that each cluster has for itself.
    fn load_b(&mut self) {
        let mine = self.value(Type { scalar: Scalar::I8x4, width: 2 });
        let index = self.value(Scalar::U32.into()).broadcast(32, self.random.below(32));
        // Bits of an index that keep all eight columns inside.
        let (stride, bits) = self.random.one_of(&[(8, 0x3C), (12, 0x24), (16, 0x08)]);
        self.matrices.store(self.k.local_id() * 2, mine);
        self.k.barrier();
        self.known.push(self.matrices.load_b(index & bits, stride));
        self.k.barrier();
    }

    fn read_input(&mut self) {
        let width = self.random.one_of(&Type::WIDTHS);
        let at = self.value(Scalar::U32.into()) & (INPUT_LEN - u32::from(width));
        if self.random.below(4) == 0 {
            self.input.prefetch(at);
        }
        let loaded = match self.random.below(2) {
            0 => self.input.load_stream(at, width),
            _ => self.input.load_vector(at, width),
        };
        self.known.push(loaded);
    }

    fn inner(&mut self, write: impl FnOnce(&mut Self) -> Vec<V<'k>>) -> super::kernel::Block {
        let (k, known) = (self.k, self.known.len());
        self.nesting += 1;
        let block = k.block(|| write(self));
        self.nesting -= 1;
        self.known.truncate(known);
        block
    }

    /// The words of a value as integers.
    fn words(&self, value: V<'k>) -> Vec<V<'k>> {
        let ty = value.ty();
        let parts =
            if ty.width == 1 { vec![value] } else { (0..ty.width.into()).map(|i| value.part(i)).collect() };
        let word = |part: V<'k>| match ty.scalar {
            Scalar::U32 => part,
            Scalar::Bool => part.select(self.k.u32(1), self.k.u32(0)),
            _ => part.cast(Scalar::U32),
        };
        parts.into_iter().map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::interp::run;
    use super::super::legal::{Caps, is_legal, legalize};
    use super::super::{parse, verify};
    use super::*;

    const KERNELS: u64 = 150;

    fn output(kernel: &Kernel, launch: &Launch) -> Vec<u8> {
        let mut launch = launch.clone();
        run(kernel, &mut launch).unwrap_or_else(|trap| panic!("{trap}\n{kernel}"));
        launch.buffers.pop().unwrap_or_default()
    }

    #[test]
    fn print_parse_and_legalise() {
        let mut outputs = std::collections::HashSet::new();
        let mut used: std::collections::HashSet<Op> = std::collections::HashSet::new();
        for seed in 0..KERNELS {
            let (kernel, launch) = random_kernel(seed, 40);
            assert_eq!(verify(&kernel), [], "{seed}\n{kernel}");
            let text = kernel.to_string();
            used.extend(Op::ALL.iter().filter(|op| text.contains(op.row().mnemonic)));
            assert_eq!(parse(&text).as_ref(), Ok(&kernel), "{seed}");
            assert_eq!(random_kernel(seed, 40).0, kernel, "{seed}");

            let expected = output(&kernel, &launch);
            let caps =
                Caps { subgroup: 1 << (seed % 8), ..if seed % 2 == 0 { Caps::NONE } else { Caps::ALL } };
            let legal = legalize(&kernel, &caps);
            assert!(is_legal(&legal, &caps), "{seed}");
            assert_eq!(verify(&legal), [], "{seed}");
            assert_eq!(output(&legal, &launch), expected, "{seed}: {caps:?}\n{kernel}");
            outputs.insert(expected);
        }
        assert!(outputs.len() as u64 > KERNELS * 9 / 10, "{} different results", outputs.len());
        let copies = [Op::CopyAsync, Op::CopyCommit, Op::CopyWait];
        let unused: Vec<_> = Op::ALL.iter().filter(|op| !used.contains(op) && !copies.contains(op)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}
