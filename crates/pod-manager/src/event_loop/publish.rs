//! What the loop publishes at the end of a round and on request: words on the pages, gauges, the snapshot.

use super::EventLoop;
use crate::agent_api::SnapshotSources;
use sluice_proto::control::SnapshotResponse;

impl EventLoop {
    /// Requests a wake-up from every idle process whose work matters to the scheduler or the gates. Returns `true` if one became busy
    /// before it was asked.
    pub(super) fn request_wakeups(&mut self) -> bool {
        let (now, mut busy) = (self.io.now(), false);
        for (id, process) in self.processes.iter_mut() {
            let wanted = self.channel_groups.needs_wakeup(id)
                || self.stream_gates.needs_wakeup(process, &self.clients);
            if process.pages.is_none() || process.wakeups.requested_since.is_some() == wanted {
                continue;
            }
            process.request_wakeups(wanted.then_some(now));
            // What it wrote before the request has woken no thread.
            busy |= wanted && (process.activity().busy || process.has_announced());
        }
        busy
    }

    /// Writes on each page whether the process is latency-critical, and for those that are and for hardware-scheduled ones how many
    /// others may use the GPU. In each round: processes change that without a decision of the ledger.
    pub(super) fn publish_contenders(&self) {
        let state = self.processes.iter().map(|(id, process)| {
            let critical = self.clients.is_critical(process.client);
            let scheduled = self.channel_groups.is_using_gpu(id);
            let uses = scheduled
                .unwrap_or_else(|| self.grants.ledger.holds(id) || critical && process.is_attached());
            (process, critical, uses, scheduled.is_some())
        });
        let state: Vec<_> = state.collect();
        let users = state.iter().filter(|(.., uses, _)| *uses).count() as u64;
        for (process, critical, uses, is_hardware_scheduled) in state {
            let Some(page) = process.pages.as_ref().map(|pages| pages.grant()) else { continue };
            let others = if is_hardware_scheduled || critical { users - u64::from(uses) } else { 0 };
            // Only what changes is written: launches read the words beside it.
            if page.latency_critical() != critical {
                page.set_latency_critical(critical);
            }
            if page.contenders() != others {
                page.set_contenders(others);
            }
        }
    }

    /// Updates the gauges, which are about to be read.
    pub(super) fn refresh_gauges(&mut self) {
        self.grants.refresh_gauges(&self.clients, &mut self.processes, self.io.now());
        self.clients.refresh_gauges(&self.processes);
        self.channel_groups.refresh_gauges(&self.processes, &self.io);
        self.unhooked.refresh_gauges(&self.clients, &self.processes, &self.channel_groups);
    }

    pub(super) fn snapshot(&self) -> SnapshotResponse {
        self.agent_api.snapshot(&SnapshotSources {
            clients: &self.clients,
            processes: &self.processes,
            grants: &self.grants,
            groups: &self.channel_groups,
            unhooked: &self.unhooked,
            pending: self.connections.pending.len(),
            io: &self.io,
        })
    }
}
