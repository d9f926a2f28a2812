//! Why the library could not be installed or removed.

use std::io;
use std::path::{Path, PathBuf};

/// Result of this module.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Which operation failed, on which path, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The name belongs to something that Sluice did not create.
    #[error("{} is {found}, where {wanted} of Sluice's belongs: move it away", path.display())]
    ForeignEntry {
        /// The name.
        path: PathBuf,
        /// What was found.
        found: String,
        /// What was expected.
        wanted: &'static str,
    },
    /// The image's library is not a shared library.
    #[error("{} is no shared library: the image is damaged", path.display())]
    NotALibrary {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// For `map_err`: this action on this path failed.
    pub(crate) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { action, path: path.to_owned(), source }
    }
}
