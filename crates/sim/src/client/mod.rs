//! A process's side of the protocol, and the questions that anybody may ask the GPU.
//!
//! [`Gpu`] is a process that uses the GPU: contexts, memory, names and graphs by request and answer. [`Stream`] puts
//! commands into the shared ring, without a system call. What a command does to memory is a closure that is run here,
//! by [`Gpu::settle`], when somebody could see that the command has completed.

mod ask;
mod effects;
mod events;
mod gpu;
mod link;
mod stream;

pub use crate::wire::message::{ControlGroup, GpuInfo, LockFailure};
pub use ask::{gpu_info, heal, inject, is_locked, ledger, lock, timeline, unlock, window};
pub use effects::Effect;
pub use events::{Heard, Listener, wait_any};
pub use gpu::{Gpu, GpuError};
pub use stream::{Mark, Stream, StreamCommand};
