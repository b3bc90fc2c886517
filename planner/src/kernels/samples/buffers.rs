//! The buffers of a sample, before a launch and after it.

use super::data::POISON;

/// Bytes of poison behind what a kernel writes: nobody may touch them.
const GUARD_LEN_BYTES: usize = 64;

/// Buffers in the order of a kernel's objects.
#[derive(Default)]
pub struct Buffers {
    /// Before.
    pub before: Vec<Vec<u8>>,
    /// After.
    pub after: Vec<Vec<u8>>,
}

impl Buffers {
    /// A buffer that is only read.
    pub fn read(mut self, bytes: Vec<u8>) -> Self {
        self.before.push(bytes.clone());
        self.after.push(bytes);
        self
    }

    /// Buffers that are only read.
    pub fn read_all(self, all: impl IntoIterator<Item = Vec<u8>>) -> Self {
        all.into_iter().fold(self, Self::read)
    }

    /// A buffer that is only written: poison before.
    pub fn write(self, expected: Vec<u8>) -> Self {
        self.update(vec![POISON; expected.len()], expected)
    }

    /// Buffers that are only written.
    pub fn write_all(self, all: impl IntoIterator<Item = Vec<u8>>) -> Self {
        all.into_iter().fold(self, Self::write)
    }

    /// A buffer that is read and written.
    pub fn update(mut self, mut before: Vec<u8>, mut expected: Vec<u8>) -> Self {
        for buffer in [&mut before, &mut expected] {
            buffer.extend([POISON; GUARD_LEN_BYTES]);
        }
        self.before.push(before);
        self.after.push(expected);
        self
    }
}
