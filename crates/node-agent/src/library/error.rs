//! Why the library could not be put in its place or removed from it.

use std::io;
use std::path::{Path, PathBuf};

/// What this module returns.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Where it failed, on what, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something that is not ours has the name.
    #[error("{} is {found}, where {wanted} of Sluice's belongs: move it away", path.display())]
    InTheWay {
        /// The name.
        path: PathBuf,
        /// What it is.
        found: String,
        /// What should be there.
        wanted: &'static str,
    },
    /// The image's library is not one.
    #[error("{} is no shared library: the image is damaged", path.display())]
    NoLibrary {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// For `map_err`: that this action on this path failed.
    pub(crate) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { action, path: path.to_owned(), source }
    }
}
