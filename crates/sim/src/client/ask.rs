//! Questions to a simulated GPU about its use.
use crate::ledger::{Interval, Ledger, Window};
use std::io;
use std::path::Path;

/// The whole ledger at this moment.
///
/// # Errors
/// No daemon answers at the socket.
pub fn ledger(socket: &Path) -> io::Result<Ledger> {
    let _ = socket;
    Err(io::ErrorKind::Unsupported.into())
}

/// Use of the GPU between two times of CLOCK_MONOTONIC in nanoseconds.
///
/// # Errors
/// No daemon answers at the socket.
pub fn window(socket: &Path, from_ns: u64, to_ns: u64) -> io::Result<Window> {
    let _ = (socket, from_ns, to_ns);
    Err(io::ErrorKind::Unsupported.into())
}

/// Who had the GPU when, between two times of CLOCK_MONOTONIC in nanoseconds.
///
/// # Errors
/// No daemon answers at the socket.
pub fn timeline(socket: &Path, from_ns: u64, to_ns: u64) -> io::Result<Vec<Interval>> {
    let _ = (socket, from_ns, to_ns);
    Err(io::ErrorKind::Unsupported.into())
}
