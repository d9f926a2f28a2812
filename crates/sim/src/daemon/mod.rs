//! The GPU as a process: couples the engine to CLOCK_MONOTONIC and serves it to clients.
//!
//! One thread owns all state. It sleeps until a request arrives, or until a command that a process waits for may have
//! completed, and then computes the timeline up to the present. Everything else is computed later, with the same
//! result, because every command carries the time of its submission.

mod config;
mod files;
mod gpu;
mod locks;
mod peer;
mod server;
#[cfg(test)]
mod tests;

pub use config::DaemonConfig;

use nix::sys::eventfd::{EfdFlags, EventFd};
use server::Server;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A daemon on a thread of this process. Dropping it stops it: clients find that their GPU is lost.
#[derive(Debug)]
pub struct Handle {
    socket: PathBuf,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Handle {
    /// Path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The counter cannot overflow: only this handle writes the eventfd.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves one GPU until the process ends.
/// Errors: the socket cannot be bound, or polling fails.
pub fn run(config: DaemonConfig) -> io::Result<()> {
    Server::bind(config, Arc::new(event()?))?.run()
}

/// Serves one GPU on a thread until the handle is dropped; the socket accepts when this returns.
/// Errors: the socket cannot be bound.
pub fn spawn_thread(config: DaemonConfig) -> io::Result<Handle> {
    let stop = Arc::new(event()?);
    let socket = config.socket.clone();
    let server = Server::bind(config, stop.clone())?;
    let thread = std::thread::Builder::new().name("sim-gpu".into()).spawn(|| server.run())?;
    Ok(Handle { socket, stop, thread: Some(thread) })
}

fn event() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}
