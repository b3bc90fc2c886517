//! The pages of one session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::tree::{NodeId, Parent, SLOTS};
use super::{CacheKey, KvCache};

/// Pages of one sequence, by position. The first of them may be in the prefix tree, where others read them: a
/// page in the tree is never written again.
#[derive(Debug)]
pub(crate) struct PageTable {
    cache: Arc<Mutex<KvCache>>,
    /// Under what the pages are put in the tree; none: nowhere.
    key: Option<CacheKey>,
    pages: Vec<u32>,
    /// Nodes of the first pages.
    published: Vec<NodeId>,
}

/// A page to be copied before the common slots of another can be written on. Both are held until
/// [`PageTable::end_copy`].
#[derive(Debug)]
#[must_use]
pub(crate) struct PageCopy {
    node: NodeId,
    /// The page in the tree.
    pub from: u32,
    /// A page of the caller.
    pub to: u32,
}

/// Part of a page that a sequence begins with.
#[derive(Debug)]
pub(crate) struct CommonSlots {
    node: NodeId,
    /// How many.
    pub len: usize,
}

/// The cache, also after a panic of another thread: no count in it is half changed.
pub(crate) fn locked(cache: &Mutex<KvCache>) -> MutexGuard<'_, KvCache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PageTable {
    pub(crate) fn new(cache: Arc<Mutex<KvCache>>, key: Option<CacheKey>) -> Self {
        Self { cache, key, pages: Vec::new(), published: Vec::new() }
    }

    /// Whether the pages are of a cache.
    pub(crate) fn is_of(&self, cache: &Arc<Mutex<KvCache>>) -> bool {
        Arc::ptr_eq(&self.cache, cache)
    }

    /// Under what the pages are put in the tree.
    pub(crate) fn key(&self) -> Option<&CacheKey> {
        self.key.as_ref()
    }

    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Fills an empty table with what the tree has of a sequence that begins with `tokens`; the number of
    /// tokens in it, and what a page after them has that could be copied.
    pub(crate) fn attach(&mut self, tokens: &[u32]) -> (usize, Option<CommonSlots>) {
        debug_assert!(self.pages.is_empty());
        let Some(key) = &self.key else { return (0, None) };
        let mut cache = locked(&self.cache);
        let (path, branch) = cache.hold_prefix(key, tokens);
        self.pages = path.iter().map(|&node| cache.page(node)).collect();
        self.published = path;
        let len = self.pages.len() * SLOTS;
        let Some(branch) = branch else { return (len, None) };
        match cache.take_over(branch) {
            Some(page) => {
                self.pages.push(page);
                (len + branch.common, None)
            }
            None => (len, Some(CommonSlots { node: branch.node, len: branch.common })),
        }
    }

    /// What to do before a sequence of `len` tokens can go on: the last of its pages, partly used, is in the
    /// tree.
    pub(crate) fn shared_slots(&self, len: usize) -> Option<CommonSlots> {
        let node = *self.published.get(len / SLOTS)?;
        (!len.is_multiple_of(SLOTS)).then_some(CommonSlots { node, len: len % SLOTS })
    }

    /// Takes a page to copy the common slots to, if there is one. Others may run meanwhile.
    pub(crate) fn begin_copy(&self, slots: &CommonSlots) -> Option<PageCopy> {
        let mut cache = locked(&self.cache);
        // Held, so that it is not what is evicted to make room for its copy.
        cache.hold(slots.node);
        match cache.take(1) {
            Ok(pages) => Some(PageCopy { node: slots.node, from: cache.page(slots.node), to: pages[0] }),
            Err(_) => {
                cache.let_go(slots.node);
                None
            }
        }
    }

    /// The copy is the next page of this table; unless it was not made.
    pub(crate) fn end_copy(&mut self, copy: PageCopy, made: bool) {
        let mut cache = locked(&self.cache);
        cache.let_go(copy.node);
        match made {
            true => self.pages.push(copy.to),
            false => cache.release(copy.to),
        }
    }

    /// Grows the table to `count` pages; `Err((needed, available))` changes nothing.
    pub(crate) fn grow(&mut self, count: usize) -> Result<(), (usize, usize)> {
        let needed = count.saturating_sub(self.pages.len());
        if needed > 0 {
            let more = locked(&self.cache).take(needed).map_err(|available| (needed, available))?;
            self.pages.extend(more);
        }
        Ok(())
    }

    /// Gives back all pages past the first `count`.
    pub(crate) fn shrink(&mut self, count: usize) {
        if count >= self.pages.len() {
            return;
        }
        let mut cache = locked(&self.cache);
        while self.pages.len() > count {
            let page = self.pages.pop();
            // From the end, so that what others build on is used later than what builds on it.
            if self.published.len() > self.pages.len() {
                self.published.pop().into_iter().for_each(|node| cache.let_go(node));
            } else {
                page.into_iter().for_each(|page| cache.release(page));
            }
        }
    }

    /// Puts the full pages of a sequence of these tokens in the tree.
    pub(crate) fn publish(&mut self, tokens: &[u32]) {
        let full = tokens.len() / SLOTS;
        if self.key.is_some() && full > self.published.len() {
            let cache = Arc::clone(&self.cache);
            let mut cache = locked(&cache);
            (self.published.len()..full).all(|index| self.publish_page(&mut cache, tokens, index));
        }
    }

    /// Ends a sequence of these tokens: they stay in the tree until their pages are needed.
    pub(crate) fn close(&mut self, tokens: &[u32]) {
        self.shrink(tokens.len().div_ceil(SLOTS));
        self.publish(tokens);
        if self.published.len() < self.pages.len() && !tokens.is_empty() {
            let cache = Arc::clone(&self.cache);
            self.publish_page(&mut locked(&cache), tokens, self.published.len());
        }
        self.shrink(0);
    }

    /// Puts the page with this index, the next, in the tree; false if that cannot be now.
    fn publish_page(&mut self, cache: &mut KvCache, tokens: &[u32], index: usize) -> bool {
        let Some(key) = &self.key else { return false };
        let parent =
            self.published.last().map_or_else(|| Parent::Root(key.clone()), |&node| Parent::Node(node));
        let run = &tokens[index * SLOTS..][..SLOTS.min(tokens.len() - index * SLOTS)];
        let Some(node) = cache.publish(parent, run, self.pages[index]) else { return false };
        self.pages[index] = cache.page(node);
        self.published.push(node);
        true
    }
}
