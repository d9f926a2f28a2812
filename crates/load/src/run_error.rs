//! Errors of the generators.

use std::io;

use thiserror::Error;

use crate::driver;

/// Why a generator could not start, or ended early.
#[derive(Debug, Error)]
pub enum RunError {
    /// The device or the driver failed.
    #[error(transparent)]
    Driver(#[from] driver::Error),
    /// The output cannot be written, for example because its reader has ended.
    #[error("cannot write a record: {0}")]
    Output(#[from] io::Error),
    /// A line of input is no command.
    #[error("`{0}` is no command: {1}")]
    Command(String, #[source] serde_json::Error),
}
