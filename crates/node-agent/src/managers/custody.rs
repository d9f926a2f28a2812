//! A thread beside each manager that keeps duplicates of what the manager controls, and starts again whom a manager that
//! dies leaves stopped.
//!
//! A program's own library does that as well; but it may be stopped itself, or be without a thread. What is kept is let go
//! of as soon as the process it came from has ended, whatever the manager does.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use sluice_comm::custody::MAX_LEN;
use sluice_sys::socket::recv_with_fds;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::closer::Closer;
use super::ward::{Restored, Ward};

/// How long the next manager waits for this: a control takes a millisecond, or for ever.
const PATIENCE: Duration = Duration::from_secs(2);

/// The agent's end.
pub(super) struct Custody {
    settled: oneshot::Receiver<Restored>,
}

impl Custody {
    /// Starts the thread; also the end for the manager's standard input.
    ///
    /// # Errors
    /// If there are no descriptors or threads to be had.
    pub(super) fn start(gpu: &str, simulated: bool) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let (done, settled) = oneshot::channel();
        let closer = Closer::start()?;
        let gpu = gpu.to_owned();
        std::thread::Builder::new().name("sluice-custody".into()).spawn(move || {
            let mut ward = Ward::new(simulated, closer);
            let restored = match keep(&gpu, &ours, &mut ward) {
                Ok(()) => ward.restore(Instant::now() + PATIENCE),
                Err(why) => {
                    // The manager may live, and what it has stopped is its affair.
                    warn!(gpu, %why, "duplicates are no longer kept");
                    Restored::default()
                }
            };
            // Nobody may have waited for so long.
            let _ = done.send(restored);
        })?;
        Ok((Self { settled }, theirs))
    }

    /// Waits until whom the manager that has ended left stopped runs again, for a while at most.
    pub(super) async fn settled(self, gpu: &str) {
        match tokio::time::timeout(PATIENCE, self.settled).await {
            Ok(Ok(Restored { free: 0, not: 0 })) => {}
            Ok(Ok(Restored { free, not: 0 })) => {
                info!(gpu, groups = free, "what the pod-manager may have left stopped runs");
            }
            Ok(Ok(Restored { free, not })) => {
                warn!(
                    gpu,
                    groups = free,
                    not_started = not,
                    "not all that the pod-manager may have left stopped runs"
                );
            }
            Ok(Err(_)) | Err(_) => {
                warn!(gpu, "the driver takes too long to start what the pod-manager left stopped")
            }
        }
    }
}

/// Takes what the manager gives until it has ended.
fn keep(gpu: &str, socket: &OwnedFd, ward: &mut Ward) -> io::Result<()> {
    let mut complained = false;
    let mut packet = [0; MAX_LEN];
    loop {
        let ready = wait(socket, ward)?;
        for line in ready.ended {
            ward.close(line);
        }
        if !ready.socket {
            continue;
        }
        let (len, descriptors) = recv_with_fds(socket.as_fd(), &mut packet)?;
        if len == 0 {
            return Ok(());
        }
        if let Err(why) = ward.take(packet.get(..len).unwrap_or_default(), descriptors)
            && !complained
        {
            complained = true;
            warn!(gpu, why, "a duplicate is not kept: whose it is has to help himself");
        }
    }
}

/// What is to be looked at.
struct Ready {
    /// The manager has said something, or ended.
    socket: bool,
    /// Lines whose processes have ended.
    ended: Vec<u64>,
}

fn wait(socket: &OwnedFd, ward: &Ward) -> nix::Result<Ready> {
    let (numbers, processes): (Vec<u64>, Vec<_>) = ward.processes().unzip();
    let mut polled = vec![PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    polled.extend(processes.into_iter().map(|process| PollFd::new(process, PollFlags::POLLIN)));
    match poll(&mut polled, PollTimeout::NONE) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Ready { socket: false, ended: Vec::new() }),
        Err(why) => return Err(why),
    }
    let mut is_ready = polled.iter().map(|one| one.any().unwrap_or(true));
    let socket = is_ready.next().unwrap_or(true);
    let ended = numbers.into_iter().zip(is_ready).filter(|(_, ended)| *ended).map(|(line, _)| line).collect();
    Ok(Ready { socket, ended })
}

#[cfg(test)]
#[path = "custody_tests.rs"]
mod tests;
