//! Duplicates of the ways to the driver, given to whoever supervises this manager: if it dies with somebody stopped, they
//! are started from there. A group is deposited before anything is done to it.

use super::Line;
use nix::sys::socket::{setsockopt, sockopt::SendTimeout};
use nix::sys::time::{TimeVal, TimeValLike};
use sluice_comm::attach::ContextHandles;
use sluice_comm::custody::Deposit;
use sluice_core::steering::GroupId;
use sluice_sys::socket::send_with_fds;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::warn;

/// How long the supervisor may leave its end full. Controls wait meanwhile, so it is waited for once.
const PATIENCE_S: i64 = 1;

/// What is deposited of one way to the driver.
pub(crate) struct Spare {
    /// A duplicate of the descriptor.
    pub(crate) descriptor: OwnedFd,
    /// Readable when the process has ended that it came from; nobody keeps its descriptor longer.
    pub(crate) process: OwnedFd,
}

/// Our end.
pub(crate) struct Custody {
    /// Open for as long as this process lives: its end is what the supervisor waits for.
    socket: OwnedFd,
    given_up: bool,
}

impl Custody {
    /// Over a packet socket to the supervisor.
    ///
    /// # Errors
    /// What setsockopt says.
    pub(crate) fn over(socket: OwnedFd) -> io::Result<Self> {
        setsockopt(&socket, SendTimeout, &TimeVal::seconds(PATIENCE_S))?;
        Ok(Self { socket, given_up: false })
    }

    pub(crate) fn line(&mut self, line: Line, spare: &Spare) {
        self.send(&Deposit::Line(line.0), &[spare.descriptor.as_fd(), spare.process.as_fd()]);
    }

    pub(crate) fn group(&mut self, group: GroupId, line: Line, handles: &ContextHandles) {
        self.send(&Deposit::Group { group: group.0, line: line.0, handles: handles.clone() }, &[]);
    }

    pub(crate) fn forget(&mut self, group: GroupId) {
        self.send(&Deposit::Forget(group.0), &[]);
    }

    pub(crate) fn close(&mut self, line: Line) {
        self.send(&Deposit::Close(line.0), &[]);
    }

    fn send(&mut self, deposit: &Deposit, descriptors: &[BorrowedFd<'_>]) {
        if self.given_up {
            return;
        }
        if let Err(error) = send_with_fds(self.socket.as_fd(), &deposit.encode(), descriptors) {
            // The supervisor watches the processes by itself, so what it has kept it closes in time.
            self.given_up = true;
            warn!(%error, "the supervisor takes no more duplicates: who is stopped when this manager dies has to help itself");
        }
    }
}
