//! The arguments of any driver function: one may be a stream, and all of them may be kept for a deferred call.

use sluice_driver_api::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUfunction, CUgraphExec, CUstream};
use sluice_preempt::command::Work;

/// One argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument<T>(pub(crate) T);

impl Argument<CUstream> {
    /// The stream, if the argument is one.
    #[inline]
    pub(crate) fn stream(&self) -> Option<CUstream> {
        Some(self.0)
    }

    /// The argument for a call on `stream`.
    #[inline]
    pub(crate) fn on(self, stream: CUstream) -> CUstream {
        stream
    }

    /// The argument for a call that is made at once, whatever is pending.
    #[inline]
    pub(crate) fn at_once(self, per_thread: bool) -> CUstream {
        super::submit::stands_for(self.0, per_thread)
    }
}

impl Argument<CUfunction> {
    /// The kind of work, if the argument names one.
    #[inline]
    pub(crate) fn work(&self) -> Option<Work> {
        Some(Work::Kernel(self.0.expose_provenance() as u64))
    }
}

impl Argument<CUgraphExec> {
    /// The kind of work, if the argument names one.
    #[inline]
    pub(crate) fn work(&self) -> Option<Work> {
        Some(Work::Graph(self.0.expose_provenance() as u64))
    }
}

impl Argument<usize> {
    /// An amount from which an estimate is learned.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.0 as u64
    }
}

impl Argument<*const CUDA_MEMCPY2D> {
    /// Bytes that the copy moves.
    pub(crate) fn size(&self) -> u64 {
        // SAFETY: the program passes null or a readable description.
        unsafe { self.0.as_ref() }.map_or(0, |copy| copy.WidthInBytes.saturating_mul(copy.Height) as u64)
    }
}

impl Argument<*const CUDA_MEMCPY3D> {
    /// Bytes that the copy moves.
    pub(crate) fn size(&self) -> u64 {
        // SAFETY: the program passes null or a readable description.
        unsafe { self.0.as_ref() }
            .map_or(0, |copy| copy.WidthInBytes.saturating_mul(copy.Height).saturating_mul(copy.Depth) as u64)
    }
}

/// The answers of an argument that is neither a stream nor a size. Inherent functions of the specific types take
/// precedence.
pub(crate) trait PlainArgument {
    /// The argument's type.
    type Kind;

    /// The stream, if the argument is one.
    fn stream(&self) -> Option<CUstream>;

    /// The argument for a call on `stream`.
    fn on(self, stream: CUstream) -> Self::Kind;

    /// The argument for a call that is made at once, whatever is pending.
    fn at_once(self, per_thread: bool) -> Self::Kind;

    /// Its size, if it is one.
    fn size(&self) -> u64;

    /// The kind of work, if it names one.
    fn work(&self) -> Option<Work>;
}

impl<T> PlainArgument for Argument<T> {
    type Kind = T;

    #[inline]
    fn stream(&self) -> Option<CUstream> {
        None
    }

    #[inline]
    fn on(self, _: CUstream) -> T {
        self.0
    }

    #[inline]
    fn at_once(self, _: bool) -> T {
        self.0
    }

    #[inline]
    fn size(&self) -> u64 {
        0
    }

    #[inline]
    fn work(&self) -> Option<Work> {
        None
    }
}

/// Arguments that another thread will pass to the driver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendableArguments<T>(T);

// SAFETY: handles and addresses are numbers to this library; only the driver, which takes them from any thread, follows them.
unsafe impl<T> Send for SendableArguments<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SendableArguments<T> {}

impl<T: Copy> SendableArguments<T> {
    /// Keeps arguments that are values.
    pub(crate) fn new(arguments: T) -> Self {
        Self(arguments)
    }

    /// The arguments.
    pub(crate) fn get(&self) -> T {
        self.0
    }

    /// A reference to the arguments.
    pub(crate) fn get_ref(&self) -> &T {
        &self.0
    }
}
