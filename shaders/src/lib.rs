//! Shaders that people write: probes of whether a driver computes as the arithmetic contract says.
//!
//! The contract (docs/numerics.md) rests on a few operations that are exact on every device: f32 sums, differences and
//! products that are each rounded, conversions, integers, packed dot products, exchanges. A driver may still get one wrong,
//! or take for an identity what is none. So each is asked, once: a [`Probe`] is a shader, what it is given, and what has to
//! come out to the bit. They are GLSL (`shaders/probes/*.comp`), compiled by another compiler than the one that makes our
//! kernels (`scripts/compile-shaders.sh`), so that a mistake of ours in emitting code is not made twice.
//!
//! Subnormals are in none of them, on the way or in the end: the contract uses none. Nor are overflows and NaN. What kernels do
//! without is asked by [`questions()`], on which nothing depends.
//!
//! Start reading at [`probes`].

mod cases;
mod expected;
mod modes;
mod questions;

pub use modes::{Modes, with_modes};
pub use questions::{Answers, Question, questions};

/// A shader, what it is given, and what has to come out.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its name.
    pub name: &'static str,
    /// What is wrong with a device where something else comes out.
    pub fault: &'static str,
    /// What the device has to offer for it to run.
    pub needs: Needs,
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Words of the input that a workgroup takes; the matrices take all.
    words_a_group: usize,
    spirv: &'static [u8],
    input: fn() -> Vec<u32>,
    expected: fn(&[u32], Facts) -> Vec<u32>,
}

/// What a probe needs of a device; without it kernels do without as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Needs {
    /// What every device has. One that fails here cannot be used.
    Nothing,
    /// Full subgroups with shuffles.
    Subgroups,
    /// Constants of f32 that the driver's compiler knows; without it they come about at run time.
    Constants,
    /// Packed dot products.
    IntegerDot,
    /// s8 matrices of 16x8x32 in full subgroups of 32.
    Matrices,
}

/// What of a device changes results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Invocations of a subgroup.
    pub subgroup_size: u32,
}

impl Probe {
    /// SPIR-V 1.5, with an entry point `main`. Its push constants are two addresses: input and output.
    pub fn words(&self) -> Vec<u32> {
        self.spirv.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
    }

    /// What it is given.
    pub fn input(&self) -> Vec<u32> {
        (self.input)()
    }

    /// What has to come out.
    pub fn expected(&self, facts: Facts) -> Vec<u32> {
        (self.expected)(&self.input(), facts)
    }

    /// How many workgroups run.
    pub fn groups(&self) -> u32 {
        (self.input().len() / self.words_a_group) as u32
    }

    /// What is wrong, if another output came than had to.
    pub fn fault_of(&self, found: &[u32], facts: Facts) -> Option<String> {
        let expected = self.expected(facts);
        if found.len() != expected.len() {
            return Some(format!("{}: {} words, not {}", self.fault, found.len(), expected.len()));
        }
        let wrong: Vec<usize> = (0..found.len()).filter(|&at| found[at] != expected[at]).collect();
        let &first = wrong.first()?;
        Some(format!(
            "{} ({} of {} results of the probe `{}`; the first, {first}, is 0x{:08x} and not 0x{:08x})",
            self.fault,
            wrong.len(),
            found.len(),
            self.name,
            found[first],
            expected[first]
        ))
    }
}

macro_rules! probe {
    ($name:literal, $fault:literal, $needs:ident, $workgroup:literal, $words:expr, $input:path, $expected:path) => {
        Probe {
            name: $name,
            fault: $fault,
            needs: Needs::$needs,
            workgroup: $workgroup,
            words_a_group: $words,
            spirv: include_bytes!(concat!("../probes/", $name, ".spv")),
            input: $input,
            expected: $expected,
        }
    };
}

/// All probes; those first that every device has to pass.
#[rustfmt::skip]
pub fn probes() -> [Probe; 10] {
    [
        probe!("rounding", "f32 results are not rounded to nearest even", Nothing, 64, 128, cases::pairs, expected::rounding),
        probe!("contraction", "products are added without being rounded first", Nothing, 64, 192, cases::triples, expected::contraction),
        probe!("reassociation", "f32 operations are reordered or taken for identities that they are not", Nothing, 64, 64, cases::singles, expected::reassociation),
        probe!("conversions", "integers become other floats", Nothing, 64, 64, cases::integers, expected::conversions),
        probe!("integers", "integer operations give other results", Nothing, 64, 128, cases::integer_pairs, expected::integers),
        probe!("shared", "invocations of a workgroup do not see what others wrote before a barrier", Nothing, 64, 64, cases::moderate, expected::shared),
        probe!("constants", "f32 operations with constants are taken for identities that they are not", Constants, 64, 64, cases::singles, expected::reassociation),
        probe!("shuffles", "exchanges in a subgroup give other values", Subgroups, 128, 128, cases::moderate, expected::shuffles),
        probe!("dots", "packed dot products give other sums", IntegerDot, 64, 128, cases::integer_pairs, expected::dots),
        probe!("matrices", "products of matrices give other sums", Matrices, 32, expected::MATRICES_LEN, cases::matrices, expected::matrices),
    ]
}

#[cfg(test)]
mod tests;
