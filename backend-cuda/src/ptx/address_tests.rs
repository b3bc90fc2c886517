use unisonic_core::kir::build::{V, kernel};
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::kernel::{Kernel, ObjectId, Stmt, Value};
use unisonic_core::kir::{Op, Scalar};

use super::{Addresses, Bounds};

const LANES: u32 = 48;
const GROUPS: u32 = 3;
const VALUES: usize = 60;

/// A kernel of random index arithmetic that stores each of its values, and their numbers.
fn arithmetic(seed: u64) -> (Kernel, Vec<Value>) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut random = move |end: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % end
    };
    let written = kernel("arithmetic", LANES, |k| {
        let out = k.write("out", Scalar::U32);
        let id = k.group_id() * LANES + k.local_id();
        let mut values: Vec<V<'_>> = vec![k.local_id(), k.group_id(), k.u32(12), k.param("n", Scalar::U32)];
        while values.len() < VALUES {
            let [a, b] = [0; 2].map(|_| values[random(values.len())]);
            let constant = k.u32([0, 1, 3, 7, 8, 64, 4095, 8064, u32::MAX, 1 << 30][random(10)]);
            let small = k.u32(random(12) as u32);
            values.push(match random(16) {
                0..3 => a + b,
                3 => a + constant,
                4 => a - b,
                5 => constant - a,
                6 | 7 => a * constant,
                8 => a & constant,
                9 => a | b,
                10 => a << small,
                11 => a >> small,
                12 => a.min(constant),
                13 => a.max(b) ^ constant,
                14 => a.lt(b).select(a, constant),
                _ => (a % (constant | 1)) + (b / (constant | 1)),
            });
        }
        for (number, &value) in values.iter().enumerate() {
            out.store(id + number as u32 * LANES * GROUPS, value);
        }
    });
    let numbers = operands(&written, Op::Store, 1);
    (written, numbers)
}

/// An operand of each operation of a kind, in order.
fn operands(kernel: &Kernel, op: Op, number: usize) -> Vec<Value> {
    let insts = kernel.body.stmts.iter().filter_map(|stmt| match stmt {
        Stmt::Inst(inst) if inst.op == op => Some(inst.operands[number]),
        _ => None,
    });
    insts.collect()
}

/// What is said of values holds of what the interpreter computes.
#[test]
fn sums_and_bounds_hold() {
    let mut whole = 0;
    for seed in 0..300 {
        let (kernel, numbers) = arithmetic(seed);
        let buffers = vec![vec![0; 4 * VALUES * (LANES * GROUPS) as usize]];
        let mut launch = Launch { groups: GROUPS, params: vec![0x1234_5678], buffers, fuel: u64::MAX };
        run(&kernel, &mut launch).unwrap_or_else(|trap| panic!("{trap}\n{kernel}"));
        let words: Vec<u32> =
            launch.buffers[0].chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let addresses = Addresses::new(&kernel);
        let invocations = (LANES * GROUPS) as usize;
        for id in 0..invocations {
            let stored = |value: Value| {
                let at = numbers.iter().position(|&other| other == value)?;
                Some(words[at * invocations + id])
            };
            for &value in &numbers {
                let Some(word) = stored(value) else { unreachable!("each value is stored") };
                let Bounds { max, zeros } = addresses.bounds[value.index()];
                assert!(
                    word <= max && word.trailing_zeros() >= zeros,
                    "{value} = {word}: {max} {zeros}\n{kernel}"
                );
                let sum = &addresses.sums[value.index()];
                // Terms that are values on the way, such as quotients, are not stored.
                let terms = sum.terms.iter().map(|&(of, factor)| Some(stored(of)?.wrapping_mul(factor)));
                let Some(terms) = terms.collect::<Option<Vec<u32>>>() else { continue };
                let terms = terms.into_iter().fold(0, u32::wrapping_add);
                assert_eq!(terms.wrapping_add(sum.constant), word, "{value}: {sum:?}\n{kernel}");
                if sum.is_whole(&addresses.bounds) {
                    whole += 1;
                    assert!(terms.checked_add(sum.constant).is_some(), "{value} = {word}: {sum:?}\n{kernel}");
                }
            }
        }
    }
    assert!(whole > 10_000, "{whole}");
}

/// By bounds, by the low bits of what has none, and not where it may wrap.
#[test]
fn offsets_are_taken_out_where_nothing_wraps() {
    let split = |index: for<'k> fn(V<'k>, V<'k>) -> V<'k>, offset: u32| {
        let kernel = kernel("k", 64, |k| {
            let x = k.read_write("x", Scalar::U32);
            let index = index(k.group_id(), k.local_id());
            x.store(index + offset, x.load(index));
            x.load(index + offset);
        });
        let last = operands(&kernel, Op::Load, 0)[1];
        Addresses::new(&kernel).split(ObjectId(0), last).map(|(_, offset)| offset)
    };
    assert_eq!(split(|_, lane| lane * 4, 100), Some(100));
    assert_eq!(split(|group, lane| group * 1024 + lane * 4, 256), Some(256));
    assert_eq!(split(|group, lane| group * 1024 + lane * 4, 771), Some(771));
    assert_eq!(split(|group, lane| group * 1024 + lane * 4, 772), None);
    assert_eq!(split(|group, _| group, 1), None);
    assert_eq!(split(|group, lane| group.min(lane.constant(1000)) * 1000 + lane, 7), Some(7));
}
