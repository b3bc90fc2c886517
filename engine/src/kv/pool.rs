//! KV pages and how many hold each of them.
//!
//! A page holds [`PAGE_TOKENS`](unisonic_core::plan::PAGE_TOKENS) tokens of every layer. Pages are never cleared:
//! the arithmetic selects visible slots and never reads others into a number.

/// The pages of an engine, with the number of holders of each: sessions, and the prefix tree.
#[derive(Debug)]
pub(super) struct PagePool {
    /// Pages without holder; handed out from the end.
    free: Vec<u32>,
    holders: Vec<u32>,
}

impl PagePool {
    pub(super) fn new(total: u32) -> Self {
        // The lowest page first.
        Self { free: (0..total).rev().collect(), holders: vec![0; total as usize] }
    }

    pub(super) fn total(&self) -> u32 {
        self.holders.len() as u32
    }

    /// Pages that nobody holds.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn holders(&self, page: u32) -> u32 {
        self.holders[page as usize]
    }

    /// A free page, now held once.
    pub(super) fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// One more holder of a held page.
    pub(super) fn hold(&mut self, page: u32) {
        let holders = &mut self.holders[page as usize];
        assert!(*holders > 0, "page {page} is free and cannot be shared");
        *holders += 1;
    }

    /// One holder less; the page is free after the last.
    pub(super) fn release(&mut self, page: u32) {
        let holders = &mut self.holders[page as usize];
        assert!(*holders > 0, "page {page} is free already");
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_free_after_its_last_holder() {
        let mut pool = PagePool::new(2);
        assert_eq!((pool.take(), pool.take(), pool.take()), (Some(0), Some(1), None));
        pool.hold(0);
        pool.release(0);
        assert_eq!((pool.free(), pool.holders(0), pool.take()), (0, 1, None));
        pool.release(0);
        assert_eq!((pool.free(), pool.take()), (1, Some(0)));
    }
}
