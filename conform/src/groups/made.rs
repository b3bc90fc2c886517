//! The cases of each group.

use unisonic_core::kir::cases::{self, Floats};
use unisonic_core::kir::legal::Caps;
use unisonic_core::kir::random::random_kernel;
use unisonic_planner::kernels::samples::{Extent, FAMILIES, Sample};

use super::{Case, Expected, Made};
use crate::kernels::Facts;
use crate::suite::{Group, RANDOM_KERNELS, Suite};

/// Operations of a random kernel.
const RANDOM_SIZE: u32 = 40;

/// The cases of a group for a device, the same each time.
pub fn made(group: Group, suite: Suite, caps: &Caps, facts: &Facts) -> Box<dyn Iterator<Item = Made>> {
    match group {
        Group::Op(op) => {
            // What all devices keep; those that promise to keep subnormals get them too.
            let floats = if facts.keeps_subnormals { Floats::Finite } else { Floats::Normal };
            let cases = cases::all().into_iter().filter(move |case| case.op == op);
            Box::new(cases.map(move |case| {
                let launch = case.launch(floats);
                Ok(Case {
                    name: case.kernel.name.clone(),
                    kernel: case.kernel,
                    launch,
                    expected: Expected::Interpreter,
                })
            }))
        }
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
