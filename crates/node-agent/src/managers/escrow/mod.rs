//! Descriptor escrow: a thread beside each manager that keeps copies of the manager's control descriptors. When the
//! manager dies, it re-enables the channel groups that the manager may have left disabled.
//!
//! The hook in each process re-enables its own channel groups too. But the process may be stopped, or have no thread
//! that runs. The escrow closes a copy as soon as the process that it came from has ended, independent of the manager.

mod owner;
mod store;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use sluice_comm::escrow::MAX_LEN;
use sluice_sys::socket::recv_with_fds;
use tokio::sync::oneshot;
use tracing::{info, warn};

use store::{EscrowStore, ReleaseCounts};

/// How long the next manager waits for the release. A control takes about a millisecond, or blocks forever in a faulty
/// driver.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The agent's handle to the escrow thread of one manager.
pub(super) struct Escrow {
    released: oneshot::Receiver<ReleaseCounts>,
}

impl Escrow {
    /// Starts the thread. Also returns the socket end that becomes the manager's standard input.
    pub(super) fn start(gpu: &str, simulated: bool) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let (done, released) = oneshot::channel();
        let closer = BackgroundCloser::start()?;
        let gpu = gpu.to_owned();
        std::thread::Builder::new().name("sluice-escrow".into()).spawn(move || {
            let mut store = EscrowStore::new(simulated, closer);
            let counts = match receive_until_closed(&gpu, &ours, &mut store) {
                Ok(()) => store.release_all(Instant::now() + RELEASE_TIMEOUT),
                Err(why) => {
                    // The manager may still run; then it controls its groups itself.
                    warn!(gpu, %why, "the descriptor escrow ended early");
                    ReleaseCounts::default()
                }
            };
            // The receiver may have timed out.
            let _ = done.send(counts);
        })?;
        Ok((Self { released }, theirs))
    }

    /// Waits until the channel groups of the ended manager are released, at most [`RELEASE_TIMEOUT`].
    pub(super) async fn wait_until_released(self, gpu: &str) {
        match tokio::time::timeout(RELEASE_TIMEOUT, self.released).await {
            Ok(Ok(ReleaseCounts { released: 0, failed: 0 })) => {}
            Ok(Ok(ReleaseCounts { released, failed: 0 })) => {
                info!(gpu, groups = released, "re-enabled channel groups of the ended pod-manager");
            }
            Ok(Ok(ReleaseCounts { released, failed })) => {
                warn!(
                    gpu,
                    groups = released,
                    failed,
                    "could not re-enable all channel groups of the ended pod-manager"
                );
            }
            Ok(Err(_)) | Err(_) => {
                warn!(gpu, "re-enabling the channel groups of the ended pod-manager takes too long")
            }
        }
    }
}

/// Receives the manager's deposits until it closes the socket.
fn receive_until_closed(gpu: &str, socket: &OwnedFd, store: &mut EscrowStore) -> io::Result<()> {
    let mut logged = false;
    let mut packet = [0; MAX_LEN];
    loop {
        let ready = wait(socket, store)?;
        for descriptor in ready.ended {
            store.close(descriptor);
        }
        if !ready.socket {
            continue;
        }
        let (len, descriptors) = recv_with_fds(socket.as_fd(), &mut packet)?;
        if len == 0 {
            return Ok(());
        }
        if let Err(why) = store.accept(packet.get(..len).unwrap_or_default(), descriptors)
            && !logged
        {
            logged = true;
            warn!(gpu, why, "refused a deposit: only the hook re-enables these channel groups");
        }
    }
}

struct Ready {
    /// The socket has a deposit, or the manager has closed it.
    socket: bool,
    /// Descriptors whose processes have ended.
    ended: Vec<u64>,
}

fn wait(socket: &OwnedFd, store: &EscrowStore) -> nix::Result<Ready> {
    let (numbers, processes): (Vec<u64>, Vec<_>) = store.processes().unzip();
    let mut polled = vec![PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    polled.extend(processes.into_iter().map(|process| PollFd::new(process, PollFlags::POLLIN)));
    match poll(&mut polled, PollTimeout::NONE) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Ready { socket: false, ended: Vec::new() }),
        Err(why) => return Err(why),
    }
    let mut is_ready = polled.iter().map(|one| one.any().unwrap_or(true));
    let socket = is_ready.next().unwrap_or(true);
    let ended = numbers
        .into_iter()
        .zip(is_ready)
        .filter(|(_, ended)| *ended)
        .map(|(descriptor, _)| descriptor)
        .collect();
    Ok(Ready { socket, ended })
}

/// Closes descriptors on a thread of its own: the last close of a control descriptor frees GPU memory and may block in
/// the driver for long, and the thread that reads deposits must not wait for it. The closing thread ends after this is
/// dropped and everything is closed; it is not joined.
pub(super) struct BackgroundCloser {
    things: Sender<Box<dyn Send>>,
    pending: Arc<AtomicUsize>,
}

impl BackgroundCloser {
    pub(super) fn start() -> io::Result<Self> {
        let (things, to_close) = channel::<Box<dyn Send>>();
        let pending = Arc::new(AtomicUsize::new(0));
        let closed = Arc::clone(&pending);
        std::thread::Builder::new().name("sluice-close".into()).spawn(move || {
            for thing in to_close {
                drop(thing);
                closed.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self { things, pending })
    }

    /// Drops `thing` on the closing thread.
    pub(super) fn close(&self, thing: impl Send + 'static) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        // The thread lives as long as this sender, so sending cannot fail.
        let _ = self.things.send(Box::new(thing));
    }

    /// Number of values that were handed over and are not closed yet.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
