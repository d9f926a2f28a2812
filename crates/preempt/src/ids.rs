//! Handles of the driver's objects, one type each, and its result codes.

/// A context's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Context(pub u64);

/// The driver's handle of an event: the program's own, or one of the engine's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event(pub u64);

/// The engine's number of a queue; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub(crate) u64);

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// The context in which it lives.
    pub context: Context,
    /// The driver's handle, valid in every thread.
    pub handle: u64,
    /// Whether the legacy default stream and this one wait for each other's earlier work. True for every stream without
    /// `CU_STREAM_NON_BLOCKING`, the legacy default stream included.
    pub blocking: bool,
}

impl Stream {
    /// The driver's handle of each context's legacy default stream (`CU_STREAM_LEGACY`).
    pub const LEGACY: u64 = 1;

    /// The legacy default stream of a context.
    pub fn legacy(context: Context) -> Self {
        Self { context, handle: Self::LEGACY, blocking: true }
    }

    /// Whether this is the legacy default stream.
    pub fn is_legacy(self) -> bool {
        self.handle == Self::LEGACY
    }

    /// Whether the driver orders the two streams with each other: one is the legacy default stream of their context, the other a
    /// blocking stream.
    pub fn is_ordered_with(self, other: Self) -> bool {
        self.context == other.context
            && self.blocking
            && other.blocking
            && self.is_legacy() != other.is_legacy()
    }
}

/// A result of the driver other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("driver error {0}")]
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

    /// Whether the error loses the context: the driver then returns it for every later call.
    pub fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 700 | 702 | 710 | 714..=719)
    }
}
