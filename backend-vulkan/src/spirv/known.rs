//! What has been made of the same ids before, in blocks that are still open, so that it is not made again.

use std::collections::HashMap;

use spirv::Word;

/// What something was made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A component of a vector.
    Part(Word, u32),
    /// The matrix A of words, or of a vector.
    A(Vec<Word>),
    /// The matrix B; one that was loaded and is nothing else is made of its own id.
    B(Vec<Word>),
    /// The accumulator.
    C(Vec<Word>),
}

/// Ids by what they were made of.
#[derive(Default)]
pub struct Known {
    ids: HashMap<Key, Word>,
    /// In the order in which they came.
    keys: Vec<Key>,
}

/// How much was known at the beginning of a block.
pub struct Mark(usize);

impl Known {
    pub fn get(&self, key: &Key) -> Option<Word> {
        self.ids.get(key).copied()
    }

    pub fn insert(&mut self, key: Key, id: Word) {
        self.keys.push(key.clone());
        self.ids.insert(key, id);
    }

    pub fn mark(&self) -> Mark {
        Mark(self.keys.len())
    }

    /// At the end of a block: what was made in it cannot be used after it.
    pub fn forget_since(&mut self, Mark(len): Mark) {
        for key in self.keys.drain(len..) {
            self.ids.remove(&key);
        }
    }
}
