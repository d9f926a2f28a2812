//! Names of the driver's things, told apart by type, and its result codes.

/// A context's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Context(pub u64);

/// The driver's handle of an event: the program's own, or one of the engine's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event(pub u64);

/// The engine's number of a queue; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub(crate) u64);

/// How a stream orders itself with the others of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The legacy default stream: after everything earlier of the blocking streams, before everything later.
    Legacy,
    /// An ordinary stream. A thread's own default stream is one, too: under a handle that any thread may use.
    Blocking,
    /// A stream that the legacy default stream has nothing to do with.
    NonBlocking,
}

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// The context it lives in.
    pub context: Context,
    /// The driver's handle, good in every thread.
    pub handle: u64,
    /// How it orders itself.
    pub kind: Kind,
}

/// A result of the driver other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("driver's error {0}")]
pub struct Code(pub u32);

impl Code {
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_INVALID_HANDLE`.
    pub const INVALID_HANDLE: Self = Self(400);
    /// `CUDA_ERROR_NOT_READY`.
    pub const NOT_READY: Self = Self(600);
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub const ILLEGAL_ADDRESS: Self = Self(700);

    /// Whether the context is lost with it: the driver gives the same answer to everything that follows.
    pub fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 700 | 702 | 710 | 714..=719)
    }
}
