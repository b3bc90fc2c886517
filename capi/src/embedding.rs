//! Embeddings: there are none, and why.

use crate::entry::entry;
use crate::error::{Error, unisonic_error};
use crate::model::{Model, unisonic_model};
use crate::options;
use crate::status::unisonic_status;

/// The embedding of token ids: fails with UNISONIC_STATUS_UNSUPPORTED, and a message that says why. It is
/// here so that programs can ask for it, and get it from the version of the library that has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_model_embed(
    model: *mut unisonic_model,
    tokens: *const u32,
    tokens_len: usize,
    embedding: *mut f32,
    embedding_len: usize,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let model = entry.object::<Model>(model)?;
            model.check(options::array(tokens, tokens_len, "tokens")?, "tokens")?;
            options::array_mut(embedding, embedding_len, "embedding")?;
            let message = "embeddings are not implemented: the engine gives the logits of a model and not its hidden \
                           states, and there is no pooling rule that is exact on all devices yet";
            Err(Error::new(unisonic_status::Unsupported, message))
        })
    }
}
