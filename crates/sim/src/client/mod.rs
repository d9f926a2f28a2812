//! The client side of the protocol, and queries of the GPU that need no client.
//!
//! [`Gpu`] is a process that uses the GPU: contexts, memory, names and graphs by request and answer. [`Stream`] puts
//! commands into the shared ring, without a system call. The effect of a command on memory is a closure.
//! [`Gpu::apply_effects`] runs it in this process, before anything can observe that the command has completed.

mod gpu;
mod link;
mod queries;
mod stream;

pub use crate::wire::message::{ControlGroup, GpuInfo, Instance, LockFailure};
pub use gpu::{Gpu, GpuError};
pub use queries::{
    Listener, ListenerEvent, advance, gpu_info, heal, inject, is_locked, ledger, lock, set_control_fault,
    timeline, unlock, wait_any, window,
};
pub use stream::{Effect, Mark, Stream, StreamCommand};
