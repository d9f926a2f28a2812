//! Listening sockets: a unix socket that replaces a stale one safely, and loopback TCP.

use crate::error::{Error, Result};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::unistd::Pid;
use sluice_sys::socket::connect_within;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tracing::warn;

/// How long a listener whose queue of connections is full is asked.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// A listening unix socket. Its path is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Where it is now: beside its path, where clients do not find it, until it is published.
    place: PathBuf,
    /// Device and inode of this socket: that of another manager is not removed.
    inode: (u64, u64),
}

impl UnixSocket {
    /// Opens a socket at `path` with the permissions `mode`; makes the directory.
    ///
    /// It is made beside the path and then renamed onto it, so a client finds either the old socket or a new one that
    /// already listens with the right permissions, and a stale one never stands in the way.
    pub(crate) fn open(path: &Path, mode: u32) -> Result<Self> {
        let mut socket = Self::unpublished(path, mode)?;
        socket.publish()?;
        Ok(socket)
    }

    /// Creates the socket and listens; only [`Self::publish`] remains.
    pub(crate) fn unpublished(path: &Path, mode: u32) -> Result<Self> {
        Self::create(path, mode).map_err(|error| Error::Listen(path.display().to_string(), error))
    }

    /// Renames it onto its path.
    pub(crate) fn publish(&mut self) -> Result<()> {
        let renamed = fs::rename(&self.place, &self.path);
        renamed.map_err(|error| Error::Listen(self.path.display().to_string(), error))?;
        self.place.clone_from(&self.path);
        Ok(())
    }

    fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            fs::create_dir_all(parent)?;
        }
        refuse_occupied_path(path)?;
        remove_unfinished(path);
        let mut place = path.as_os_str().to_owned();
        place.push(format!(".{}", std::process::id()));
        let place = PathBuf::from(place);
        // A manager with the same pid may have been killed before it renamed its socket.
        if is_abandoned(&place) {
            let _ = fs::remove_file(&place);
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &UnixAddr::new(&place)?)?;
        let made = fs::set_permissions(&place, fs::Permissions::from_mode(mode))
            .and_then(|()| Ok(listen(&fd, Backlog::new(1024)?)?))
            .and_then(|()| fs::symlink_metadata(&place))
            .inspect_err(|_| drop(fs::remove_file(&place)))?;
        Ok(Self { listener: fd.into(), path: path.to_owned(), place, inode: (made.dev(), made.ino()) })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.place);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.inode) {
            let _ = fs::remove_file(&self.place);
        }
    }
}

/// Removes the sockets beside `path` that killed managers have left before they were published. What cannot be removed stays.
fn remove_unfinished(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
        return;
    };
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        let suffix = file_name.to_str().and_then(|file| file.strip_prefix(name)?.strip_prefix('.'));
        let Some(pid) = suffix.and_then(|suffix| suffix.parse::<i32>().ok()) else { continue };
        let has_ended = kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
        // The number may be no pid, as in `gpu.50051`, or one of another pid namespace: such a manager listens.
        if has_ended && is_abandoned(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether there is a socket at `path` on which no process listens. A listener that does not accept connections is not waited for.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && connect_within(path, CONNECT_TIMEOUT).is_err_and(refused)
}

/// Refuses a path with anything else than the socket of a manager that has ended.
fn refuse_occupied_path(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path is a file and no socket"))
        }
        Ok(_) => match connect_within(path, CONNECT_TIMEOUT) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another manager listens there")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another manager listens there and accepts no connections",
            )),
            Err(error) => Err(error),
        },
    }
}

/// Connections of the manager's own user to the socket with this name; others are closed.
pub(crate) fn peers_of_own_user(
    listener: UnixListener,
    name: &'static str,
) -> io::Result<impl Stream<Item = io::Result<UnixStream>>> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let own = nix::unistd::geteuid().as_raw();
    Ok(UnixListenerStream::new(listener).filter(move |stream| {
        let Ok(stream) = stream else { return true };
        let uid = stream.peer_cred().map(|peer| peer.uid());
        let is_own = uid.as_ref().is_ok_and(|uid| *uid == own);
        if !is_own {
            warn!(?uid, "connection of another user on the {name} socket is closed");
        }
        is_own
    }))
}

/// Opens a TCP socket that does not block.
pub(crate) fn tcp(address: SocketAddr) -> Result<TcpListener> {
    let open = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|error| Error::Listen(address.to_string(), error))
}
