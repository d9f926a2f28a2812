//! Why the plugin cannot go on. That kubelet is away or refuses is no such reason: it is tried again.

use std::io;
use std::path::{Path, PathBuf};

/// What this module returns.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Where it failed, on what, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or socket operation failed.
    #[error("device plugin: cannot {action} {}: {source}", path.display())]
    System {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something that is no socket has our socket's name.
    #[error("device plugin: {} is no socket: move it away", path.display())]
    InTheWay {
        /// The name.
        path: PathBuf,
    },
    /// Somebody else listens under our name now: another agent on this node, which kubelet knows instead of us.
    #[error("device plugin: another process has taken over {}", path.display())]
    TakenOver {
        /// The socket.
        path: PathBuf,
    },
    /// Kubelet's folder was removed or unmounted.
    #[error("device plugin: the folder {} is gone", path.display())]
    FolderGone {
        /// The folder.
        path: PathBuf,
    },
    /// Nobody says any more how many GPUs there are.
    #[error("device plugin: the GPU inventory has ended")]
    NoInventory,
    /// The gRPC server ended by itself.
    #[error("device plugin: the server on {} ended: {why}", path.display())]
    Server {
        /// The socket.
        path: PathBuf,
        /// What it said.
        why: String,
    },
}

impl Error {
    /// For `map_err`: that this action on this path failed.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self::System { action, path: path.to_owned(), source: source.into() }
    }
}
