//! Channel groups from outside: stopping and starting them, their time slices, over descriptors that their owners sent.

mod custody;
mod executor;
mod nvrm;
pub(crate) mod verdict;

pub(crate) use custody::{Custody, Spare};
pub(crate) use executor::{Executor, Line, Order, Report};
pub use nvrm::Nvrm;

use sluice_comm::attach::ContextHandles;
use std::os::fd::OwnedFd;

/// The controls over one descriptor. Each may take a millisecond, or for ever; they are made on a thread of their own.
pub trait ChannelControl: Send {
    /// Sets the time slice of a context's channel group, microseconds.
    ///
    /// # Errors
    /// [`ControlFailure`].
    fn set_slice(&mut self, context: &ContextHandles, us: u64) -> Result<(), ControlFailure>;

    /// Takes the group off the GPU and keeps it off.
    ///
    /// # Errors
    /// [`ControlFailure`].
    fn stop(&mut self, context: &ContextHandles) -> Result<(), ControlFailure>;

    /// Lets the group run.
    ///
    /// # Errors
    /// [`ControlFailure`].
    fn start(&mut self, context: &ContextHandles) -> Result<(), ControlFailure>;
}

/// Why a control was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlFailure {
    /// There is no such group any more.
    #[error("the context is gone")]
    Gone,
    /// Anything else: it may or may not have had its effect.
    #[error("{1}")]
    Failed(Cause, String),
}

/// What kept a control from being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It took too long.
    Timeout,
    /// The driver would not, or could not be reached.
    Refused,
    /// The driver has no memory or other resource for it.
    NoMemory,
    /// The GPU does not answer, or has to be reset.
    GpuHung,
    /// The group or the driver is not in a state for it.
    InvalidState,
}

/// Takes descriptors that processes send for ways to the driver. On the data plane's thread: it must not wait.
pub trait Adopt: Send {
    /// The controls over a descriptor, if it is what it is sent for.
    ///
    /// # Errors
    /// The descriptor, which its sender may have made slow to close, and what it is instead.
    fn adopt(&mut self, fd: OwnedFd) -> Result<Box<dyn ChannelControl>, (OwnedFd, String)>;

    /// Whether the driver sets time slices. If not, groups are stopped and started only.
    fn sets_slices(&self) -> bool {
        true
    }
}
