//! Which groups a suite has.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use unisonic_core::kir::Op;
use unisonic_devices::DeviceName;
use unisonic_planner::kernels::samples::FAMILIES;
use unisonic_shaders::{probes, questions};
use unisonic_vulkan::driver::KNOWN_FAULTS;

use crate::groups::tokens;
use crate::open::{Variant, variants};
use crate::outcome::{Outcome, Row};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Some cases of each group, on the device as it is: less than a minute on two cores of a processor.
    Quick,
    /// All cases, in every variant of the device.
    Full,
    /// What `quick` has, a hundred times each, with little memory left and beside other work.
    Soak,
}

/// Runs of a case in the soak suite.
pub const SOAK_REPEATS: u32 = 100;
/// Random kernels of a group.
pub const RANDOM_KERNELS: u64 = 25;
/// Values of the largest legal kernel that software devices compile in less than seconds, and in less than minutes.
const SOFTWARE_VALUES: [usize; 2] = [800, 5000];

impl Suite {
    /// Runs of each case.
    pub fn repeats(self) -> u32 {
        if self == Self::Soak { SOAK_REPEATS } else { 1 }
    }

    /// Of so many cases of a group, one is run.
    pub fn stride(self, group: Group) -> usize {
        match (self, group) {
            (Self::Full, _) => 1,
            // Pairs of choices: the first cases differ most.
            (_, Group::Template(_)) => 4,
            (_, Group::Op(_) | Group::Random(_)) => 2,
            (_, Group::Probe(_) | Group::Known(_) | Group::Tokens(_) | Group::Limits) => 1,
        }
    }

    /// Values of the largest kernel that a software device is given.
    pub fn software_values(self) -> usize {
        SOFTWARE_VALUES[usize::from(self == Self::Full)]
    }
}

/// Cases that are made together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// An operation of the kernel IR, on every type.
    Op(Op),
    /// [`RANDOM_KERNELS`] random kernels, from that number times this on.
    Random(u64),
    /// A family of kernel templates, by its number.
    Template(usize),
    /// A probe that people wrote, by its number: those that every device is asked, then those of what kernels do without.
    Probe(usize),
    /// A fault that is known of some driver, by its number.
    Known(usize),
    /// Tokens of a tiny model, by its number.
    Tokens(usize),
    /// What is large.
    Limits,
}

impl Group {
    /// All of a suite, those first that take long.
    pub fn all(suite: Suite) -> Vec<Group> {
        let templates = (0..FAMILIES.len()).map(Group::Template);
        let randoms = (0..if suite == Suite::Full { 8 } else { 1 }).map(Group::Random);
        let ops = Op::ALL.iter().map(|&op| Group::Op(op));
        let probes = (0..probe_names().len()).map(Group::Probe);
        let known = (0..KNOWN_FAULTS.len()).map(Group::Known);
        let models = tokens::models().len();
        let tokens = (0..if suite == Suite::Full { models } else { 1 }).map(Group::Tokens);
        tokens
            .chain([Group::Limits])
            .chain(templates)
            .chain(randoms)
            .chain(ops)
            .chain(probes)
            .chain(known)
            .collect()
    }

    /// As in reports.
    pub fn name(self) -> String {
        match self {
            Self::Op(op) => format!("op/{}", op.row().mnemonic),
            Self::Random(number) => format!("random/{number}"),
            Self::Template(family) => {
                format!("template/{}", FAMILIES.get(family).map_or("?", |family| family.0))
            }
            Self::Limits => "limits/all".to_owned(),
            Self::Tokens(number) => {
                format!("tokens/{}", tokens::models().get(number).map_or("?".to_owned(), |tiny| tiny.name()))
            }
            Self::Probe(number) => format!("probe/{}", probe_names().get(number).unwrap_or(&"?")),
            Self::Known(number) => {
                format!("known/{}", KNOWN_FAULTS.get(number).map_or("?", |fault| fault.name))
            }
        }
    }

    /// The group of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        let (kind, name) = name.split_once('/')?;
        match kind {
            "op" => Op::from_mnemonic(name).map(Self::Op),
            "random" => name.parse().ok().map(Self::Random),
            "limits" => (name == "all").then_some(Self::Limits),
            "tokens" => tokens::models().iter().position(|tiny| tiny.name() == name).map(Self::Tokens),
            "probe" => probe_names().iter().position(|probe| *probe == name).map(Self::Probe),
            "known" => KNOWN_FAULTS.iter().position(|fault| fault.name == name).map(Self::Known),
            "template" => FAMILIES.iter().position(|family| family.0 == name).map(Self::Template),
            _ => None,
        }
    }
}

/// Names of all probes.
fn probe_names() -> Vec<&'static str> {
    let questions = questions().map(|question| question.probe.name);
    probes().iter().map(|probe| probe.name).chain(questions).collect()
}

/// A group on a variant of a device: what a worker is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Name of the group.
    pub group: String,
    /// Name of the variant.
    pub variant: String,
    /// How much of it.
    pub suite: Suite,
    /// Cases that have been run already.
    #[serde(default)]
    pub skip: usize,
}

impl Task {
    /// The row of one of its cases.
    pub fn row(&self, case: &str, outcome: Outcome, took: Duration) -> Row {
        Row {
            group: self.group.clone(),
            case: case.to_owned(),
            variant: self.variant.clone(),
            outcome,
            milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            replay: None,
        }
    }
}

/// The tasks of a suite on a device; with `only`, those whose group begins so.
pub fn tasks(suite: Suite, device: DeviceName, only: Option<&str>) -> Vec<Task> {
    let of_variant = |variant: &Variant| {
        let variant = variant.name().to_owned();
        Group::all(suite).into_iter().map(move |group| Task {
            group: group.name(),
            variant: variant.clone(),
            suite,
            skip: 0,
        })
    };
    let count = if suite == Suite::Full { usize::MAX } else { 1 };
    let all = variants(device).iter().take(count).flat_map(of_variant);
    // What is known to be wrong shows where nothing is switched off; no variant changes it.
    let all = all.filter_map(|mut task| {
        let is_of = |kind: &str| task.group.starts_with(kind);
        let of_devices = is_of("known/") || is_of("probe/") || is_of("tokens/");
        let is_first = task.variant == Variant::AsItIs.name();
        if of_devices && !is_of("tokens/") && matches!(device, DeviceName::Vulkan(_)) {
            task.variant = Variant::AnyArithmetic.name().to_owned();
        }
        (is_first || !of_devices).then_some(task)
    });
    all.filter(|task| only.is_none_or(|only| task.group.starts_with(only))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_their_names() {
        for suite in [Suite::Quick, Suite::Full, Suite::Soak] {
            for group in Group::all(suite) {
                assert_eq!(Group::from_name(&group.name()), Some(group));
            }
        }
        for wrong in ["", "op", "op/", "op/nothing", "random/x", "template/no", "magic/1"] {
            assert_eq!(Group::from_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_the_full_suite_has_variants() {
        let count = |suite| tasks(suite, DeviceName::Vulkan(0), Some("op/fadd")).len();
        assert_eq!([Suite::Quick, Suite::Full, Suite::Soak].map(count), [1, 5, 1]);
    }
}
