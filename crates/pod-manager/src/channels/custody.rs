//! Duplicates of the ways to the driver, given to whoever supervises this manager: if it dies with somebody stopped, they
//! are started from there. A group is deposited before anything is done to it.

mod backlog;

use super::Line;
use backlog::Backlog;
use nix::sys::socket::{setsockopt, sockopt::SendTimeout};
use nix::sys::time::{TimeVal, TimeValLike};
use sluice_comm::attach::ContextHandles;
use sluice_comm::custody::Deposit;
use sluice_core::steering::GroupId;
use sluice_sys::socket::{send_with_fds, try_send_with_fds};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tracing::{info, warn};

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
    mood: Mood,
    backlog: Backlog,
}

/// What is expected of the supervisor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// It takes what it is given.
    Good,
    /// It once left its end full: what it does not take at once is offered again before the next order.
    Slow,
    /// It is no more.
    Gone,
}

impl Custody {
    /// Over a packet socket to the supervisor.
    ///
    /// # Errors
    /// What setsockopt says.
    pub(crate) fn over(socket: OwnedFd) -> io::Result<Self> {
        setsockopt(&socket, SendTimeout, &TimeVal::seconds(PATIENCE_S))?;
        Ok(Self { socket, mood: Mood::Good, backlog: Backlog::default() })
    }

    /// Deposits a way to the driver. Gives back what nobody takes: whoever sent it may have made it slow to close.
    pub(crate) fn line(&mut self, line: Line, spare: Spare) -> Vec<Spare> {
        self.give(Deposit::Line(line.0), Some(spare))
    }

    pub(crate) fn group(&mut self, group: GroupId, line: Line, handles: &ContextHandles) -> Vec<Spare> {
        self.give(Deposit::Group { group: group.0, line: line.0, handles: handles.clone() }, None)
    }

    pub(crate) fn forget(&mut self, group: GroupId) -> Vec<Spare> {
        self.give(Deposit::Forget(group.0), None)
    }

    pub(crate) fn close(&mut self, line: Line) -> Vec<Spare> {
        self.give(Deposit::Close(line.0), None)
    }

    fn give(&mut self, deposit: Deposit, spare: Option<Spare>) -> Vec<Spare> {
        if self.mood == Mood::Gone {
            return spare.into_iter().collect();
        }
        let mut done: Vec<Spare> = self.backlog.push(deposit, spare).into_iter().collect();
        done.extend(self.offer());
        done
    }

    /// Offers what was not taken yet. Gives back what is not needed any more.
    pub(crate) fn offer(&mut self) -> Vec<Spare> {
        let mut done = Vec::new();
        let had = self.backlog.len();
        while let Some((deposit, spare)) = self.backlog.first() {
            let fds: Vec<_> =
                spare.iter().flat_map(|spare| [spare.descriptor.as_fd(), spare.process.as_fd()]).collect();
            let send = if self.mood == Mood::Good { send_with_fds } else { try_send_with_fds };
            match send(self.socket.as_fd(), &deposit.encode(), &fds) {
                Ok(_) => done.extend(self.backlog.taken()),
                Err(error) if is_full(&error) => {
                    if self.mood == Mood::Good {
                        self.mood = Mood::Slow;
                        warn!(%error, "the supervisor takes no duplicates for now: who is stopped when this manager dies may have to help itself");
                    }
                    return done;
                }
                Err(error) => {
                    // It watches the processes by itself, so what it has kept it closes in time.
                    self.mood = Mood::Gone;
                    warn!(%error, "the supervisor takes no more duplicates: who is stopped when this manager dies has to help itself");
                    done.extend(self.backlog.clear());
                    return done;
                }
            }
        }
        if self.mood == Mood::Slow && had > 1 {
            info!(deposits = had, "the supervisor has all duplicates again");
        }
        done
    }
}

/// Whether there is no room at the moment; the last is the kernel's limit of descriptors under way.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || matches!(
            error.raw_os_error(),
            Some(nix::libc::ENOBUFS | nix::libc::ENOMEM | nix::libc::ETOOMANYREFS)
        )
}
