//! KV pages: which are free, and which belong to a session.
//!
//! A page holds [`PAGE_TOKENS`](unisonic_core::plan::PAGE_TOKENS) tokens of every layer. Pages are never cleared:
//! the arithmetic selects visible slots and never reads others into a number.

use std::sync::{Arc, Mutex, PoisonError};

/// The free pages of an engine, shared with its sessions so that a dropped session gives its pages back.
#[derive(Clone, Debug)]
pub(crate) struct PagePool {
    free: Arc<Mutex<Vec<u32>>>,
    total: u32,
}

impl PagePool {
    pub(crate) fn new(total: u32) -> Self {
        // Handed out from the end: the lowest page first.
        Self { free: Arc::new(Mutex::new((0..total).rev().collect())), total }
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Takes `count` pages, or says how many there are.
    fn take(&self, count: usize) -> Result<Vec<u32>, usize> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        match free.len().checked_sub(count) {
            Some(rest) => Ok(free.split_off(rest).into_iter().rev().collect()),
            None => Err(free.len()),
        }
    }
}

/// Pages of one sequence, by position.
#[derive(Debug)]
pub(crate) struct PageTable {
    pages: Vec<u32>,
    pool: PagePool,
}

impl PageTable {
    pub(crate) fn new(pool: PagePool) -> Self {
        Self { pages: Vec::new(), pool }
    }

    /// Whether the pages are those of a pool.
    pub(crate) fn is_of(&self, pool: &PagePool) -> bool {
        Arc::ptr_eq(&self.pool.free, &pool.free)
    }

    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Grows the table to `count` pages; `Err((needed, free))` changes nothing.
    pub(crate) fn grow(&mut self, count: usize) -> Result<(), (usize, usize)> {
        let needed = count.saturating_sub(self.pages.len());
        let more = self.pool.take(needed).map_err(|free| (needed, free))?;
        self.pages.extend(more);
        Ok(())
    }

    /// Gives back all pages past the first `count`.
    pub(crate) fn shrink(&mut self, count: usize) {
        if count < self.pages.len() {
            let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.extend(self.pages.drain(count..).rev());
        }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_when_a_table_is_dropped_or_shrunk() {
        let pool = PagePool::new(3);
        let mut a = PageTable::new(pool.clone());
        let mut b = PageTable::new(pool.clone());
        a.grow(2).unwrap();
        assert_eq!(a.pages(), [0, 1]);
        assert_eq!(b.grow(2), Err((2, 1)));
        assert_eq!(b.pages(), [] as [u32; 0], "a failed growth takes nothing");
        b.grow(1).unwrap();
        assert_eq!(b.pages(), [2]);
        a.shrink(1);
        b.grow(2).unwrap();
        assert_eq!(b.pages(), [2, 1]);
        drop((a, b));
        let mut c = PageTable::new(pool);
        c.grow(3).unwrap();
        let mut pages = c.pages().to_vec();
        pages.sort_unstable();
        assert_eq!(pages, [0, 1, 2]);
    }
}
