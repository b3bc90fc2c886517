//! The cases of each group.

use unisonic_core::kir::cases::{self, Floats};
use unisonic_core::kir::legal::Caps;
use unisonic_core::kir::random::random_kernel;
use unisonic_planner::kernels::samples::{Extent, FAMILIES, Sample};

use super::{Case, Expected, Made, WITH_SUBNORMALS, flush, limits};
use crate::kernels::Facts;
use crate::suite::{Group, RANDOM_KERNELS, Suite};

/// Operations of a random kernel.
const RANDOM_SIZE: u32 = 40;

/// The cases of a group for a device, the same each time.
pub fn made(group: Group, suite: Suite, caps: &Caps, facts: &Facts) -> Box<dyn Iterator<Item = Made>> {
    match group {
        Group::Op(op) => {
            let cases = cases::all().into_iter().filter(move |case| case.op == op);
            let keeps_subnormals = facts.keeps_subnormals;
            Box::new(cases.flat_map(move |case| {
                let of = |name: String, floats| {
                    let launch = case.launch(floats);
                    Ok(Case { name, kernel: case.kernel.clone(), launch, expected: Expected::Interpreter })
                };
                let name = case.kernel.name.clone();
                if keeps_subnormals {
                    return vec![of(name, Floats::Finite)];
                }
                // What all devices keep, and in the full suite what they may flush.
                let flushes = suite == Suite::Full && flush::concerns(&case.kernel);
                let with = flushes.then(|| of(format!("{name}{WITH_SUBNORMALS}"), Floats::Finite));
                [of(name, Floats::Normal)].into_iter().chain(with).collect()
            }))
        }
        Group::Limits => Box::new(limits::cases(facts, suite).into_iter()),
        Group::Random(number) => Box::new((0..RANDOM_KERNELS).map(move |seed| {
            let seed = number * RANDOM_KERNELS + seed;
            let (kernel, launch) = random_kernel(seed, RANDOM_SIZE);
            Ok(Case { name: format!("seed {seed}"), kernel, launch, expected: Expected::Interpreter })
        })),
        Group::Probe(_) | Group::Known(_) | Group::Tokens(_) => Box::new(std::iter::empty()),
        Group::Template(family) => {
            let caps = *caps;
            let samples = FAMILIES.get(family).map(|(_, samples)| samples(Extent::Pairs));
            let samples = samples.into_iter().flatten();
            Box::new(samples.enumerate().map(move |(number, sample)| of_sample(number, sample, suite, &caps)))
        }
    }
}

/// Samples that are made for devices with matrices are large without them.
fn of_sample(number: usize, sample: Sample, suite: Suite, caps: &Caps) -> Made {
    let name = format!("{number}: {}", sample.name);
    let is_for = |has: bool| if has { "with matrices" } else { "without matrices" };
    if suite != Suite::Full && sample.caps.mma32 != caps.mma32 {
        return Err((name, format!("it is made for devices {}", is_for(sample.caps.mma32))));
    }
    let Sample { kernel, launch, expected, .. } = sample;
    Ok(Case { name, kernel, launch, expected: Expected::Reference(expected) })
}
