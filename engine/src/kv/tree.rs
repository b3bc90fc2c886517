//! The prefix tree: which pages hold the keys and values of which tokens.
//!
//! A node is a page with the run of tokens in it, after the runs of all nodes above it. Only full pages have children.
//! No run begins with the run of a sibling, so that of all siblings one of the two neighbours in lexical order has the
//! longest prefix in common with any tokens.

use std::collections::BTreeMap;
use std::ops::Bound;

use unisonic_core::plan::PAGE_TOKENS;

use super::CacheKey;

/// Slots of a page.
pub(super) const SLOTS: usize = PAGE_TOKENS as usize;

/// Index of a node; another node may get it when this one is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(u32);

/// Where a node hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// First page of the sequences of a key.
    Root(CacheKey),
    /// Page after this one.
    Node(NodeId),
}

type Children = BTreeMap<Box<[u32]>, NodeId>;

#[derive(Debug)]
struct Node {
    parent: Parent,
    run: Box<[u32]>,
    page: u32,
    children: Children,
    /// When it was used last, as a count of uses.
    used: u64,
}

/// The tree of an engine: a root a key.
#[derive(Debug, Default)]
pub(super) struct PrefixTree {
    roots: BTreeMap<CacheKey, Children>,
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
}

/// What is known of the tokens after a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    pub node: NodeId,
    /// Length of the common prefix of its run and the tokens.
    pub common: usize,
}

impl PrefixTree {
    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0 as usize].as_ref().expect("a node that is held stays in the tree")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.0 as usize].as_mut().expect("a node that is held stays in the tree")
    }

    pub(super) fn page(&self, id: NodeId) -> u32 {
        self.node(id).page
    }

    pub(super) fn run(&self, id: NodeId) -> &[u32] {
        &self.node(id).run
    }

    pub(super) fn used(&self, id: NodeId) -> u64 {
        self.node(id).used
    }

    pub(super) fn set_used(&mut self, id: NodeId, used: u64) {
        self.node_mut(id).used = used;
    }

    pub(super) fn parent(&self, id: NodeId) -> &Parent {
        &self.node(id).parent
    }

    pub(super) fn is_leaf(&self, id: NodeId) -> bool {
        self.node(id).children.is_empty()
    }

    /// Number of nodes, each with a page.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.vacant.len()
    }

    fn children(&self, parent: &Parent) -> Option<&Children> {
        match parent {
            Parent::Root(key) => self.roots.get(key),
            Parent::Node(id) => Some(&self.node(*id).children),
        }
    }

    fn children_mut(&mut self, parent: &Parent) -> &mut Children {
        match parent {
            Parent::Root(key) => self.roots.entry(key.clone()).or_default(),
            Parent::Node(id) => &mut self.node_mut(*id).children,
        }
    }

    /// The child that has the most tokens in common with `tokens`, if any has one.
    pub(super) fn branch(&self, parent: &Parent, tokens: &[u32]) -> Option<Branch> {
        let tokens = &tokens[..tokens.len().min(SLOTS)];
        let children = self.children(parent)?;
        let before = children.range::<[u32], _>((Bound::Unbounded, Bound::Excluded(tokens))).next_back();
        let after = children.range::<[u32], _>((Bound::Included(tokens), Bound::Unbounded)).next();
        let branches = before.into_iter().chain(after);
        let branches = branches.map(|(run, &node)| Branch { node, common: common_len(run, tokens) });
        branches.filter(|branch| branch.common > 0).max_by_key(|branch| branch.common)
    }

    /// Adds a child. The caller has seen by [`Self::branch`] that no sibling's run begins with `run` or is its beginning.
    pub(super) fn insert(&mut self, parent: Parent, run: &[u32], page: u32, used: u64) -> NodeId {
        debug_assert!((1..=SLOTS).contains(&run.len()));
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            NodeId(self.nodes.len() as u32 - 1)
        });
        self.children_mut(&parent).insert(run.into(), id);
        self.nodes[id.0 as usize] =
            Some(Node { parent, run: run.into(), page, children: Children::new(), used });
        id
    }

    /// Takes a leaf out.
    pub(super) fn remove(&mut self, id: NodeId) {
        let node = self.nodes[id.0 as usize].take().expect("the node is in the tree");
        assert!(node.children.is_empty(), "a page stays as long as there are pages after it");
        self.vacant.push(id);
        let siblings = self.children_mut(&node.parent);
        siblings.remove(&node.run);
        if siblings.is_empty()
            && let Parent::Root(key) = &node.parent
        {
            self.roots.remove(key);
        }
    }

    /// All nodes, for tests of what must hold.
    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<NodeId> {
        (0..self.nodes.len() as u32).map(NodeId).filter(|id| self.nodes[id.0 as usize].is_some()).collect()
    }

    /// The keys that have pages.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.roots.len()
    }
}

/// Length of the longest common prefix.
fn common_len(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_common_prefix_is_found_among_siblings() {
        let mut tree = PrefixTree::default();
        let root = Parent::Root(CacheKey::default());
        assert_eq!(tree.branch(&root, &[1]), None);
        let runs: [&[u32]; 5] = [&[1, 2, 3], &[1, 2, 4, 5], &[1, 5], &[3], &[0, 9]];
        let ids = runs.map(|run| tree.insert(root.clone(), run, 0, 0));
        let check = |tokens: &[u32], right: Option<(usize, usize)>| {
            let found = tree.branch(&root, tokens).map(|branch| (branch.node, branch.common));
            let longest = runs.iter().map(|run| common_len(run, tokens)).max().unwrap();
            assert_eq!(found.map_or(0, |(_, common)| common), longest, "{tokens:?}");
            assert_eq!(found, right.map(|(run, common)| (ids[run], common)), "{tokens:?}");
        };
        check(&[1, 2, 4, 5, 6], Some((1, 4)));
        check(&[1, 2, 4], Some((1, 3)));
        check(&[1, 2, 3], Some((0, 3)));
        check(&[1, 9], Some((2, 1)));
        check(&[3, 3], Some((3, 1)));
        check(&[2], None);
        check(&[4], None);
    }

    #[test]
    fn keys_have_trees_of_their_own_that_vanish_with_their_last_page() {
        let mut tree = PrefixTree::default();
        let [a, b] =
            [b"a", b"b"].map(|salt| Parent::Root(CacheKey { salt: salt.to_vec(), ..CacheKey::default() }));
        let first = tree.insert(a.clone(), &[7; SLOTS], 0, 0);
        let second = tree.insert(Parent::Node(first), &[8], 1, 0);
        assert_eq!(tree.branch(&b, &[7; SLOTS]), None);
        assert_eq!((tree.len(), tree.keys()), (2, 1));
        tree.remove(second);
        tree.remove(first);
        assert_eq!((tree.len(), tree.keys()), (0, 0));
        assert_eq!(tree.insert(b, &[1], 2, 0), first, "places in the list are used again");
    }
}
