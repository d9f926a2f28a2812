//! What both generators share: how often they report and how they fail.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::driver;

/// Time between two progress records.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Why a generator could not run, or not go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// The device or the driver.
    #[error(transparent)]
    Driver(#[from] driver::Error),
    /// The records' reader went away.
    #[error("cannot write a record: {0}")]
    Output(#[from] io::Error),
    /// What was asked for is nothing that it does.
    #[error("`{0}` is no command: {1}")]
    Command(String, #[source] serde_json::Error),
}
