//! Errors of the generators.

use std::io;

use thiserror::Error;

use crate::driver;
use crate::record::BufferState;

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

/// The buffer and the errors of the last record. A driver error that ended the run is one of them; any other error is
/// returned.
pub(crate) fn final_buffer(
    ended: Result<(), RunError>,
    read: impl FnOnce() -> Result<Vec<u64>, driver::Error>,
) -> Result<(BufferState, Vec<String>), RunError> {
    let mut errors = Vec::new();
    match ended {
        Err(RunError::Driver(why)) => errors.push(why.to_string()),
        other => other?,
    }
    let buffer = read().map(|words| BufferState::of(&words)).unwrap_or_else(|why| {
        errors.push(why.to_string());
        BufferState::default()
    });
    Ok((buffer, errors))
}
