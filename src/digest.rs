//! Digests for comparing results between machines: of logits, of token ids, of files.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Context;
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

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

/// SHA-256 of a file in hexadecimal; the bar counts its bytes.
pub fn file_sha256(path: &Path, bar: &ProgressBar) -> anyhow::Result<String> {
    let mut sha256 = Sha256::new();
    File::open(path)
        .and_then(|file| io::copy(&mut bar.wrap_read(file), &mut sha256))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{:x}", sha256.finalize()))
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
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(bar.position(), 3);
    }
}
