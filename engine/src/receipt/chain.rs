//! One digest for all logits so far.

use sha2::{Digest as _, Sha256};

use super::{Digest, LABEL, ids_bytes};

/// Digests of logits, each of all before it:
///
/// ```text
/// link[-1] = SHA-256(fields: "unisonic receipt 1", digest of the model, profile, prompt ids)   (`Digest::of_fields`; ids are u32)
/// link[i]  = SHA-256(link[i-1] || logits that token i of the output was chosen from)            (f32)
/// ```
///
/// All little-endian. The logits are the model's, before penalties, biases and masks. Since each depends on the tokens
/// before, so does the chain.
#[derive(Clone, Debug)]
pub struct LogitsChain {
    last: Digest,
}

/// Values that are hashed at a time.
const BLOCK: usize = 512;

impl LogitsChain {
    /// The chain before the first token.
    pub fn new(model: Digest, profile: &str, prompt_ids: &[u32]) -> Self {
        let fields = [LABEL, &model.0, profile.as_bytes(), &ids_bytes(prompt_ids)];
        Self { last: Digest::of_fields(&fields) }
    }

    /// Adds the logits of a step; the digest of all so far.
    pub fn push(&mut self, logits: &[f32]) -> Digest {
        let mut sha256 = Sha256::new();
        sha256.update(self.last.0);
        let mut bytes = [0; BLOCK * size_of::<f32>()];
        for block in logits.chunks(BLOCK) {
            for (z, bytes) in block.iter().zip(bytes.as_chunks_mut().0) {
                *bytes = z.to_bits().to_le_bytes();
            }
            sha256.update(&bytes[..size_of_val(block)]);
        }
        self.last = Digest(sha256.finalize().into());
        self.last
    }
}
