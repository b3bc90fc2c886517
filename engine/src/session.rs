//! One sequence of tokens on its way through an engine.

use unisonic_core::plan::PAGE_TOKENS;

use crate::digest::Digest;
use crate::kv::PageTable;

/// One sequence of tokens with its KV pages. Dropping it gives the pages back, or leaves them to the prefix
/// tree ([`Engine::session_for`](crate::Engine::session_for)).
#[derive(Debug)]
pub struct Session {
    pub(crate) tokens: Vec<u32>,
    pub(crate) pages: PageTable,
    /// Digests of the first full pages, as far as the folder of pages has been told of them.
    pub(crate) stored: Vec<Digest>,
}

impl Session {
    /// The tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets all tokens past the first `len`; what stays is as if nothing had followed it.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.stored.truncate(self.tokens.len() / PAGE_TOKENS as usize);
        self.pages.shrink(self.tokens.len().div_ceil(PAGE_TOKENS as usize));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.pages.close(&self.tokens);
    }
}
