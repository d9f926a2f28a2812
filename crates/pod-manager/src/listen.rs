//! Listening sockets: a unix socket that replaces a stale one safely, and loopback TCP.

use crate::error::{Error, Result};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A unix socket that listens beside its path, where clients do not find it yet.
#[derive(Debug)]
pub(crate) struct UnpublishedSocket {
    listener: UnixListener,
    beside: PathBuf,
    path: PathBuf,
    inode: (u64, u64),
}

/// A listening unix socket. Its path is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of this socket: that of another manager is not removed.
    inode: (u64, u64),
}

impl UnixSocket {
    /// Opens a socket at `path` with the permissions `mode`; makes the directory.
    ///
    /// It is made beside the path and then renamed onto it, so a client finds either the old socket or a new one that
    /// already listens with the right permissions, and a stale one never stands in the way.
    pub(crate) fn open(path: &Path, mode: u32) -> Result<Self> {
        UnpublishedSocket::open(path, mode)?.publish()
    }
}

impl UnpublishedSocket {
    /// Creates the socket and listens; only the rename onto `path` remains.
    pub(crate) fn open(path: &Path, mode: u32) -> Result<Self> {
        Self::open_io(path, mode).map_err(|source| Error::Socket { path: path.to_owned(), source })
    }

    /// Renames it onto its path.
    pub(crate) fn publish(self) -> Result<UnixSocket> {
        if let Err(source) = fs::rename(&self.beside, &self.path) {
            return Err(Error::Socket { path: self.path.clone(), source });
        }
        let listener = self.listener.try_clone();
        let listener = listener.map_err(|source| Error::Socket { path: self.path.clone(), source })?;
        Ok(UnixSocket { listener, path: self.path.clone(), inode: self.inode })
    }

    fn open_io(path: &Path, mode: u32) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            fs::create_dir_all(parent)?;
        }
        refuse_occupied_path(path)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        // A manager with the same pid may have been killed before it renamed its socket.
        let _ = fs::remove_file(&beside);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &UnixAddr::new(&beside)?)?;
        let placed = fs::set_permissions(&beside, fs::Permissions::from_mode(mode))
            .and_then(|()| Ok(listen(&fd, Backlog::new(1024)?)?))
            .and_then(|()| fs::symlink_metadata(&beside));
        match placed {
            Ok(made) => {
                let (path, inode) = (path.to_owned(), (made.dev(), made.ino()));
                Ok(Self { listener: fd.into(), beside, path, inode })
            }
            Err(error) => {
                let _ = fs::remove_file(&beside);
                Err(error)
            }
        }
    }
}

impl Drop for UnpublishedSocket {
    fn drop(&mut self) {
        // It no longer exists if it was published.
        let _ = fs::remove_file(&self.beside);
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.inode);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Refuses a path with anything else than the socket of a manager that has ended.
fn refuse_occupied_path(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path is a file and no socket"))
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another manager listens there")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
        },
    }
}

/// Opens a TCP socket that does not block.
pub(crate) fn tcp(address: SocketAddr) -> Result<TcpListener> {
    let open = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|source| Error::Tcp { address, source })
}
