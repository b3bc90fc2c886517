//! Bounded little-endian reading: nothing is allocated before the bytes for it are known to be there.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read};

use super::subject::Subject;
use super::{HEADER_LIMIT_BYTES, HeaderError};

const BUFFER_BYTES: usize = 64 << 10;

/// A reader that knows how many bytes are left.
pub(super) struct Input<R> {
    reader: BufReader<R>,
    position: u64,
    len: u64,
    scratch: Vec<u8>,
}

impl<R: Read> Input<R> {
    /// Reads from the start of something that is `len_bytes` long.
    pub fn new(reader: R, len_bytes: u64) -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        Input { reader, position: 0, len: len_bytes, scratch: Vec::new() }
    }

    /// Bytes consumed so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn left(&self) -> u64 {
        self.len - self.position
    }

    /// Checks that `needed` more bytes exist.
    fn claim(&self, needed: u64, subject: Subject<'_>) -> Result<(), HeaderError> {
        if needed > self.left() {
            return Err(HeaderError::Cut {
                subject: subject.to_string(),
                needed_bytes: needed,
                left_bytes: self.left(),
                position_bytes: self.position,
            });
        }
        if needed > HEADER_LIMIT_BYTES.saturating_sub(self.position) {
            return Err(HeaderError::Limit {
                subject: format!("{subject}, end in the header"),
                found: self.position + needed,
                limit: HEADER_LIMIT_BYTES,
            });
        }
        Ok(())
    }

    /// Checks that `count` items of at least `item_bytes` can follow; gives the count in host width.
    pub fn claim_items(
        &self,
        count: u64,
        item_bytes: u64,
        subject: Subject<'_>,
    ) -> Result<usize, HeaderError> {
        let short = || HeaderError::Count {
            subject: subject.to_string(),
            count,
            item_bytes,
            left_bytes: self.left(),
            position_bytes: self.position,
        };
        let needed = count.checked_mul(item_bytes).filter(|&n| n <= self.left()).ok_or_else(short)?;
        self.claim(needed, subject)?;
        usize::try_from(count).map_err(|_| short())
    }

    fn fill(&mut self, target: &mut [u8], subject: Subject<'_>) -> Result<(), HeaderError> {
        self.reader.read_exact(target).map_err(|problem| HeaderError::Io {
            subject: subject.to_string(),
            problem: match problem.kind() {
                ErrorKind::UnexpectedEof => {
                    Error::new(ErrorKind::UnexpectedEof, "the file became shorter meanwhile")
                }
                _ => problem,
            },
        })?;
        self.position += target.len() as u64;
        Ok(())
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, subject: Subject<'_>) -> Result<[u8; N], HeaderError> {
        self.claim(N as u64, subject)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes, subject)?;
        Ok(bytes)
    }

    /// An unsigned 32-bit integer.
    pub fn u32(&mut self, subject: Subject<'_>) -> Result<u32, HeaderError> {
        self.array(subject).map(u32::from_le_bytes)
    }

    /// An unsigned 64-bit integer.
    pub fn u64(&mut self, subject: Subject<'_>) -> Result<u64, HeaderError> {
        self.array(subject).map(u64::from_le_bytes)
    }

    /// `count` numbers of `N` bytes.
    pub fn numbers<T, const N: usize>(
        &mut self,
        count: u64,
        subject: Subject<'_>,
        from_bytes: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, HeaderError> {
        let mut left = self.claim_items(count, N as u64, subject)?;
        let mut numbers = Vec::with_capacity(left);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(left.min(BUFFER_BYTES / N) * N, 0);
        while left > 0 {
            let n = left.min(BUFFER_BYTES / N);
            let piece = &mut scratch[..n * N];
            self.fill(piece, subject)?;
            numbers.extend(piece.as_chunks::<N>().0.iter().map(|&bytes| from_bytes(bytes)));
            left -= n;
        }
        self.scratch = scratch;
        Ok(numbers)
    }

    /// A string with its length before it, handed to `take` without an allocation where it lies in the buffer.
    pub fn string<T>(
        &mut self,
        subject: Subject<'_>,
        take: impl FnOnce(&str) -> T,
    ) -> Result<T, HeaderError> {
        let len = self.u64(subject)?;
        self.text(len, subject, take)
    }

    /// `len` bytes of UTF-8.
    pub fn text<T>(
        &mut self,
        len: u64,
        subject: Subject<'_>,
        take: impl FnOnce(&str) -> T,
    ) -> Result<T, HeaderError> {
        self.claim(len, subject)?;
        let not_utf8 = |_| HeaderError::NotUtf8 { subject: subject.to_string() };
        let len = len as usize; // at most HEADER_LIMIT_BYTES
        if let Some(bytes) = self.reader.buffer().get(..len) {
            let taken = std::str::from_utf8(bytes).map(take).map_err(not_utf8);
            self.reader.consume(len);
            self.position += len as u64;
            return taken;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(len, 0);
        self.fill(&mut scratch, subject)?;
        let taken = std::str::from_utf8(&scratch).map(take).map_err(not_utf8);
        self.scratch = scratch;
        taken
    }
}
