//! What kernels do without, and devices do in different ways: nobody is refused for it, but whoever tests drivers asks.
//!
//! A [`Question`] is a probe with what may come out beside what the host computes. What is neither is a fault.

use std::collections::BTreeSet;

use crate::{Facts, Needs, Probe, cases, expected};

/// A probe of what the contract does not use.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// What is asked; what has to come out is what the host computes.
    pub probe: Probe,
    /// What may come out as well.
    permissions: &'static [Permission],
}

/// What the specification leaves to a device.
#[derive(Clone, Copy, Debug)]
struct Permission {
    name: &'static str,
    results: fn(&[u32], Facts) -> Vec<u32>,
}

/// How a device answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Names of the permissions that it makes use of.
    pub permitted: BTreeSet<&'static str>,
    /// Numbers of the results that nothing permits.
    pub wrong: Vec<usize>,
}

impl Question {
    /// Results that are as good as those that are expected, each of them by itself.
    pub fn permitted(&self, facts: Facts) -> Vec<Vec<u32>> {
        let input = self.probe.input();
        self.permissions.iter().map(|permission| (permission.results)(&input, facts)).collect()
    }

    /// What is to be said of results, as many as the probe has.
    pub fn judge(&self, found: &[u32], facts: Facts) -> Answers {
        let input = self.probe.input();
        let expected = self.probe.expected(facts);
        let others: Vec<(&str, Vec<u32>)> = self
            .permissions
            .iter()
            .map(|permission| (permission.name, (permission.results)(&input, facts)))
            .collect();
        let mut answers = Answers::default();
        for (at, expected) in expected.iter().enumerate() {
            let found = found.get(at);
            if found == Some(expected) {
                continue;
            }
            match others.iter().find(|(_, results)| found.is_some() && results.get(at) == found) {
                Some((name, _)) => drop(answers.permitted.insert(name)),
                None => answers.wrong.push(at),
            }
        }
        answers
    }
}

/// A rounding of halves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Nearest,
    Down,
    Up,
    /// To nearest, and 0 for what is subnormal.
    Flush,
}

/// The binary16 of a float that is no NaN.
fn half(x: f32, round: Round) -> u32 {
    let sign = x.to_bits() >> 16 & 0x8000;
    /// What is larger is an infinity as well.
    const ENOUGH: f64 = 131_072.0;
    let magnitude = if f64::from(x).abs() > ENOUGH { ENOUGH } else { f64::from(x).abs() };
    // The exponent of a normal half, or of the subnormal ones.
    let exponent = ((x.to_bits() >> 23 & 0xFF) as i32 - 127).clamp(-14, 16);
    let scaled = magnitude * f64::from(f32::from_bits(((127 + 10 - exponent) as u32) << 23));
    let below = scaled.floor();
    let rest = scaled - below;
    let is_odd = below % 2.0 == 1.0;
    let is_up = match round {
        Round::Nearest | Round::Flush => rest > 0.5 || (rest == 0.5 && is_odd),
        Round::Down => false,
        Round::Up => rest > 0.0,
    };
    let fraction = below as u64 + u64::from(is_up);
    // 1024 and more carry into the exponent.
    let bits = (((exponent + 14) as u64) << 10) + fraction;
    let is_subnormal = bits < 0x400;
    let bits = match round {
        Round::Flush if is_subnormal => 0,
        Round::Down => bits.min(0x7BFF),
        _ => bits.min(0x7C00),
    };
    sign | bits as u32
}

fn halves(input: &[u32], round: Round) -> Vec<u32> {
    input.iter().map(|&word| half(f32::from_bits(word), round)).collect()
}

/// The float of a binary16 that is finite, and of a subnormal one with `flushed` a 0.
fn float(half: u32, flushed: bool) -> u32 {
    let (exponent, fraction) = (half >> 10 & 31, half & 0x3FF);
    let sign = (half & 0x8000) << 16;
    let unit = f32::from_bits((exponent.max(1) + 127 - 25) << 23);
    let integer = if exponent == 0 { fraction } else { fraction + 1024 };
    let value = if flushed && exponent == 0 { 0.0 } else { integer as f32 * unit };
    sign | value.to_bits()
}

fn floats(input: &[u32], flushed: bool) -> Vec<u32> {
    input.iter().flat_map(|&word| [word & 0xFFFF, word >> 16].map(|half| float(half, flushed))).collect()
}

/// A subnormal float as 0 of its sign.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x }
}

fn operations(input: &[u32], before: fn(f32) -> f32, after: fn(f32) -> f32) -> Vec<u32> {
    let results = |&[a, b]: &[u32; 2]| {
        let [a, b] = [a, b].map(|word| before(f32::from_bits(word)));
        [a + b, a - b, a * b].map(|result| after(result).to_bits())
    };
    input.as_chunks::<2>().0.iter().flat_map(results).collect()
}

fn kept(x: f32) -> f32 {
    x
}

/// A subnormal float as +0.
fn flush_to_plus(x: f32) -> f32 {
    if x.is_subnormal() { 0.0 } else { x }
}

fn triples(input: &[u32], result: fn(f32, f32, f32) -> f32) -> Vec<u32> {
    let of =
        |&[a, b, c]: &[u32; 3]| result(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c)).to_bits();
    input.as_chunks::<3>().0.iter().map(of).collect()
}

#[allow(clippy::disallowed_methods, reason = "this is what fused means")]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// The smaller and the larger; of equal ones, which are 0 and -0, the first, the second, or by their signs.
fn extremes(input: &[u32], of_equal: fn(u32, u32) -> [u32; 2]) -> Vec<u32> {
    let results = |&[a, b]: &[u32; 2]| {
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        if x < y {
            [a, b]
        } else if y < x {
            [b, a]
        } else {
            of_equal(a, b)
        }
    };
    input.as_chunks::<2>().0.iter().flat_map(results).collect()
}

const HALF_ROUNDING: &str = "half-rounding";
const FLUSH: &str = "flush";
const FUSED: &str = "fused-fma";
const ZEROS: &str = "minimum-of-zeros";

macro_rules! question {
    ($name:literal, $fault:literal, $words:literal, $input:path, $expected:expr, [$($permission:expr => $results:expr),*]) => {
        Question {
            probe: Probe {
                name: $name,
                fault: $fault,
                needs: Needs::Nothing,
                workgroup: 64,
                words_a_group: $words,
                spirv: include_bytes!(concat!("../probes/", $name, ".spv")),
                input: $input,
                expected: $expected,
            },
            permissions: &[$(Permission { name: $permission, results: $results }),*],
        }
    };
}

/// All questions.
#[rustfmt::skip]
pub fn questions() -> [Question; 5] {
    [
        question!("half_pack", "floats become other halves than one of the two beside them", 128, cases::half_floats,
            |x, _| halves(x, Round::Nearest),
            [HALF_ROUNDING => |x, _| halves(x, Round::Down), HALF_ROUNDING => |x, _| halves(x, Round::Up),
             FLUSH => |x, _| halves(x, Round::Flush)]),
        question!("half_unpack", "halves become other floats", 64, cases::halves, |x, _| floats(x, false),
            [FLUSH => |x, _| floats(x, true)]),
        question!("subnormals", "what is subnormal is neither kept nor flushed", 128, cases::subnormals,
            |x, _| operations(x, kept, kept),
            [FLUSH => |x, _| operations(x, kept, flush), FLUSH => |x, _| operations(x, flush, flush),
             FLUSH => |x, _| operations(x, flush, kept), FLUSH => |x, _| operations(x, flush_to_plus, flush_to_plus),
             FLUSH => |x, _| operations(x, kept, flush_to_plus)]),
        question!("fma", "Fma rounds neither once nor twice", 192, cases::triples,
            |x, _| triples(x, |a, b, c| expected::contraction_steps([a, b, c])[1]),
            [FUSED => |x, _| triples(x, fused)]),
        question!("minimum", "the smaller or larger float is another", 128, cases::pairs,
            |x, _| extremes(x, |a, b| [a.max(b), a.min(b)]),
            [ZEROS => |x, _| extremes(x, |a, _| [a, a]), ZEROS => |x, _| extremes(x, |_, b| [b, b]),
             ZEROS => |x, _| extremes(x, |a, b| [a, b]), ZEROS => |x, _| extremes(x, |a, b| [b, a]),
             ZEROS => |x, _| extremes(x, |a, b| [a.min(b), a.max(b)])]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts { subgroup_size: 1 };

    #[test]
    fn halves_are_those_of_the_standard() {
        for (x, expected) in [
            (1.0, 0x3C00),
            (-2.0, 0xC000),
            (65504.0, 0x7BFF),
            (65519.0, 0x7BFF),
            (65520.0, 0x7C00),
            (1e30, 0x7C00),
            (0.0, 0),
            (-0.0, 0x8000),
            (6.103_515_6e-5, 0x400),
            (5.960_464_5e-8, 1),
            (2.980_232_2e-8, 0),
            (8.940_697e-8, 2),
            (0.333_333_34, 0x3555),
            (1.000_488_3, 0x3C00),
            (1.001_464_8, 0x3C02),
        ] {
            assert_eq!(half(x, Round::Nearest), expected, "{x}");
        }
        assert_eq!(half(1e30, Round::Down), 0x7BFF);
        assert_eq!(half(1.0001, Round::Up), 0x3C01);
        assert_eq!(half(-5.960_464_5e-8, Round::Flush), 0x8000);
        for bits in (0..0x7C00).chain(0x8000..0xFC00) {
            assert_eq!(half(f32::from_bits(float(bits, false)), Round::Nearest), bits);
        }
    }

    #[test]
    fn what_is_permitted_is_told_from_what_is_wrong() {
        for question in questions() {
            let name = question.probe.name;
            let right = question.probe.expected(FACTS);
            assert!(right.len() >= 512 && question.probe.input().len().is_multiple_of(64), "{name}");
            assert_eq!(question.judge(&right, FACTS), Answers::default(), "{name}");
            let input = question.probe.input();
            let other = (question.permissions[0].results)(&input, FACTS);
            assert_ne!(other, right, "{name}");
            let answers = question.judge(&other, FACTS);
            assert_eq!((answers.permitted.len(), answers.wrong.len()), (1, 0), "{name}: {answers:?}");
            let mut wrong = right.clone();
            wrong[7] ^= 0x0400_0001;
            assert_eq!(question.judge(&wrong, FACTS).wrong, [7], "{name}");
            assert_eq!(question.judge(&right[1..], FACTS).wrong.last(), Some(&(right.len() - 1)));
        }
    }
}
