//! An index of all that occurs in a growing sequence: a suffix automaton, in time and memory proportional to its length.
//!
//! A state stands for subsequences that end at the same positions; its `link` is the state of their longest suffix that
//! occurs elsewhere too. So the link of the state of the whole sequence is the longest end that occurred before.
//! Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985), adds a token in amortised constant
//! time: at most 2n states and 3n edges.

use hashbrown::HashMap;

/// No state, or no edge.
const NONE: u32 = u32::MAX;
/// States whose last occurrence is noted when a token is added; those of shorter ends keep an older one.
const NOTED: usize = 8;

#[derive(Clone, Copy, Debug)]
struct State {
    /// Length of its longest subsequence.
    len: u32,
    link: u32,
    /// Index after an occurrence: among the latest, but not always the last.
    end: u32,
    /// Its newest edge.
    edges: u32,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    token: u32,
    to: u32,
    /// The edge of the same state before this one.
    next: u32,
}

/// The longest end of a sequence that occurred in it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recurrence {
    /// Its length; at least 1.
    pub len: usize,
    /// Index after the occurrence: where what followed then begins.
    pub end: usize,
}

/// The index.
#[derive(Debug)]
pub(super) struct Suffixes {
    states: Vec<State>,
    edges: Vec<Edge>,
    /// Index into `edges` by state and token.
    by_token: HashMap<(u32, u32), u32>,
    /// The state of the whole sequence.
    last: u32,
    recurrence: Option<Recurrence>,
}

impl Suffixes {
    pub(super) fn new() -> Self {
        let root = State { len: 0, link: NONE, end: 0, edges: NONE };
        Self { states: vec![root], edges: Vec::new(), by_token: HashMap::new(), last: 0, recurrence: None }
    }

    /// Tokens of the sequence.
    pub(super) fn len(&self) -> usize {
        self.states[self.last as usize].len as usize
    }

    /// The longest end that occurred before.
    pub(super) fn recurrence(&self) -> Option<Recurrence> {
        self.recurrence
    }

    /// Adds a token at the end of the sequence.
    pub(super) fn push(&mut self, token: u32) {
        let len = self.states[self.last as usize].len + 1;
        let whole = self.add_state(State { len, link: 0, end: len, edges: NONE });
        let mut from = self.last;
        while from != NONE && self.edge(from, token).is_none() {
            self.add_edge(from, token, whole);
            from = self.states[from as usize].link;
        }
        if from != NONE {
            self.states[whole as usize].link = self.ending_in(from, token);
        }
        self.last = whole;
        self.note(len);
    }

    /// The state of the longest subsequence of `from` followed by `token`, split off where others end in it as well.
    fn ending_in(&mut self, from: u32, token: u32) -> u32 {
        let (from_len, to) = (self.states[from as usize].len, self.target(from, token));
        if self.states[to as usize].len == from_len + 1 {
            return to;
        }
        let split = self.add_state(State { len: from_len + 1, edges: NONE, ..self.states[to as usize] });
        let mut edge = self.states[to as usize].edges;
        while edge != NONE {
            let Edge { token, to, next } = self.edges[edge as usize];
            self.add_edge(split, token, to);
            edge = next;
        }
        self.states[to as usize].link = split;
        let mut from = from;
        while from != NONE && self.edge(from, token).is_some() && self.target(from, token) == to {
            let edge = self.by_token[&(from, token)];
            self.edges[edge as usize].to = split;
            from = self.states[from as usize].link;
        }
        split
    }

    /// Finds the recurrence, and then notes that its states occur at the end.
    fn note(&mut self, end: u32) {
        let mut state = self.states[self.last as usize].link;
        let State { len, end: earlier, .. } = self.states[state as usize];
        self.recurrence = (len > 0).then_some(Recurrence { len: len as usize, end: earlier as usize });
        for _ in 0..NOTED {
            if state == 0 {
                break;
            }
            self.states[state as usize].end = end;
            state = self.states[state as usize].link;
        }
    }

    fn add_state(&mut self, state: State) -> u32 {
        self.states.push(state);
        self.states.len() as u32 - 1
    }

    fn add_edge(&mut self, from: u32, token: u32, to: u32) {
        let edge = self.edges.len() as u32;
        let state = &mut self.states[from as usize];
        self.edges.push(Edge { token, to, next: state.edges });
        state.edges = edge;
        self.by_token.insert((from, token), edge);
    }

    fn edge(&self, from: u32, token: u32) -> Option<u32> {
        self.by_token.get(&(from, token)).copied()
    }

    fn target(&self, from: u32, token: u32) -> u32 {
        self.edges[self.by_token[&(from, token)] as usize].to
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Length of the longest end that occurs before, by trying all.
    fn longest(tokens: &[u32]) -> usize {
        let n = tokens.len();
        let occurs = |len: usize| (len..n).any(|end| tokens[end - len..end] == tokens[n - len..]);
        (1..n).rev().find(|&len| occurs(len)).unwrap_or(0)
    }

    proptest! {
        #[test]
        fn the_longest_end_is_found(tokens in prop::collection::vec(0u32..3, 1..80)) {
            let mut index = Suffixes::new();
            for n in 1..=tokens.len() {
                index.push(tokens[n - 1]);
                let found = index.recurrence();
                prop_assert_eq!(found.map_or(0, |found| found.len), longest(&tokens[..n]));
                if let Some(Recurrence { len, end }) = found {
                    prop_assert!(end < n && end >= len);
                    prop_assert_eq!(&tokens[end - len..end], &tokens[n - len..n]);
                }
            }
            prop_assert_eq!(index.len(), tokens.len());
        }

        #[test]
        fn memory_is_proportional_to_the_length(tokens in prop::collection::vec(0u32..4, 1..400)) {
            let mut index = Suffixes::new();
            tokens.iter().for_each(|&token| index.push(token));
            prop_assert!(index.states.len() <= 2 * tokens.len() + 1);
            prop_assert!(index.edges.len() <= 3 * tokens.len() + 1);
        }
    }

    #[test]
    fn a_later_occurrence_is_preferred() {
        let mut index = Suffixes::new();
        [1, 2, 3, 9, 1, 2, 4, 9, 9, 1, 2].into_iter().for_each(|token| index.push(token));
        assert_eq!(index.recurrence(), Some(Recurrence { len: 3, end: 6 }), "9 1 2");
    }
}
