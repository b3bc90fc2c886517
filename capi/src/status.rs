//! What a function comes to.

/// What a call came to. New ones may be added: treat those that you do not know as failures.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum unisonic_status {
    /// Done.
    Ok = 0,
    /// An argument is not what it must be: NULL, out of range, no UTF-8, of the wrong length.
    InvalidArgument = 1,
    /// A handle that was freed, or is of another kind.
    InvalidHandle = 2,
    /// The program was compiled against a header that this library does not serve.
    Version = 3,
    /// A file cannot be read or written.
    Io = 4,
    /// A model file is damaged, or not supported.
    Model = 5,
    /// A device cannot be opened, or has failed.
    Device = 6,
    /// Memory does not suffice.
    OutOfMemory = 7,
    /// The context of the model is full.
    ContextFull = 8,
    /// The handle is in use: by another thread, or by the call that this callback came from.
    Busy = 9,
    /// Someone asked for the call to end.
    Cancelled = 10,
    /// A callback failed.
    CallbackFailed = 11,
    /// There is no such thing, and why.
    Unsupported = 12,
    /// A receipt or saved session is damaged, or of another model or arithmetic.
    Mismatch = 13,
    /// A graph is not right, or a tensor does not fit it.
    Graph = 14,
    /// A fault of the library. Handles that took part are not to be used any more, only freed.
    Internal = 15,
}
