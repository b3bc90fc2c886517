use unisonic_core::kir::build::{Build, V, kernel};
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::kernel::{Kernel, ObjectId, Stmt, Value};
use unisonic_core::kir::{Op, Scalar};

use super::{Addresses, Bounds, Sum};

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
            values.push(match random(22) {
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
                15 => (a % (constant | 1)) + (b / (constant | 1)),
                16 => (a.cast(Scalar::I32) >> small).cast(Scalar::U32),
                17 => a.cast(Scalar::I32).min(constant.cast(Scalar::I32)).cast(Scalar::U32),
                18 => a.cast(Scalar::I32).max(constant.cast(Scalar::I32)).cast(Scalar::U32),
                19 => a.cast(Scalar::U8x4).byte(1).cast(Scalar::U32) | (b << small),
                20 => a.cast(Scalar::I8x4).byte(1).cast(Scalar::U32) + constant,
                _ => k.choose(a.lt(b), || [a + constant], || [b & constant])[0],
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

/// What is said of a value: the most it is, low bits that are 0, and its sum, in which `l` is the invocation,
/// `g` the workgroup, `v` itself and `?` a value on the way.
fn said(write: Write) -> (u32, u32, String) {
    let mut places = [Value(0); 3];
    let kernel = kernel("k", 64, |k| {
        let y = k.write("y", Scalar::U32);
        let (lane, group) = (k.local_id(), k.group_id());
        let value = write(k, lane, group);
        [lane, group, value].into_iter().for_each(|value| y.store(lane, value));
    });
    for (place, value) in places.iter_mut().zip(operands(&kernel, Op::Store, 1)) {
        *place = value;
    }
    let addresses = Addresses::new(&kernel);
    let value = places[2].index();
    let Bounds { max, zeros } = addresses.bounds[value];
    let Sum { terms, constant } = &addresses.sums[value];
    let name = |of: Value| places.iter().position(|&place| place == of).map_or("?", |at| ["l", "g", "v"][at]);
    let terms = terms.iter().map(|&(of, factor)| format!("{}{}", factor as i32, name(of)));
    (max, zeros, terms.chain([constant.to_string()]).collect::<Vec<_>>().join(" + "))
}

type Write = for<'k> fn(&'k Build, V<'k>, V<'k>) -> V<'k>;

const MAX: u32 = u32::MAX;

fn check(rules: &[(Write, u32, u32, &str)]) {
    for (number, &(write, max, zeros, sum)) in rules.iter().enumerate() {
        assert_eq!(said(write), (max, zeros, sum.to_owned()), "rule {number}");
    }
}

#[test]
fn rules_of_sums_and_products() {
    check(&[
        (|k, _, _| k.u32(12), 12, 2, "12"),
        (|k, _, _| k.u32(0), 0, 32, "0"),
        (|_, l, _| l, 63, 0, "1l + 0"),
        (|_, _, g| g, MAX, 0, "1g + 0"),
        (|_, l, _| l + l, 126, 0, "2l + 0"),
        (|_, l, g| g * 6 + l * 4, MAX, 1, "4l + 6g + 0"),
        (|_, l, _| l * 4 + 6, 258, 1, "4l + 6"),
        (|k, l, _| k.u32(6) + l * 4, 258, 1, "4l + 6"),
        (|_, l, _| l + (MAX - 63), MAX, 0, "1l + 4294967232"),
        (|_, l, g| l + g, MAX, 0, "1l + 1g + 0"),
        (|k, l, _| k.u32(63) - l, 63, 0, "-1l + 63"),
        (|k, l, _| k.u32(62) - l, MAX, 0, "-1l + 62"),
        (|k, l, _| k.u32(256) - l * 4, 256, 2, "-4l + 256"),
        (|k, l, _| k.u32(254) - l * 4, 254, 1, "-4l + 254"),
        (|_, l, g| g - l, MAX, 0, "-1l + 1g + 0"),
        (|_, l, _| l - l, MAX, 0, "0"),
        (|_, l, _| (l + 3) * 12, 792, 2, "12l + 36"),
        (|k, l, _| k.u32(12) * (l + 3), 792, 2, "12l + 36"),
        (|k, l, _| l * k.u32(0), 0, 32, "0"),
        (|_, l, _| l * l, 3969, 0, "1v + 0"),
        (|_, l, g| (l * 4) * (g * 2), MAX, 3, "1v + 0"),
        (|_, _, g| (g << 20) * (g << 20), MAX, 32, "1v + 0"),
        (|_, l, _| (l << 2) + 1, 253, 0, "4l + 1"),
        (|_, l, _| (l * 2) << 2, 504, 3, "8l + 0"),
        (|_, l, _| l << 31, MAX, 31, "-2147483648l + 0"),
        (|_, _, g| (g << 20) << 20, MAX, 32, "0"),
        (|k, l, _| (l * 4) << k.u32(32), MAX, 2, "1v + 0"),
        (|_, l, g| (l * 4) << g, MAX, 2, "1v + 0"),
    ]);
}

#[test]
fn rules_of_quotients_and_bits() {
    check(&[
        (|_, l, _| l / 4, 15, 0, "1v + 0"),
        (|_, _, g| g / 3, 0x5555_5555, 0, "1v + 0"),
        (|_, l, g| l / g, 63, 0, "1v + 0"),
        (|k, l, _| l / k.u32(1), 63, 0, "1v + 0"),
        (|k, l, _| l / k.u32(0), 63, 0, "1v + 0"),
        (|_, l, _| l % 8, 7, 0, "1v + 0"),
        (|_, l, _| l % 100, 63, 0, "1v + 0"),
        (|_, l, _| (l * 4) % 16, 15, 2, "1v + 0"),
        (|_, l, _| (l * 16) % 8, 7, 3, "1v + 0"),
        (|_, l, _| (l * 4) % 12, 11, 0, "1v + 0"),
        (|k, _, g| k.u32(16) % g, 16, 0, "1v + 0"),
        (|_, l, g| l % g, 63, 0, "1v + 0"),
        (|_, l, g| g % l, 62, 0, "1v + 0"),
        (|k, _, g| g % k.u32(0), 0, 0, "1v + 0"),
        (|_, l, _| l >> 2, 15, 0, "1v + 0"),
        (|_, l, _| (l * 16) >> 2, 252, 2, "1v + 0"),
        (|_, l, g| l >> g, 63, 0, "1v + 0"),
        (|k, l, _| l >> k.u32(32), 63, 0, "1v + 0"),
        (|_, l, g| (l * 4).min(g * 2), 252, 1, "1v + 0"),
        (|_, l, g| (g * 2).min(l * 4), 252, 1, "1v + 0"),
        (|k, l, _| (l * 4).max(k.u32(1000)), 1000, 2, "1v + 0"),
        (|_, l, _| (l * 4).max(l * 2), 252, 1, "1v + 0"),
        (|_, l, _| l.lt(l).select(l * 6, l * 4), 378, 1, "1v + 0"),
        (|k, l, _| l.lt(l).select(l * 4, k.u32(1002)), 1002, 1, "1v + 0"),
        (|_, _, g| g & 0xF0, 240, 4, "1v + 0"),
        (|_, l, g| (l * 4) & g, 252, 2, "1v + 0"),
        (|_, l, _| l | 64, 127, 0, "1l + 64"),
        (|k, l, _| k.u32(64) | l, 127, 0, "1l + 64"),
        (|k, l, _| k.u32(64) ^ l, 127, 0, "1l + 64"),
        (|_, l, _| l | 32, 63, 0, "1v + 0"),
        (|_, l, _| (l * 4) ^ 3, 255, 0, "4l + 3"),
        (|_, l, _| (l * 4) | 4, 255, 2, "1v + 0"),
        (|_, l, g| (l * 4) | (g * 2), MAX, 1, "1v + 0"),
        (|k, _, g| g | k.u32(0), MAX, 0, "1g + 0"),
    ]);
}

/// Signed ones and floats have no bounds, their sums hold.
#[test]
fn rules_of_types() {
    check(&[
        (|_, l, _| l.cast(Scalar::I32), 63, 0, "1l + 0"),
        (|_, l, _| (l * 4).cast(Scalar::I32) + 8, 260, 2, "4l + 8"),
        (|_, l, _| ((l * 4).cast(Scalar::I32) + 8).cast(Scalar::U32), 260, 2, "4l + 8"),
        (|k, l, _| l.cast(Scalar::I32).min(k.i32(-1)), MAX, 0, "1v + 0"),
        (|k, l, _| l.cast(Scalar::I32).max(k.i32(-1)), MAX, 0, "1v + 0"),
        (|_, l, _| l.cast(Scalar::I32) >> 1, MAX, 0, "1v + 0"),
        (|_, l, _| l.cast(Scalar::U8x4).byte(0), 255, 0, "1v + 0"),
        (|_, l, _| l.cast(Scalar::I8x4).byte(0), MAX, 0, "1v + 0"),
        (|_, l, _| l.cast(Scalar::F32), MAX, 0, "1v + 0"),
        (|_, l, _| l.cast(Scalar::F32).cast(Scalar::U32), MAX, 0, "1? + 0"),
        (|k, l, _| k.vector([l, l]), MAX, 0, "1v + 0"),
        (|k, l, _| k.vector([l, l]).part(0), MAX, 0, "1v + 0"),
    ]);
}

#[test]
fn rules_of_branches_and_loops() {
    check(&[
        (|k, l, _| k.choose(l.eq(l), || [l * 6], || [l * 4])[0], 378, 1, "1v + 0"),
        (|k, l, g| k.choose(l.eq(l), || [l * 6, l], || [l * 4, g])[1], MAX, 0, "1v + 0"),
        (|k, l, _| k.fold(l, l, 1, [l], |_, [sum]| [sum + 1])[0], MAX, 0, "1v + 0"),
    ]);
    let index = |write: for<'k> fn(V<'k>) -> [V<'k>; 2], step: u32| {
        let kernel = kernel("k", 64, |k| {
            let [start, end] = write(k.local_id());
            k.each(start, end, step, |_| ());
        });
        let index = kernel.body.stmts.iter().find_map(|stmt| match stmt {
            Stmt::Loop { index, .. } => Some(index.index()),
            _ => None,
        });
        index.map(|index| Addresses::new(&kernel).bounds[index])
    };
    assert_eq!(index(|l| [l * 4, l * 8], 2), Some(Bounds { max: 503, zeros: 1 }));
    assert_eq!(index(|l| [l * 2, l * 8], 4), Some(Bounds { max: 503, zeros: 1 }));
    assert_eq!(index(|l| [l.constant(0), l.constant(0)], 12), Some(Bounds { max: 0, zeros: 2 }));
}

/// Four terms are followed, five are a value of their own.
#[test]
fn long_sums_end() {
    for (len, expected) in [(4, 4), (5, 1)] {
        let kernel = kernel("k", 64, |k| {
            let y = k.write("y", Scalar::U32);
            let values: Vec<V<'_>> = (0..len).map(|_| k.group_id()).collect();
            let sum = values[1..].iter().fold(values[0], |sum, &value| sum + value);
            y.store(values[0], sum);
        });
        let value = operands(&kernel, Op::Store, 1)[0];
        assert_eq!(Addresses::new(&kernel).sums[value.index()].terms.len(), expected);
    }
}

/// To the last number below 2^32, and to the last multiple of 2^k.
#[test]
fn sums_are_whole_up_to_where_they_wrap() {
    let bounds = [(1000, 0), (MAX, 8), (63, 2)].map(|(max, zeros)| Bounds { max, zeros });
    let sum = |terms: &[(u32, u32)], constant| {
        let terms = terms.iter().map(|&(value, factor)| (Value(value), factor)).collect();
        Sum { terms, constant }.is_whole(&bounds)
    };
    for (terms, most) in [
        (&[(0, 1)][..], MAX - 1000),
        (&[(0, 3)], MAX - 3000),
        // Below a multiple of 2^8, of 2^9, of 2^10 by both.
        (&[(1, 1)], 255),
        (&[(1, 2)], 511),
        (&[(0, 256), (1, 1)], 255),
        (&[(1, 1), (2, 1)], 255 - 63),
        (&[(1, 4), (2, 4)], 1023 - 252),
        (&[(1, 1), (2, 64)], 255),
        (&[], MAX),
    ] {
        assert!(sum(terms, most), "{terms:?}");
        assert!(most == MAX || !sum(terms, most + 1), "{terms:?}");
    }
    // Factors are modulo 2^32: the product may be anything.
    assert!(!sum(&[(0, MAX)], 1));
}

/// Offsets end at 2^21 elements.
#[test]
fn offsets_are_what_instructions_hold() {
    for (offset, expected) in [((1 << 21) - 1, Some((1 << 21) - 1)), (1 << 21, None)] {
        let kernel = kernel("k", 64, |k| {
            let x = k.read("x", Scalar::U32);
            let lane = k.local_id();
            x.load(lane);
            x.load(lane + offset);
            x.load(lane + offset);
        });
        let last = operands(&kernel, Op::Load, 0)[1];
        let addresses = Addresses::new(&kernel);
        assert_eq!(addresses.split(ObjectId(0), last).map(|(_, offset)| offset), expected);
    }
}

/// Addresses are shared by accesses of all kinds to one object, and not by one.
#[test]
fn accesses_are_counted_by_object() {
    let kernel = kernel("k", 64, |k| {
        let (x, s, t) =
            (k.read("x", Scalar::U32), k.shared("s", Scalar::U32, 1024), k.shared("t", Scalar::U32, 64));
        let (lane, group) = (k.local_id(), k.group_id());
        s.copy_async(lane * 4, x, group * 8);
        x.load_stream(group * 8 + 4, 1);
        s.store(lane * 4 + 256, lane);
        t.store(lane, group);
    });
    let addresses = Addresses::new(&kernel);
    let [to, from] = [0, 1].map(|number| operands(&kernel, Op::CopyAsync, number)[0]);
    let stored = operands(&kernel, Op::Store, 0);
    let streamed = operands(&kernel, Op::LoadStream, 0)[0];
    let offset = |object, index| addresses.split(ObjectId(object), index).map(|(_, offset)| offset);
    assert_eq!([offset(1, to), offset(1, stored[0])], [Some(0), Some(256)]);
    assert_eq!([offset(0, from), offset(0, streamed)], [Some(0), Some(4)]);
    assert_eq!([offset(2, stored[1]), offset(0, to), offset(1, from)], [None; 3]);
}

#[test]
fn only_sums_without_an_offset_stand_for_their_terms() {
    let kernel = kernel("k", 64, |k| {
        let y = k.write("y", Scalar::U32);
        let lane = k.local_id();
        [lane, lane * 4, lane * 4 + 1].into_iter().for_each(|value| y.store(lane, value));
    });
    let addresses = Addresses::new(&kernel);
    let terms = operands(&kernel, Op::Store, 1).into_iter().map(|value| addresses.terms(value).cloned());
    let lane = operands(&kernel, Op::Store, 0)[0];
    assert_eq!(terms.collect::<Vec<_>>(), [None, Some(vec![(lane, 4)]), None]);
}
