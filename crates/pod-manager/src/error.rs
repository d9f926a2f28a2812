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
    /// The resource file cannot be read.
    #[error("cannot read resource file {}: {source}", path.display())]
    ReadResources {
        /// The file.
        path: PathBuf,
        /// What the system returned.
        source: io::Error,
    },
    /// The resource file is wrong.
    #[error("resource file {}: {mistakes}", path.display())]
    Resources {
        /// The file.
        path: PathBuf,
        /// Every mistake in the file.
        mistakes: Mistakes,
    },
    /// The unix socket cannot be opened.
    #[error("cannot listen on {}: {source}", path.display())]
    Socket {
        /// Its path or address.
        path: PathBuf,
        /// What the system returned, or what occupies the path.
        source: io::Error,
    },
    /// A TCP address cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Tcp {
        /// Its path or address.
        address: std::net::SocketAddr,
        /// What the system returned.
        source: io::Error,
    },
    /// A system call that always works did not.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system returned.
        source: io::Error,
    },
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
        self.map_err(|source| Error::System { what, source: source.into() })
    }
}
