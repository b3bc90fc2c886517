//! A legal kernel gives what the original gives, and holds only what the device has.

use super::super::build::Mem;
use super::super::interp::{Launch, run};
use super::super::verify;
use super::*;

/// Every single thing lacking, everything, and subgroups of all sizes.
fn all_caps() -> Vec<Caps> {
    let mut all = vec![
        Caps::ALL,
        Caps::NONE,
        Caps { dot4: false, ..Caps::ALL },
        Caps { mma16: false, ..Caps::ALL },
        Caps { mma16: false, mma32: false, ..Caps::ALL },
        Caps { mma16: false, mma32: false, dot4: false, ..Caps::ALL },
        Caps { load_b: false, ..Caps::ALL },
        Caps { half: false, ..Caps::ALL },
        Caps { copy_async: false, ..Caps::ALL },
        Caps { vector: 2, ..Caps::ALL },
        Caps { vector: 1, copy_async: false, ..Caps::ALL },
    ];
    all.extend([1, 2, 4, 8, 16, 64, 128].map(|subgroup| Caps { subgroup, ..Caps::ALL }));
    all.extend([4, 8].map(|subgroup| Caps { subgroup, ..Caps::NONE }));
    all
}

/// Everything that may be lacking, in a loop and in a branch.
fn everything() -> Kernel {
    build("everything", 64, |k| {
        let x = k.read("x", Scalar::U32);
        let y = k.write("y", Scalar::U32);
        let s = k.shared("stage", Scalar::U32, 256);
        let b = k.shared("b", Scalar::I8x4, 128);
        let id = k.local_id();
        b.store(id * 2, x.load_vector(id * 2, 2).cast(Scalar::I8x4));
        s.copy_async(id * 4, x, (id ^ 1) * 4);
        k.copy_commit();
        k.copy_wait(0);
        k.barrier();
        let [out] = k.fold(k.u32(0), k.u32(2), 1, [x.load(id)], |turn, [carried]| {
            [carried + all_operations(k, [x, s, b], id, turn)]
        });
        let [out] = k.choose(
            k.group_id().eq(k.u32(0)),
            || [out.shuffle_xor(32, 17)],
            || [out.broadcast(16, 3) + out.shuffle_xor(8, 2)],
        );
        y.store(k.group_id() * 64 + id, out);
    })
}

fn all_operations<'k>(k: &'k Build, [x, s, b]: [Mem<'k>; 3], id: V<'k>, turn: V<'k>) -> V<'k> {
    let four = x.load_stream((id ^ turn) * 4, 4);
    let two = s.load_vector(id * 2, 2);
    let bytes = |v: V<'k>| v.cast(Scalar::I8x4);
    let product = k.mma(bytes(four), bytes(two), four.cast(Scalar::I32));
    let product = k.mma(bytes(four), b.load_b((id >> 5) * 4 + turn * 8, 12), product);
    let smaller = k.mma(bytes(two), bytes(four.part(1)), product);
    let mixed = k.dot4(four.part(2).cast(Scalar::U8x4), bytes(two.part(0)), smaller.part(3));
    let halves = four.part(0).half(0).cast(Scalar::U32) ^ four.part(3).half(1).cast(Scalar::U32);
    let shuffled = smaller.shuffle_xor(32, 24).cast(Scalar::U32);
    let odd = (four.part(0) & 1).eq(k.u32(1)).shuffle_xor(16, 8).select(k.u32(5), k.u32(9));
    let joined =
        [0, 1, 2, 3].map(|i| shuffled.part(i)).into_iter().fold(halves + odd, |sum, word| sum ^ word);
    joined + mixed.cast(Scalar::U32)
}

fn launch(kernel: &Kernel) -> Launch {
    let mut state = 1_u32;
    let mut word = || {
        state = state.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        // Small halves, subnormal ones among them, and bytes of all kinds.
        state ^ state >> 15
    };
    let x: Vec<u8> = (0..256).flat_map(|_| word().to_le_bytes()).collect();
    assert_eq!(kernel.params.len(), 0);
    Launch { groups: 2, params: vec![], buffers: vec![x, vec![0; 512]], fuel: u64::MAX }
}

fn output(kernel: &Kernel) -> Vec<u8> {
    assert_eq!(verify(kernel), [], "{kernel}");
    let mut launch = launch(kernel);
    run(kernel, &mut launch).unwrap_or_else(|trap| panic!("{trap}\n{kernel}"));
    launch.buffers.pop().unwrap_or_default()
}

#[test]
fn legal_kernels_give_what_the_original_gives() {
    let original = everything();
    let expected = output(&original);
    for caps in all_caps() {
        let legal = legalize(&original, &caps);
        assert!(is_legal(&legal, &caps), "{caps:?}\n{legal}");
        assert_eq!(output(&legal), expected, "{caps:?}");
        assert_eq!(legalize(&legal, &caps), legal, "{caps:?}: once is enough");
    }
}

#[test]
fn what_a_device_has_stays() {
    assert!([Caps::ALL, Caps::NONE].iter().all(|caps| caps.subgroup.is_power_of_two()));
    let original = everything();
    assert_eq!(legalize(&original, &Caps::ALL), original);
    let legal = legalize(&original, &Caps { dot4: false, ..Caps::ALL });
    let text = legal.to_string();
    assert!(text.contains("mma32") && text.contains("copy_async") && !text.contains("dot4"), "{text}");
}

/// One block of a branch that the device cannot run is enough.
#[test]
fn both_blocks_of_a_branch_count() {
    let caps = Caps { dot4: false, ..Caps::ALL };
    for lacking in [true, false] {
        let kernel = build("branch", 32, |k| {
            let (dot, sum) = (
                || [k.dot4(k.constant(Scalar::I8x4.into(), 7), k.constant(Scalar::I8x4.into(), 9), k.i32(1))],
                || [k.i32(1) + k.i32(2)],
            );
            let condition = k.local_id().eq(k.u32(0));
            if lacking {
                k.choose(condition, dot, sum)
            } else {
                k.choose(condition, sum, dot)
            };
        });
        assert!(!is_legal(&kernel, &caps), "{kernel}");
        assert!(is_legal(&kernel, &Caps::ALL));
        let legal = legalize(&kernel, &caps);
        assert!(is_legal(&legal, &caps), "{legal}");
        // Nothing is exchanged, so nothing is staged.
        assert_eq!(legal.objects, []);
    }
}

#[test]
fn the_least_of_devices_moves_single_words() {
    let text = legalize(&everything(), &Caps::NONE).to_string();
    assert!(!text.contains("load.u32x") && !text.contains("load_stream.u32x"), "{text}");
}

/// Every binary16, through the integer code.
#[test]
fn halves_are_exact() {
    let halves = build("halves", 1024, |k| {
        let y = k.write("y", Scalar::F32);
        let i = k.group_id() * 1024 + k.local_id();
        y.store(i, (i << 16 | (i ^ 0xFFFF)).half(1));
    });
    let legal = legalize(&halves, &Caps::NONE);
    let mut launch = Launch { groups: 64, params: vec![], buffers: vec![vec![0; 4 << 16]], fuel: u64::MAX };
    run(&legal, &mut launch).unwrap_or_else(|trap| panic!("{trap}"));
    for (half, found) in (0..=u16::MAX).zip(launch.buffers[0].as_chunks::<4>().0) {
        let expected = crate::format::blocks::f16_to_f32(half);
        assert_eq!(u32::from_le_bytes(*found), expected.to_bits(), "{half:04x}");
    }
}

/// A barrier may rest on an exchanged value that all have alike, on whatever device.
#[test]
fn exchanges_of_uniform_values_stay_uniform() {
    let original = build("uniform", 64, |k| {
        let (x, y) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let s = k.shared("s", Scalar::U32, 64);
        let alike = x.load(k.group_id());
        let sum = alike.shuffle_xor(32, 16) + alike.broadcast(32, 7);
        k.when(sum.lt(k.u32(1 << 31)), || {
            s.store(k.local_id(), k.local_id());
            k.barrier();
            y.store(k.group_id() * 64 + k.local_id(), s.load(k.local_id() ^ 40).shuffle_xor(32, 9) + sum);
        });
    });
    assert_eq!(verify(&original), [], "{original}");
    let bytes = |words: std::ops::Range<u32>| words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
    let output = |kernel: &Kernel| {
        let buffers = vec![bytes(100..102), vec![0; 512]];
        let mut launch = Launch { groups: 2, params: vec![], buffers, fuel: u64::MAX };
        run(kernel, &mut launch).expect("no trap");
        launch.buffers.pop()
    };
    for caps in all_caps() {
        let legal = legalize(&original, &caps);
        assert_eq!(verify(&legal), [], "{caps:?}\n{legal}");
        assert_eq!(output(&legal), output(&original), "{caps:?}");
    }
}
