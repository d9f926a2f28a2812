//! The end of processes, and what is remembered of those that have closed their connections.

use super::EventLoop;
use sluice_core::ProcessId;
use tracing::info;

impl EventLoop {
    /// The pidfd reports that a process has ended; a child of it may still hold its sockets.
    pub(super) fn process_ended(&mut self, id: ProcessId) {
        // A file that was found from outside may be another living process's too: groups disabled through it are enabled again.
        if self.processes.get(id).is_none_or(|process| !process.unhooked) {
            let effects = self.channel_groups.forget_process(id, &self.processes);
            self.carry_out(effects);
        }
        self.forget_process(id, "ended");
        if let Some(departed) = self.processes.forget_departed(id, &self.io) {
            self.channel_groups.forget_disconnected(departed.client, departed.pid);
        }
    }

    /// Forgets a process: its grant and its memory go back at once, its connections are closed.
    pub(super) fn forget_process(&mut self, id: ProcessId, how: &str) {
        let now = self.io.now();
        self.grants.charge_unlimited(id, &self.clients, &mut self.processes, now);
        let Some(mut process) = self.processes.remove(id) else { return };
        self.release_groups(id);
        let effects = self.channel_groups.forget_stuck(id);
        self.carry_out(effects);
        self.stream_gates.forget(id);
        self.grants.ledger.process_gone(id, now);
        let bytes = self.clients.memory.process_gone(id);
        if let Some(pages) = &mut process.pages {
            pages.close();
        }
        process.ignore_wakeups(&self.io);
        for connection in process.connections() {
            if let Some(connection) = self.connections.take(connection, &self.io) {
                self.io.closer.close(connection);
            }
        }
        let client = process.client;
        if let (Some(client), Some(pages)) = (self.clients.get_mut(client), &process.pages) {
            client.bypasses.add(pages.report());
        }
        info!(client = self.clients.name(client), peer = %process.label, bytes, "process {how}, its memory is released");
        let pid = process.pid;
        if self.channel_groups.needs_end_of(id, client, pid) {
            if !self.processes.wait_for_end(id, process, &self.io) {
                self.channel_groups.forget_disconnected(client, pid);
            }
        } else if let Some(pidfd) = &process.pidfd {
            self.io.poller.remove(pidfd);
        }
        self.forget_client_if_removed(client);
    }

    /// Waits for the end of a departed process no longer, unless it has groups or was disconnected: it is disconnected only once.
    pub(super) fn settle_departure(&mut self, id: ProcessId) {
        let Some(departed) = self.processes.departed(id) else { return };
        if !self.channel_groups.needs_end_of(id, departed.client, departed.pid) {
            self.processes.forget_departed(id, &self.io);
        }
    }
}
