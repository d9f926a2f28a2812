//! What a control descriptor can do, and why a control fails.

use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::ControlOp;
use std::os::fd::OwnedFd;

/// The controls over one control descriptor. Each may take a millisecond, or never return: the control executor makes them on its own
/// thread.
pub trait ChannelControl: Send {
    /// Makes one control of a context's channel group, or returns why it was not made. A disabled group leaves the GPU and does not run
    /// until it is enabled.
    fn make(&mut self, context: &ContextHandles, op: ControlOp) -> Result<(), ControlFailure>;
}

/// Why a control was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlFailure {
    /// The group no longer exists.
    #[error("the context is gone")]
    Gone,
    /// Anything else: the control may or may not have had its effect.
    #[error("{1}")]
    Failed(Cause, String),
}

/// What prevented a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It took too long.
    Timeout,
    /// The driver refused it, or could not be reached.
    Refused,
    /// The driver has no memory or other resource for it.
    NoMemory,
    /// The GPU does not answer, or has to be reset.
    GpuHung,
    /// The group or the driver is not in a state for it.
    InvalidState,
}

/// Opens the descriptors that processes send as control descriptors. Runs on the event loop's thread: it must not wait.
pub trait ControlDriver: Send {
    /// The controls over a descriptor, if it is a control descriptor. Otherwise the descriptor, which its sender may have made slow to
    /// close, and what it is instead.
    fn open(&mut self, fd: OwnedFd) -> Result<Box<dyn ChannelControl>, (OwnedFd, String)>;

    /// Whether the driver sets time slices. If not, groups are only disabled and enabled.
    fn sets_slices(&self) -> bool {
        true
    }
}
