//! Copies of the host's bytes to device memory: by way of two pieces of pinned memory, so that the host fills one while the
//! device copies from the other.

use std::sync::Arc;

use unisonic_gpu::machine::MachineError;

use super::memory::Buffer;
use super::pinned::Pinned;
use super::stream::{Event, Stream};

/// Large enough that a copy takes a multiple of what starting it does.
const PIECE_LEN_BYTES: usize = 8 << 20;

/// The way to device memory.
pub struct Upload {
    stream: Arc<Stream>,
    pieces: [Piece; 2],
}

struct Piece {
    memory: Pinned,
    /// Where the last copy from the memory is done.
    copied: Event,
}

impl Upload {
    /// Copies go through a stream.
    pub fn new(stream: &Arc<Stream>) -> Result<Self, MachineError> {
        Ok(Self { stream: stream.clone(), pieces: [Piece::new(stream)?, Piece::new(stream)?] })
    }

    /// Copies bytes to a part of a buffer. When this returns they have been read, and will be there for what is put into the
    /// stream later.
    pub fn copy(&mut self, to: &Buffer, offset_bytes: u64, bytes: &[u8]) -> Result<(), MachineError> {
        let mut address = to.part(self.stream.context(), offset_bytes, bytes.len() as u64, "upload")?;
        for bytes in bytes.chunks(PIECE_LEN_BYTES) {
            self.pieces.swap(0, 1);
            self.pieces[0].copy(&self.stream, address, bytes)?;
            address += bytes.len() as u64;
        }
        Ok(())
    }
}

impl Piece {
    fn new(stream: &Arc<Stream>) -> Result<Self, MachineError> {
        let copied = Event::new(stream.context())?;
        Ok(Self { memory: Pinned::new(stream, PIECE_LEN_BYTES)?, copied })
    }

    /// Puts a copy into the stream; at `address` there is room.
    fn copy(&mut self, stream: &Stream, address: u64, bytes: &[u8]) -> Result<(), MachineError> {
        self.copied.wait()?;
        // SAFETY: the last copy from it has ended.
        let memory = unsafe { self.memory.bytes_mut() };
        memory[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: the buffer has room, and the memory is not written before the event that follows the copy; both wait for
        // the stream before they are freed.
        let copied = unsafe { stream.copy_to_device(address, &self.memory, bytes.len()) };
        let recorded = copied.and_then(|()| self.copied.record(stream));
        if recorded.is_err() {
            // The event may not say when the copy is done.
            let _ = stream.synchronize();
        }
        recorded
    }
}
