//! Merging neighbours until nothing merges: what both kinds of BPE do.
//!
//! A heap holds the pairs of neighbours that may merge, the most urgent on top, the leftmost first on a tie. A pair
//! of which a part has merged otherwise since is skipped when it comes up. Each merge removes a symbol and adds at
//! most two pairs: n·log n. See docs/decisions/0006-own-merging.md.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stretch of the text in a doubly linked list. One that was merged into its left neighbour has length 0.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Where it starts in the text, in bytes.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
    /// The token that it is, if any.
    pub id: Option<u32>,
    prev: Option<usize>,
    next: Option<usize>,
}

/// What two neighbours become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The highest is merged first.
    pub urgency: i32,
    /// The token that both are together.
    pub id: u32,
}

/// A pair in the heap. The order of the fields is the order of merging.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    urgency: i32,
    left: Reverse<usize>,
    right: usize,
    /// Length of both when they were paired; if it has changed, one of them was merged with another.
    len: usize,
    id: u32,
}

/// A text that is being merged; made once and used for many texts.
#[derive(Default)]
pub struct Merging {
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
}

impl Merging {
    /// Starts a text of symbols given by length and token, from the left, and merges them as `merge` says: what two
    /// neighbours become, or none if they do not merge. Returns what is left, from the left.
    pub fn run(
        &mut self,
        symbols: impl IntoIterator<Item = (usize, Option<u32>)>,
        merge: impl Fn(&Symbol, &Symbol) -> Option<Merge>,
    ) -> impl Iterator<Item = &Symbol> {
        self.start(symbols);
        for right in 1..self.symbols.len() {
            self.pair(Some(right - 1), Some(right), &merge);
        }
        while let Some(pair) = self.pairs.pop() {
            self.merge(&pair, &merge);
        }
        self.symbols.iter().filter(|symbol| symbol.len > 0)
    }

    fn start(&mut self, symbols: impl IntoIterator<Item = (usize, Option<u32>)>) {
        self.symbols.clear();
        self.pairs.clear();
        let mut start = 0;
        for (i, (len, id)) in symbols.into_iter().enumerate() {
            self.symbols.push(Symbol { start, len, id, prev: i.checked_sub(1), next: Some(i + 1) });
            start += len;
        }
        if let Some(last) = self.symbols.last_mut() {
            last.next = None;
        }
    }

    fn merge(&mut self, pair: &Pair, merge: &impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        let left = pair.left.0;
        let (Some(l), Some(r)) = (self.symbols.get(left), self.symbols.get(pair.right)) else { return };
        if l.len == 0 || r.len == 0 || l.len + r.len != pair.len {
            return;
        }
        let (prev, next) = (l.prev, r.next);
        if let Some(r) = self.symbols.get_mut(pair.right) {
            r.len = 0;
        }
        if let Some(l) = self.symbols.get_mut(left) {
            (l.len, l.id, l.next) = (pair.len, Some(pair.id), next);
        }
        if let Some(after) = next.and_then(|i| self.symbols.get_mut(i)) {
            after.prev = Some(left);
        }
        self.pair(prev, Some(left), merge);
        self.pair(Some(left), next, merge);
    }

    fn pair(
        &mut self,
        left: Option<usize>,
        right: Option<usize>,
        merge: &impl Fn(&Symbol, &Symbol) -> Option<Merge>,
    ) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let (Some(l), Some(r)) = (self.symbols.get(left), self.symbols.get(right)) else { return };
        if let Some(Merge { urgency, id }) = merge(l, r) {
            self.pairs.push(Pair { urgency, left: Reverse(left), right, len: l.len + r.len, id });
        }
    }
}
