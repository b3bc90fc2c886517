//! What values are found by.

use std::fmt;

use sha2::{Digest, Sha256};

/// What a value is: a folder of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The machine code that a CUDA driver made of a kernel.
    CudaKernel,
    /// What a Vulkan driver keeps of a pipeline.
    VulkanPipeline,
    /// What a device was found to do as specified, and what not.
    SelfTest,
    /// A page of keys and values, and the tokens that it is of.
    KvPage,
    /// Which forms of kernels were measured to be fast on a device.
    TuningTable,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::CudaKernel, Kind::VulkanPipeline, Kind::SelfTest, Kind::KvPage, Kind::TuningTable];

    /// Its name: that of its folder, and for people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::CudaKernel => "cuda-kernels",
            Kind::VulkanPipeline => "vulkan-pipelines",
            Kind::SelfTest => "self-tests",
            Kind::KvPage => "kv-pages",
            Kind::TuningTable => "tuning-tables",
        }
    }
}

/// What a value is found by: SHA-256 of all that it depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) kind: Kind,
    pub(crate) digest: [u8; 32],
}

impl Key {
    /// Begins a key; the version of this program is part of each.
    pub fn builder(kind: Kind) -> KeyBuilder {
        let builder = KeyBuilder { kind, sha256: Sha256::new() };
        builder.field("kind", kind.name()).field("version", env!("CARGO_PKG_VERSION"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{self}", self.kind.name())
    }
}

/// A key that is being made.
#[derive(Clone)]
pub struct KeyBuilder {
    kind: Kind,
    sha256: Sha256,
}

impl KeyBuilder {
    /// Adds something that the value depends on. Name and bytes come with their lengths: no two lists of
    /// fields are the same bytes.
    pub fn field(mut self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        for part in [name.as_bytes(), bytes.as_ref()] {
            self.sha256.update((part.len() as u64).to_le_bytes());
            self.sha256.update(part);
        }
        self
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key { kind: self.kind, digest: self.sha256.finalize().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_counts_and_none_runs_into_another() {
        let of = |fields: &[(&str, &str)]| {
            let builder = Key::builder(Kind::CudaKernel);
            fields.iter().fold(builder, |builder, (name, text)| builder.field(name, text)).finish()
        };
        let keys = [
            of(&[]),
            of(&[("a", "bc")]),
            of(&[("ab", "c")]),
            of(&[("a", "b"), ("c", "")]),
            of(&[("a", "b")]),
            of(&[("b", "b")]),
            Key::builder(Kind::VulkanPipeline).finish(),
        ];
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(number));
        }
        assert_eq!(of(&[("a", "b")]), of(&[("a", "b")]));
        assert_eq!(keys[0].to_string().len(), 64);
    }
}
