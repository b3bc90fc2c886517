//! Keys and values: pages of 64 tokens with counted holders, and the prefix tree over them.
//!
//! - [`CacheKey`]: what keys and values depend on beside the tokens.
//! - `PageTable`: the pages of one session; `KvCache`: the pages of an engine, with the `PrefixTree` of what
//!   they hold.
//!
//! A sequence puts each page that it has filled in the tree, and all of them when it ends. A new one begins
//! with the longest common prefix of its tokens and anything in the tree: full pages are shared, the common
//! slots of the page after them are copied. Since keys and values depend on the key and on the tokens up to
//! theirs and on nothing else, bit for bit, none of this can be seen in a result.
//!
//! With a [`KvDir`] pages are also kept on disk, under digests of the key and of all tokens up to them, for
//! engines to come: a new sequence takes from there what is not in the tree (`store`).
//!
//! When pages run out, those go first that no session holds, that nothing in the tree builds on, and that
//! were used least recently. Start reading at `PageTable::attach`.

mod cache;
mod key;
mod pool;
pub(crate) mod store;
mod table;
mod tree;

#[cfg(test)]
mod tests;

pub(crate) use cache::KvCache;
pub use cache::PageUse;
pub use key::CacheKey;
pub use store::KvDir;
pub(crate) use table::{CommonSlots, PageTable, locked};
