//! The pages of an engine and what they hold.

use std::collections::BTreeSet;

use super::CacheKey;
use super::pool::PagePool;
use super::tree::{Branch, NodeId, Parent, PrefixTree, SLOTS};

/// Where the pages of an engine are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageUse {
    /// Pages of the engine.
    pub total: usize,
    /// Pages of sessions.
    pub held: usize,
    /// Pages that only the prefix tree holds; they are taken when free ones run out.
    pub cached: usize,
    /// Pages without content.
    pub free: usize,
}

/// The pages of an engine with the tree over them.
#[derive(Debug)]
pub(crate) struct KvCache {
    pool: PagePool,
    tree: PrefixTree,
    /// Leaves whose page no session holds, least recently used first.
    idle_leaves: BTreeSet<(u64, NodeId)>,
    /// Nodes whose page no session holds. A session holds whole paths from the root, so that all below such a node
    /// are such nodes as well.
    idle: usize,
    /// Counts uses: a clock without time.
    uses: u64,
}

impl KvCache {
    pub(crate) fn new(total: u32) -> Self {
        let (pool, tree) = (PagePool::new(total), PrefixTree::default());
        Self { pool, tree, idle_leaves: BTreeSet::new(), idle: 0, uses: 0 }
    }

    pub(crate) fn page_use(&self) -> PageUse {
        let (total, free, cached) = (self.pool.total() as usize, self.pool.free(), self.idle);
        PageUse { total, held: total - free - cached, cached, free }
    }

    /// Takes pages, evicting what it must; `Err` is the number that could be had, and changes nothing.
    pub(super) fn take(&mut self, count: usize) -> Result<Vec<u32>, usize> {
        let available = self.pool.free() + self.idle;
        if count > available {
            return Err(available);
        }
        while self.pool.free() < count {
            let (_, oldest) = *self.idle_leaves.first().expect("below an idle page is an idle leaf");
            let page = self.remove(oldest);
            self.pool.release(page);
        }
        Ok((0..count).filter_map(|_| self.pool.take()).collect())
    }

    /// Gives back a page that is not in the tree.
    pub(super) fn release(&mut self, page: u32) {
        self.pool.release(page);
    }

    pub(super) fn page(&self, node: NodeId) -> u32 {
        self.tree.page(node)
    }

    /// Longest path of full pages whose runs begin `tokens`, each now held by the caller, and the page beyond that has
    /// the most of the tokens after them.
    pub(super) fn hold_prefix(&mut self, key: &CacheKey, tokens: &[u32]) -> (Vec<NodeId>, Option<Branch>) {
        let mut path = Vec::new();
        let mut parent = Parent::Root(key.clone());
        loop {
            let branch = self.tree.branch(&parent, &tokens[path.len() * SLOTS..]);
            let Some(Branch { node, common: SLOTS }) = branch else { return (path, branch) };
            self.hold(node);
            path.push(node);
            parent = Parent::Node(node);
        }
    }

    /// Adds a session to the holders of a node's page.
    pub(super) fn hold(&mut self, node: NodeId) {
        if self.is_idle(node) {
            self.idle -= 1;
            self.idle_leaves.remove(&(self.tree.used(node), node));
        }
        self.pool.hold(self.tree.page(node));
    }

    /// Takes a session from the holders of a node's page, which was used until now.
    pub(super) fn let_go(&mut self, node: NodeId) {
        self.pool.release(self.tree.page(node));
        self.uses += 1;
        self.tree.set_used(node, self.uses);
        if self.is_idle(node) {
            self.idle += 1;
            self.note_if_idle_leaf(node);
        }
    }

    /// Takes a node's page out of the tree for the caller to write on, if nobody would miss it: all its tokens are the
    /// caller's too, and no other session and no other page needs it.
    pub(super) fn take_over(&mut self, Branch { node, common }: Branch) -> Option<u32> {
        let alone = self.is_idle(node) && self.tree.is_leaf(node) && self.tree.run(node).len() == common;
        alone.then(|| self.remove(node))
    }

    /// Puts a page, which the caller goes on to hold, in the tree. If the tree has one with the same content, the
    /// caller holds that one from now on instead of its own, which may then be another (see [`Self::page`]); a part of a
    /// page that the tree has more of is not put there.
    pub(super) fn publish(&mut self, parent: Parent, run: &[u32], page: u32) -> Option<NodeId> {
        match self.tree.branch(&parent, run) {
            Some(Branch { node, common }) if common == run.len() => {
                if self.tree.run(node).len() != common {
                    return None;
                }
                self.hold(node);
                self.pool.release(page);
                return Some(node);
            }
            // A part of this page, which is no longer needed.
            Some(Branch { node, common }) if common == self.tree.run(node).len() => {
                if !self.is_idle(node) {
                    return None;
                }
                let part = self.remove(node);
                self.pool.release(part);
            }
            _ => {}
        }
        self.pool.hold(page);
        Some(self.tree.insert(parent, run, page, self.uses))
    }

    /// Whether the tree is the only holder of a node's page.
    fn is_idle(&self, node: NodeId) -> bool {
        self.pool.holders(self.tree.page(node)) == 1
    }

    /// Takes an idle leaf out of the tree; its page is now the caller's.
    fn remove(&mut self, node: NodeId) -> u32 {
        self.idle_leaves.remove(&(self.tree.used(node), node));
        self.idle -= 1;
        let (page, parent) = (self.tree.page(node), self.tree.parent(node).clone());
        self.tree.remove(node);
        if let Parent::Node(parent) = parent {
            self.note_if_idle_leaf(parent);
        }
        page
    }

    fn note_if_idle_leaf(&mut self, node: NodeId) {
        if self.is_idle(node) && self.tree.is_leaf(node) {
            self.idle_leaves.insert((self.tree.used(node), node));
        }
    }

    /// Panics unless every count is what the tree and `sessions`, the pages of all sessions, say.
    #[cfg(test)]
    pub(super) fn check(&self, sessions: &[&[u32]]) {
        let nodes = self.tree.ids();
        let mut holders = vec![0; self.pool.total() as usize];
        let pages = nodes.iter().map(|&node| self.tree.page(node));
        pages.chain(sessions.concat()).for_each(|page| holders[page as usize] += 1);
        for (page, &right) in holders.iter().enumerate() {
            assert_eq!(self.pool.holders(page as u32), right, "holders of page {page}");
        }
        assert_eq!(self.pool.free(), holders.iter().filter(|&&holders| holders == 0).count());
        let idle: Vec<NodeId> = nodes.iter().copied().filter(|&node| self.is_idle(node)).collect();
        assert_eq!((self.idle, self.tree.len()), (idle.len(), nodes.len()));
        let leaves = idle.into_iter().filter(|&node| self.tree.is_leaf(node));
        assert_eq!(self.idle_leaves, leaves.map(|node| (self.tree.used(node), node)).collect());
        for &node in &nodes {
            let run = self.tree.run(node);
            assert!(run.len() == SLOTS || self.tree.is_leaf(node), "a part of a page has children");
            let parent = self.tree.parent(node);
            let branch = self.tree.branch(parent, run).expect("a node is found by its run");
            assert_eq!(branch, Branch { node, common: run.len() }, "a run begins with a sibling's");
            if let Parent::Node(parent) = parent {
                let holders = |node| self.pool.holders(self.tree.page(node));
                assert!(
                    holders(*parent) >= 2 || holders(node) == 1,
                    "a page is held without those before it"
                );
            }
        }
    }
}
