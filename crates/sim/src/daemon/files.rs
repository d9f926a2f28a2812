//! Open files of the control device (packet sockets whose other ends processes hold), and answers that are not due
//! yet.

use crate::engine::{Engine, OwnerId};
use crate::rm::{FileId, Reply, Rm};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use sluice_nvrm::transport::wire;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

#[derive(Debug)]
struct File {
    socket: OwnedFd,
    tenant: u64,
    owner: OwnerId,
}

#[derive(Debug)]
struct Pending {
    file: FileId,
    /// The descriptor that receives the answer; the file itself if the request named none.
    to: Option<OwnedFd>,
    bytes: Vec<u8>,
}

/// All open files, and the answers that are not due yet.
#[derive(Debug, Default)]
pub(super) struct Files {
    open: BTreeMap<FileId, File>,
    pending: BTreeMap<(u64, u64), Pending>,
    requests: u64,
}

impl Files {
    pub(super) fn open(&mut self, id: FileId, tenant: u64, owner: OwnerId) -> io::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (socket, file) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        // Only on the daemon's end: all processes that have the other end share its flags.
        nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        self.open.insert(id, File { socket, tenant, owner });
        Ok(file)
    }

    /// Removes a closed file. Returns the process that opened it.
    pub(super) fn close(&mut self, id: FileId) -> Option<(u64, OwnerId)> {
        self.pending.retain(|_, pending| pending.file != id);
        self.open.remove(&id).map(|file| (file.tenant, file.owner))
    }

    /// The file that a process opened last.
    pub(super) fn of(&self, tenant: u64) -> Option<FileId> {
        self.open.iter().rev().find(|(_, file)| file.tenant == tenant).map(|(id, _)| *id)
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = (FileId, BorrowedFd<'_>)> {
        self.open.iter().map(|(id, file)| (*id, file.socket.as_fd()))
    }

    /// Handles all requests that have arrived on a file. Returns `false` if every descriptor of the file has been closed.
    pub(super) fn serve(&mut self, id: FileId, now: u64, rm: &mut Rm, engine: &mut Engine) -> bool {
        let mut packet = [0; wire::MAX_REQUEST];
        loop {
            let Some(file) = self.open.get(&id) else { return true };
            let (len, fds) = match sluice_sys::socket::recv_with_fds(file.socket.as_fd(), &mut packet) {
                Ok((0, _)) => return false,
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            };
            let Reply { bytes, at_ns } = rm.request(now, id, &packet[..len], engine);
            self.requests += 1;
            let pending = Pending { file: id, to: fds.into_iter().next(), bytes };
            self.pending.insert((at_ns, self.requests), pending);
        }
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.pending.first_key_value().map(|((at, _), _)| *at)
    }

    /// Sends the answers that are due. An answer is dropped if the socket's buffer is full.
    pub(super) fn deliver(&mut self, now: u64) {
        while let Some(first) = self.pending.first_entry().filter(|first| first.key().0 <= now) {
            let Pending { file, to, bytes } = first.remove();
            let socket = to.as_ref().or(self.open.get(&file).map(|file| &file.socket));
            let Some(socket) = socket else { continue };
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            if let Err(error) = send(socket.as_raw_fd(), &bytes, flags)
                && error != Errno::EPIPE
            {
                tracing::warn!("cannot send the answer of an ioctl: {error}");
            }
        }
    }
}
