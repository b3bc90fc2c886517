//! What has to come out of probes: the same operations on the host, whose f32 is the contract's.

use crate::Facts;

/// The floats of tuples.
fn floats<const N: usize>(input: &[u32]) -> impl Iterator<Item = [f32; N]> {
    input.as_chunks::<N>().0.iter().map(|words| words.map(f32::from_bits))
}

fn bits(values: impl IntoIterator<Item = f32>) -> impl Iterator<Item = u32> {
    values.into_iter().map(f32::to_bits)
}

pub fn rounding(input: &[u32], _: Facts) -> Vec<u32> {
    floats(input).flat_map(|[a, b]| bits([a + b, a - b, a * b])).collect()
}

pub fn contraction(input: &[u32], _: Facts) -> Vec<u32> {
    let results = |tuple| {
        let steps = contraction_steps(tuple);
        bits([steps[1], steps[2], steps[6]])
    };
    floats(input).flat_map(results).collect()
}

/// All that comes up.
pub fn contraction_steps([a, b, c]: [f32; 3]) -> Vec<f32> {
    let product = a * b;
    let next = a * c;
    let [first, second] = [product + next, product + next + next];
    vec![product, product + c, c - product, next, first, second, second + next]
}

pub fn reassociation(input: &[u32], _: Facts) -> Vec<u32> {
    let results = |[t]: [f32; 1]| {
        let steps = reassociation_steps(t);
        bits([1, 3, 5, 6, 7, 8, 9, 10, 11].map(|step| steps[step]))
    };
    floats(input).flat_map(results).collect()
}

/// All that comes up.
#[allow(clippy::eq_op, clippy::neg_multiply, reason = "floats have no such identities")]
pub fn reassociation_steps(t: f32) -> Vec<f32> {
    const ROUNDING: f32 = 12_582_912.0;
    let (up, third, large, zero) = (t + ROUNDING, t * 3.0, t + 1_048_576.0, t * 0.0);
    vec![
        up,
        up - ROUNDING,
        third,
        third * 0.333_333_34,
        large,
        large + 0.000_976_562_5,
        zero,
        t + 0.0,
        t - t,
        0.0 - t,
        t * -1.0,
        zero + -0.0,
    ]
}

pub fn conversions(input: &[u32], _: Facts) -> Vec<u32> {
    let results = |&word: &u32| {
        let n = word as i32;
        [(n as f32).to_bits(), ((n >> 8) as f32).to_bits(), word & 0x807F_FFFF | 0x4000_0000]
    };
    input.iter().flat_map(results).collect()
}

pub fn integers(input: &[u32], _: Facts) -> Vec<u32> {
    let results = |&[a, b]: &[u32; 2]| {
        let (c, d, shift) = (a as i32, b as i32, b & 31);
        let byte = i32::from((a >> 8) as i8);
        [
            a.wrapping_add(b),
            a.wrapping_sub(b),
            a.wrapping_mul(b),
            a << shift,
            a >> shift,
            (c >> shift) as u32,
            a.min(b),
            c.max(d) as u32,
            byte as u32,
            a & 0xFF00_FFFF | (b & 0xFF) << 16,
            a / b.max(1),
            a % b.max(1),
        ]
    };
    input.as_chunks::<2>().0.iter().flat_map(results).collect()
}

pub fn shared(input: &[u32], _: Facts) -> Vec<u32> {
    let of_group = |words: &[u32; 64]| {
        let mut values = words.map(f32::from_bits);
        for half_len in [32, 16, 8, 4, 2, 1] {
            for id in 0..half_len {
                values[id] += values[id + half_len];
            }
        }
        std::array::from_fn::<_, 64, _>(|id| (values[0] + values[63 - id]).to_bits())
    };
    input.as_chunks::<64>().0.iter().flat_map(of_group).collect()
}

pub fn shuffles(input: &[u32], facts: Facts) -> Vec<u32> {
    let size = facts.subgroup_size.max(1) as usize;
    let of_subgroup = |words: &[u32]| {
        let mut sums: Vec<f32> = words.iter().map(|&word| f32::from_bits(word)).collect();
        let mut away = 1;
        while away < size.min(32) {
            sums = (0..sums.len()).map(|lane| sums[lane] + sums[lane ^ away]).collect();
            away *= 2;
        }
        let one = words[(size - 1) & 2];
        sums.into_iter().flat_map(|sum| [sum.to_bits(), one]).collect::<Vec<_>>()
    };
    input.chunks(size).flat_map(of_subgroup).collect()
}

pub fn dots(input: &[u32], _: Facts) -> Vec<u32> {
    let results = |&[a, b]: &[u32; 2]| {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        let sum =
            |product: fn(u8, u8) -> i32| a.iter().zip(b).map(|(&a, b)| product(a, b)).sum::<i32>() as u32;
        [
            sum(|a, b| i32::from(a as i8) * i32::from(b as i8)),
            sum(|a, b| i32::from(a) * i32::from(b)),
            sum(|a, b| i32::from(a as i8) * i32::from(b)),
        ]
    };
    input.as_chunks::<2>().0.iter().flat_map(results).collect()
}

/// As in the shader: words from row to row of A, from column to column of B, from row to row of C.
const STRIDES: [usize; 3] = [20, 24, 20];
/// Words of all three.
pub const MATRICES_LEN: usize = 32 * STRIDES[0] + 16 * STRIDES[1] + 32 * STRIDES[2];

pub fn matrices(input: &[u32], _: Facts) -> Vec<u32> {
    let (a, rest) = input.split_at(32 * STRIDES[0]);
    let (b, c) = rest.split_at(16 * STRIDES[1]);
    let byte = |words: &[u32], at: usize| i32::from(words[at / 4].to_le_bytes()[at % 4] as i8);
    let element = |row: usize, col: usize| {
        let product = |k| byte(a, 4 * row * STRIDES[0] + k) * byte(b, 4 * col * STRIDES[1] + k);
        let sum: i32 = (0..64).map(product).sum();
        c[row * STRIDES[2] + col].wrapping_add(sum as u32)
    };
    (0..32).flat_map(|row| (0..16).map(move |col| (row, col))).map(|(row, col)| element(row, col)).collect()
}
