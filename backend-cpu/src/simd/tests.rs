//! Every operation of every implementation that this machine runs gives what [`Portable`] gives, bit for bit.
//!
//! A transcript runs the operations of one implementation on given inputs and keeps every result as patterns; two
//! transcripts of the same inputs are compared.

use super::*;
use crate::isa::Isa;

#[cfg(target_arch = "x86_64")]
#[test]
fn avx512_equals_portable() {
    if Isa::Avx512Vnni.is_available() {
        compare::<Avx512>();
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx2_equals_portable() {
    if Isa::Avx2.is_available() {
        compare::<Avx2>();
    }
}

#[cfg(target_arch = "aarch64")]
#[test]
fn neon_equals_portable() {
    assert!(Isa::Neon.is_available());
    compare::<Neon>();
}

/// A vector of words; they stand for integers, floats or bytes.
type Words = [u32; LANES];

/// Results by operation.
type Transcript = Vec<(&'static str, Vec<Words>)>;

fn compare<S: Simd>() {
    let mut random = Random(1);
    for round in 0..2000 {
        let inputs = Inputs::new(&mut random);
        // SAFETY: callers have asked whether the machine has the instructions.
        unsafe {
            same(round, integers::<Portable>(&inputs), integers::<S>(&inputs));
            same(round, floats::<Portable>(&inputs), floats::<S>(&inputs));
            same(round, bytes::<Portable>(&inputs), bytes::<S>(&inputs));
            same(round, dots::<Portable>(&inputs), dots::<S>(&inputs));
        }
    }
    for first in (0..=u16::MAX).step_by(LANES) {
        let halves: [u16; LANES] = std::array::from_fn(|i| first + i as u16);
        // Infinities and NaN are no scales, so only numbers are defined.
        if halves[0] & 0x7C00 != 0x7C00 {
            // SAFETY: as above.
            let [expected, found] = unsafe { [half::<Portable>(&halves), half::<S>(&halves)] };
            assert_eq!(found, expected, "load_f16 from {first:04x}");
        }
    }
}

fn same(round: usize, expected: Transcript, found: Transcript) {
    assert_eq!(expected.len(), found.len());
    for ((name, expected), (_, found)) in expected.into_iter().zip(found) {
        assert_eq!(found, expected, "{name}, round {round}");
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.word() % from.len() as u64) as usize]
    }

    /// An edge of the integers, something near 2^24, where conversions to float start to round, or anything.
    fn integer(&mut self) -> u32 {
        match self.word() % 4 {
            0 => self.pick(&[
                0,
                1,
                u32::MAX,
                1 << 31,
                (1 << 31) + 1,
                i32::MAX as u32,
                0x7FFF_FFC0,
                0x7FFF_FFBF,
            ]),
            1 => {
                let near = (1 << 24) + (self.word() % 64) as i32 - 32;
                self.pick(&[near, -near, 2 * near, -2 * near]) as u32
            }
            _ => self.word() as u32,
        }
    }

    /// A finite float of any exponent, often zero or subnormal.
    fn float(&mut self) -> u32 {
        let word = self.word() as u32;
        match self.word() % 8 {
            0 => word & 0x8000_0000,
            1 => word & 0x807F_FFFF,
            2 => (word & 0x807F_FFFF) | 0x3F80_0000,
            _ if word & 0x7F80_0000 == 0x7F80_0000 => word & 0xBFFF_FFFF,
            _ => word,
        }
    }

    /// A byte of a plane or packed weight: `edges` or anything from `least` on, as many as `count`.
    fn byte(&mut self, edges: &[i32], least: i32, count: u64) -> u8 {
        let any = least + (self.word() % count) as i32;
        (if self.word().is_multiple_of(2) { any } else { self.pick(edges) }) as u8
    }
}

/// What the operations of a round work on.
struct Inputs {
    a: Words,
    b: Words,
    x: Words,
    y: Words,
    f: Words,
    g: Words,
    /// Any bytes.
    bytes: [[u8; 4]; LANES],
    other: [[u8; 4]; LANES],
    /// Bytes from 0 to 127.
    low_bytes: [[u8; 4]; LANES],
    /// Values of planes, one to a byte, never -128.
    planes: [u8; 4],
    table: [u8; 16],
    /// Two weights of values.
    halves: i32,
    acc: i32,
}

impl Inputs {
    fn new(random: &mut Random) -> Self {
        let mut integers = || std::array::from_fn(|_| random.integer());
        let (a, b, x, y) = (integers(), integers(), integers(), integers());
        let mut floats = || std::array::from_fn(|_| random.float());
        let (f, g) = (floats(), floats());
        let mut bytes = |edges: &[i32], count| -> [[u8; 4]; LANES] {
            std::array::from_fn(|_| std::array::from_fn(|_| random.byte(edges, 0, count)))
        };
        let (any, other) = (bytes(&[0, 255, 127, 128], 256), bytes(&[0, 255], 256));
        let low_bytes = bytes(&[127, 0], 128);
        let planes = std::array::from_fn(|_| random.byte(&[127, -127], -127, 255));
        let table = std::array::from_fn(|_| random.word() as u8);
        let mut weight = || random.pick(&[16319_i32, -16319, 0, -1, 1, 12345, -4567]);
        let halves = (weight() & 0xFFFF) | (weight() << 16);
        let acc = random.word() as i32 >> 2;
        Self { a, b, x, y, f, g, bytes: any, other, low_bytes, planes, table, halves, acc }
    }
}

unsafe fn load<S: Simd>(words: &Words) -> S::I {
    // SAFETY: callers have the instructions; 64 bytes.
    unsafe { S::load_i(words.as_ptr().cast()) }
}

unsafe fn store<S: Simd>(x: S::I) -> Words {
    let mut words = [0; LANES];
    // SAFETY: callers have the instructions; 64 bytes.
    unsafe { S::store_i(words.as_mut_ptr().cast(), x) };
    words
}

unsafe fn store_f<S: Simd>(x: S::F) -> Words {
    let mut words = [0; LANES];
    // SAFETY: callers have the instructions; 64 bytes.
    unsafe { S::store_f(words.as_mut_ptr().cast(), x) };
    words
}

unsafe fn half<S: Simd>(halves: &[u16; LANES]) -> Words {
    // SAFETY: callers have the instructions; 32 bytes.
    unsafe { store_f::<S>(S::load_f16(halves.as_ptr())) }
}

unsafe fn integers<S: Simd>(inputs: &Inputs) -> Transcript {
    // SAFETY: callers have the instructions; bytes are read and written from an odd address with room for them.
    unsafe {
        let [a, b, x, y] = [&inputs.a, &inputs.b, &inputs.x, &inputs.y].map(|words| load::<S>(words));
        let one = |x: S::I| vec![store::<S>(x)];
        // Values that fit a byte, as `store_low_bytes` needs them.
        let mut at_odd = [0xAA_u8; 4 * LANES + 2];
        S::store_low_bytes(at_odd.as_mut_ptr().add(1).cast(), S::sar_i::<24>(a));
        let low_bytes = at_odd[..LANES + 2].iter().map(|&byte| [u32::from(byte); LANES]).collect();
        S::store_i(at_odd.as_mut_ptr().add(1).cast(), a);
        vec![
            ("splat_i", one(S::splat_i(inputs.acc))),
            ("load_i", vec![inputs.a]),
            ("load_i, store_i", one(S::load_i(at_odd.as_ptr().add(1).cast()))),
            ("load_i8", one(S::load_i8(at_odd.as_ptr().add(3).cast()))),
            ("add_i", one(S::add_i(a, b))),
            ("sub_i", one(S::sub_i(a, b))),
            ("mul_i", one(S::mul_i(a, b))),
            ("and_i", one(S::and_i(a, b))),
            ("xor_i", one(S::xor_i(a, b))),
            ("min_i", one(S::min_i(a, b))),
            ("max_i", one(S::max_i(a, b))),
            (
                "shl_i",
                [S::shl_i::<1>(a), S::shl_i::<7>(a), S::shl_i::<23>(a), S::shl_i::<31>(a)]
                    .map(|x| store::<S>(x))
                    .into(),
            ),
            (
                "sar_i",
                [S::sar_i::<1>(a), S::sar_i::<7>(a), S::sar_i::<16>(a), S::sar_i::<31>(a)]
                    .map(|x| store::<S>(x))
                    .into(),
            ),
            ("select_lt", vec![store::<S>(S::select_lt(a, b, x, y)), store::<S>(S::select_lt(a, a, x, y))]),
            (
                "swap_i",
                [S::swap_i::<1>(a), S::swap_i::<2>(a), S::swap_i::<4>(a), S::swap_i::<8>(a)]
                    .map(|x| store::<S>(x))
                    .into(),
            ),
            ("store_low_bytes", low_bytes),
        ]
    }
}

unsafe fn floats<S: Simd>(inputs: &Inputs) -> Transcript {
    // SAFETY: callers have the instructions; words are read and written from an odd address with room for them.
    unsafe {
        let [f, g] = [&inputs.f, &inputs.g].map(|words| S::load_f(words.as_ptr().cast()));
        let one = |x: S::F| vec![store_f::<S>(x)];
        let mut at_odd = [0_u8; 4 * LANES + 1];
        S::store_f(at_odd.as_mut_ptr().add(1).cast(), f);
        vec![
            ("splat_f", one(S::splat_f(f32::from_bits(inputs.f[0])))),
            ("load_f, store_f", one(S::load_f(at_odd.as_ptr().add(1).cast()))),
            ("add_f", one(S::add_f(f, g))),
            ("sub_f", one(S::sub_f(f, g))),
            ("mul_f", one(S::mul_f(f, g))),
            ("mul_f, add_f", one(S::add_f(S::mul_f(f, S::splat_f(0.3)), g))),
            ("to_f", one(S::to_f(load::<S>(&inputs.a)))),
            ("bits", vec![store::<S>(S::bits(f))]),
            ("from_bits", one(S::from_bits(load::<S>(&inputs.g)))),
        ]
    }
}

/// The bytes of a vector, biased by -128: byte i of each lane in the words of result i.
unsafe fn store_b<S: Simd>(x: S::B) -> Vec<Words> {
    let bias = if S::WIDE_IS_BIASED { -128 } else { 0 };
    // SAFETY: callers have the instructions.
    (0..4).map(|i| unsafe { store::<S>(S::dot4_wide(S::splat_i(bias), x, 1 << (8 * i))) }).collect()
}

unsafe fn bytes<S: Simd>(inputs: &Inputs) -> Transcript {
    // SAFETY: callers have the instructions; 64 bytes each.
    unsafe {
        let [a, b] = [&inputs.bytes, &inputs.other].map(|bytes| S::load_b(bytes.as_ptr().cast()));
        // What comes from the neighbour is masked off, as in the kernels.
        let right = [
            S::and_b(S::shr_b::<1>(a), 0x7F),
            S::and_b(S::shr_b::<2>(a), 0x3F),
            S::and_b(S::shr_b::<3>(a), 0x1F),
            S::and_b(S::shr_b::<4>(a), 0x0F),
            S::and_b(S::shr_b::<5>(a), 0x07),
            S::and_b(S::shr_b::<6>(a), 0x03),
        ];
        let left = [
            S::and_b(S::shl_b::<1>(a), 0xFE),
            S::and_b(S::shl_b::<2>(a), 0xFC),
            S::and_b(S::shl_b::<3>(a), 0xF8),
            S::and_b(S::shl_b::<4>(a), 0xF0),
        ];
        vec![
            ("load_b", store_b::<S>(a)),
            ("and_b", store_b::<S>(S::and_b(a, inputs.planes[0]))),
            ("or_b", store_b::<S>(S::or_b(a, b))),
            ("shr_b", right.into_iter().flat_map(|x| store_b::<S>(x)).collect()),
            ("shl_b", left.into_iter().flat_map(|x| store_b::<S>(x)).collect()),
            ("lookup", store_b::<S>(S::lookup(S::and_b(a, 15), &inputs.table))),
        ]
    }
}

unsafe fn dots<S: Simd>(inputs: &Inputs) -> Transcript {
    let x = i32::from_le_bytes(inputs.planes);
    let sum: i32 = inputs.planes.iter().map(|&x| i32::from(x as i8)).sum();
    let bias = if S::WIDE_IS_BIASED { -128 * sum } else { 0 };
    let extremes = [[[0; 4]; LANES], [[255; 4]; LANES]];
    // SAFETY: callers have the instructions; 64 bytes each, of which dot2 reads half.
    unsafe {
        let acc = S::splat_i(inputs.acc);
        let wide = |w: &[[u8; 4]; LANES]| {
            let from = S::splat_i(inputs.acc + bias);
            store::<S>(S::dot4_wide(from, S::load_b(w.as_ptr().cast()), x))
        };
        let narrow = |w: &[[u8; 4]; LANES], x| store::<S>(S::dot4(acc, S::load_b(w.as_ptr().cast()), x));
        let (most, least) = (i32::from_le_bytes([127; 4]), i32::from_le_bytes([129; 4]));
        let values = inputs.bytes.as_ptr().cast::<i8>();
        vec![
            ("dot4", vec![narrow(&inputs.low_bytes, x)]),
            ("dot4 of extremes", vec![narrow(&[[127; 4]; LANES], most), narrow(&[[127; 4]; LANES], least)]),
            ("dot4_wide", vec![wide(&inputs.bytes)]),
            ("dot4_wide of extremes", extremes.iter().map(wide).collect()),
            ("dot2", vec![store::<S>(S::dot2(acc, values, inputs.halves))]),
            ("dot2 at an odd address", vec![store::<S>(S::dot2(acc, values.add(1), inputs.halves))]),
        ]
    }
}
