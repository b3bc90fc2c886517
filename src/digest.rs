//! Digests for comparing results between machines: of logits, of token ids, of files.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Context;
use indicatif::ProgressBar;
use sha2::{Digest as _, Sha256};
use unisonic_core::format::GgufFile;
use unisonic_engine::Digest;

use crate::output::bytes_bar;

/// SHA-256 over the bits of logits, step after step: each value as little-endian binary32.
#[derive(Default)]
pub struct LogitsDigest(Sha256);

impl LogitsDigest {
    /// Adds the logits of a step.
    pub fn update(&mut self, logits: &[f32]) {
        logits.iter().for_each(|z| self.0.update(z.to_bits().to_le_bytes()));
    }

    /// The digest in hexadecimal.
    pub fn finish(self) -> String {
        format!("{:x}", self.0.finalize())
    }
}

/// SHA-256 over token ids, each as little-endian 32-bit integer, in hexadecimal.
pub fn ids_sha256(ids: &[u32]) -> String {
    let mut sha256 = Sha256::new();
    ids.iter().for_each(|id| sha256.update(id.to_le_bytes()));
    format!("{:x}", sha256.finalize())
}

/// SHA-256 of a file; the bar counts its bytes.
pub fn file_sha256(path: &Path, bar: &ProgressBar) -> anyhow::Result<Digest> {
    let mut sha256 = Sha256::new();
    File::open(path)
        .and_then(|file| io::copy(&mut bar.wrap_read(file), &mut sha256))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Digest(sha256.finalize().into()))
}

/// What a model is: the digest of its file, or of a sharded set that of the digests of its files one after
/// the other.
pub fn model_sha256(file: &GgufFile) -> anyhow::Result<Digest> {
    let bar = bytes_bar("hashing", file.len_bytes());
    let digests = file.paths().map(|path| file_sha256(path, &bar)).collect::<anyhow::Result<Vec<_>>>();
    bar.finish_and_clear();
    Ok(match digests?.as_slice() {
        [digest] => *digest,
        digests => Digest::of(&digests.iter().flat_map(|digest| digest.0).collect::<Vec<u8>>()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_sha256_of_little_endian_words() {
        // printf '\x00\x00\x80\x3f\x00\x00\x00\xc0' | sha256sum
        let right = "ee4ac73c2bd27756ab82780f27c73a7b";
        let mut logits = LogitsDigest::default();
        logits.update(&[1.0]);
        logits.update(&[-2.0]);
        let ids = ids_sha256(&[1.0f32.to_bits(), (-2.0f32).to_bits()]);
        let logits = logits.finish();
        assert_eq!(logits, ids);
        assert!(logits.starts_with(right), "{logits}");
    }

    #[test]
    fn a_file_has_the_digest_that_sha256sum_gives() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").expect("a file");
        let bar = ProgressBar::hidden();
        let digest = file_sha256(&path, &bar).expect("a digest");
        assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(bar.position(), 3);
    }
}
