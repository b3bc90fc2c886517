//! What came of a case.

use serde::{Deserialize, Serialize};
use unisonic_core::kir::Kernel;
use unisonic_core::kir::abi::addressed;

/// A case, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The group that it is of.
    pub group: String,
    /// Its name in the group.
    pub case: String,
    /// How the device was used.
    pub variant: String,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long it took.
    pub milliseconds: u64,
    /// The file that shows it again, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// All bits are right.
    Passed,
    /// Something else came out, or nothing.
    Failed {
        /// In words.
        reason: String,
        /// Which bits, where something came out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        difference: Option<Difference>,
    },
    /// It fails as the table of known faults says.
    KnownFault {
        /// Name of the fault.
        fault: String,
        /// What is done about it.
        reason: String,
    },
    /// Other bits than the host's that the contract leaves to the device, and does not use.
    Permitted {
        /// Name of the permission.
        permission: String,
        /// What differs.
        reason: String,
    },
    /// There is nothing to run on this device.
    NotApplicable {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// Failed, in words.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), difference: None }
    }

    /// Not applicable, with the reason.
    pub fn not_applicable(reason: impl Into<String>) -> Self {
        Self::NotApplicable { reason: reason.into() }
    }

    /// Whether it is a failure that nothing explains.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::KnownFault { .. } => "known fault",
            Self::Permitted { .. } => "permitted",
            Self::NotApplicable { .. } => "not applicable",
        }
    }

    /// Why it did not simply pass.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Failed { reason, difference } => Some(match difference {
                Some(difference) => format!("{reason}: {difference}"),
                None => reason.clone(),
            }),
            Self::KnownFault { fault, reason } => Some(format!("{fault}: {reason}")),
            Self::Permitted { permission, reason } => Some(format!("{permission}: {reason}")),
            Self::NotApplicable { reason } => Some(reason.clone()),
        }
    }
}

/// Where what was found is not what was expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the first buffer that differs.
    pub buffer: String,
    /// Number of its first word that differs.
    pub word: usize,
    /// The bits that had to be there, in hexadecimal.
    pub expected: String,
    /// The bits that were there.
    pub found: String,
    /// Words of all buffers that differ.
    pub wrong: usize,
    /// Words of all buffers.
    pub words: usize,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { buffer, word, expected, found, wrong, words } = self;
        write!(f, "`{buffer}`, word {word}: 0x{found} and not 0x{expected} ({wrong} of {words} words differ)")
    }
}

impl Difference {
    /// The first difference between words of named buffers.
    pub fn of_words<'a>(
        buffers: impl IntoIterator<Item = (&'a str, &'a [u32], &'a [u32])>,
    ) -> Option<Difference> {
        let mut first = None;
        let (mut wrong, mut words) = (0, 0);
        for (name, expected, found) in buffers {
            words += expected.len();
            for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
                if expected != found {
                    wrong += 1;
                    first.get_or_insert_with(|| (name.to_owned(), at, *expected, *found));
                }
            }
        }
        let (buffer, word, expected, found) = first?;
        let hex = |word: u32| format!("{word:08x}");
        Some(Difference { buffer, word, expected: hex(expected), found: hex(found), wrong, words })
    }

    /// The same of the buffers of a kernel's launch.
    pub fn of_buffers(kernel: &Kernel, expected: &[Vec<u8>], found: &[Vec<u8>]) -> Option<Difference> {
        let names = addressed(kernel).map(|id| kernel.objects[id.index()].name.as_str());
        let both: Vec<(&str, Vec<u32>, Vec<u32>)> =
            names.zip(expected.iter().zip(found)).map(|(name, (a, b))| (name, words(a), words(b))).collect();
        Self::of_words(both.iter().map(|(name, a, b)| (*name, &a[..], &b[..])))
    }
}

/// Little-endian words; the last is filled up with zeros.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    bytes.chunks(4).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_written_and_read() {
        let difference = Difference::of_words([
            ("x", &[1, 2][..], &[1, 2][..]),
            ("y", &[3, 4, 5][..], &[3, 0x8000_0000, 6][..]),
        ]);
        let difference = difference.expect("a difference");
        assert_eq!((difference.buffer.as_str(), difference.word), ("y", 1));
        assert_eq!((difference.expected.as_str(), difference.found.as_str()), ("00000004", "80000000"));
        assert_eq!((difference.wrong, difference.words), (2, 5));
        let outcome = Outcome::Failed { reason: "other bits".into(), difference: Some(difference) };
        let [group, case, variant] = ["op/fadd", "fadd_f32", "as it is"].map(str::to_owned);
        let row = Row { group, case, variant, outcome, milliseconds: 3, replay: None };
        let text = serde_json::to_string(&row).expect("a row is JSON");
        assert!(text.contains("\"outcome\":\"failed\""), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&text).expect("it is read"), row);
    }

    #[test]
    fn equal_words_do_not_differ() {
        assert_eq!(Difference::of_words([("x", &[1][..], &[1][..])]), None);
        assert_eq!(words(&[1, 0, 0, 0, 2]), [1, 2]);
    }
}
