//! Processes come and end; what is remembered of those that have left.

use super::DataPlane;
use super::attach::silence;
use crate::process::Process;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use sluice_core::{ClientId, ProcessId};
use std::os::fd::OwnedFd;
use tracing::{info, warn};

/// Processes that have left and whose ends are waited for. Of those beyond nothing is remembered.
const MOST_DEPARTED: usize = 1024;

/// A process that has closed its connections, but has groups under control still, or was hung up on.
pub(super) struct Departed {
    whose: (ClientId, Option<i32>),
    /// Readable when it ends, and watched.
    pidfd: OwnedFd,
}

impl DataPlane {
    /// The pidfd says that a process has ended; a child of it may still hold its sockets.
    pub(super) fn process_ended(&mut self, id: ProcessId) {
        // A file that was found from outside may be another living process's too: what was stopped over it is started again.
        if self.processes.get(&id).is_none_or(|process| !process.adopted) {
            self.forget_groups(id);
        }
        self.forget_process(id, "ended");
        if let Some(departed) = self.helm.departed.remove(&id) {
            let _ = self.epoll.delete(&departed.pidfd);
            self.helm.hung_up.remove(&departed.whose);
        }
    }

    /// Goes on waiting for the end of a process that has left, if something is remembered of it until then.
    fn wait_for_end(&mut self, id: ProcessId, whose: (ClientId, Option<i32>), pidfd: Option<OwnedFd>) {
        let matters = self.helm.groups.values().any(|owned| owned.process == id);
        let matters = matters || self.helm.hung_up.contains(&whose);
        match pidfd {
            Some(pidfd) if matters && self.helm.departed.len() < MOST_DEPARTED => {
                self.helm.departed.insert(id, Departed { whose, pidfd });
            }
            pidfd => {
                if let Some(pidfd) = pidfd {
                    let _ = self.epoll.delete(&pidfd);
                }
                self.helm.hung_up.remove(&whose);
            }
        }
    }

    /// Nothing more is kept of a process that has left, unless it was hung up on: that is to happen once.
    pub(super) fn end_departure(&mut self, id: ProcessId) {
        let Some(departed) = self.helm.departed.get(&id) else { return };
        let has_groups = self.helm.groups.values().any(|owned| owned.process == id);
        if !has_groups
            && !self.helm.hung_up.contains(&departed.whose)
            && let Some(departed) = self.helm.departed.remove(&id)
        {
            let _ = self.epoll.delete(&departed.pidfd);
        }
    }

    /// Forgets a process: its token and its memory go back at once, its connections are closed.
    pub(super) fn forget_process(&mut self, id: ProcessId, how: &str) {
        let now = self.clock.now_ns();
        self.charge_standing(id, now);
        let Some(process) = self.processes.remove(&id) else { return };
        self.unsteer(id);
        self.forget_stuck_groups(id);
        self.tokens.process_gone(id, now);
        let bytes = self.memory.process_gone(id);
        if let Some(key) = process.key {
            self.by_peer.remove(&key);
        }
        if let Some(pages) = &process.pages {
            pages.grant().close();
            pages.set_gate(false, false);
        }
        silence(&self.epoll, &process);
        for number in process.connections() {
            if let Some(connection) = self.take_connection(number) {
                self.closer.close(connection);
            }
        }
        if let (Some(client), Some(pages)) = (self.clients.get_mut(process.client), &process.pages) {
            client.tally.add_bypassed(pages.report());
        }
        self.wait_for_end(id, (process.client, process.pid), process.pidfd);
        let client = self.clients.name(process.client);
        info!(client, peer = %process.label, bytes, "process {how}, its memory is free again");
        self.forget_client_if_left_out(process.client);
    }

    /// Keeps a process and watches for its end.
    pub(super) fn keep_process(&mut self, id: ProcessId, process: Process) {
        if let Some(pidfd) = &process.pidfd
            && let Err(error) = self.epoll.add(pidfd, EpollEvent::new(EpollFlags::EPOLLIN, id.0))
        {
            warn!(peer = %process.label, %error, "cannot watch for the end of a process; its sockets will have to tell");
        }
        if let Some(key) = process.key {
            self.by_peer.insert(key, id);
        }
        self.processes.insert(id, process);
    }
}
