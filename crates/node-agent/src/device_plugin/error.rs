//! Errors that end the plugin. An absent or refusing kubelet is none of them: registration is retried.

use std::io;
use std::path::{Path, PathBuf};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Which operation failed, on which path, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or socket operation failed.
    #[error("device plugin: cannot {action} {}: {source}", path.display())]
    System {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Our socket's name belongs to something that is not a socket.
    #[error("device plugin: {} is no socket: move it away", .0.display())]
    NotASocket(PathBuf),
    /// Another process listens under our socket's name: a second agent on this node, which kubelet now knows instead
    /// of this one.
    #[error("device plugin: another process has taken over {}", .0.display())]
    TakenOver(PathBuf),
    /// Kubelet's folder was removed or unmounted.
    #[error("device plugin: the folder {} is gone", .0.display())]
    FolderGone(PathBuf),
    /// The sender of the GPU inventory was dropped.
    #[error("device plugin: the GPU inventory ended")]
    NoInventory,
    /// The gRPC server ended by itself.
    #[error("device plugin: the server on {} ended: {why}", path.display())]
    Server {
        /// The socket.
        path: PathBuf,
        /// The server's error.
        why: String,
    },
}

impl Error {
    /// For `map_err`: this action on this path failed.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self::System { action, path: path.to_owned(), source: source.into() }
    }
}
