//! Why a pod-manager could not start or had to stop.

use crate::config::ConfigMistakes;
use sluice_core::resources::Mistakes;
use std::io;
use std::path::PathBuf;

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed, on what, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong.
    #[error("configuration: {0}")]
    Config(#[from] ConfigMistakes),
    /// A configuration file of this kind cannot be read.
    #[error("cannot read {} {}: {}", .0, .1.display(), .2)]
    ReadFile(&'static str, PathBuf, io::Error),
    /// A configuration file of this kind is wrong: every mistake in it.
    #[error("{} {}: {}", .0, .1.display(), .2)]
    File(&'static str, PathBuf, Mistakes),
    /// A socket with this path or address cannot be opened.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, io::Error),
    /// A system call that always works did not, when this was attempted.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    /// A thread of the manager could not be started.
    #[error("start the {0} thread: {1}")]
    Thread(&'static str, io::Error),
    /// A thread of the manager panicked.
    #[error("the {0} thread panicked")]
    Panicked(&'static str),
}

/// Names what was attempted when a system call fails.
pub(crate) trait Attempt<T> {
    /// Converts the error into [`Error::System`].
    fn attempt(self, what: &'static str) -> Result<T>;
}

impl<T, E: Into<io::Error>> Attempt<T> for std::result::Result<T, E> {
    fn attempt(self, what: &'static str) -> Result<T> {
        self.map_err(|error| Error::System(what, error.into()))
    }
}
