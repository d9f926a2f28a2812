//! The heartbeat on the pages and to pending attaches, and what follows when the event loop missed it: hooks have treated the manager as lost.

use super::EventLoop;
use super::attach::attach_answer;
use crate::channel_groups::ControlRequest;
use crate::grants::Grants;
use crate::processes::{Event, Process};
use sluice_comm::page::PAGE_VERSION;
use sluice_comm::{AttachStatus, HEARTBEAT_INTERVAL_NS};
use sluice_core::ProcessId;
use sluice_core::ledger::GrantRequest;
use tracing::warn;

/// When the heartbeat was last written.
pub(super) struct Heartbeat {
    /// `None` while there is no process and no pending attach: nothing is written, and the loop is not woken.
    last: Option<u64>,
    /// A longer pause counts as a stop of the manager.
    missed_ns: u64,
}

impl Heartbeat {
    pub(super) fn new(missed_ns: u64) -> Self {
        Self { last: None, missed_ns }
    }

    /// When the next heartbeat is due.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        Some(self.last?.saturating_add(HEARTBEAT_INTERVAL_NS))
    }

    /// The last heartbeat, if the pause since then was a stop of the manager.
    fn stopped_at(&self, now: u64) -> Option<u64> {
        self.last.filter(|last| now.saturating_sub(*last) > self.missed_ns)
    }
}

impl EventLoop {
    /// Writes the heartbeat if it is due: one store for each process with a page, one answer to each pending attach, whose process has no
    /// page yet. Called before each event and each decision, so that a long round does not delay it.
    pub(super) fn beat(&mut self) {
        if self.processes.is_empty() && self.connections.pending.len() == 0 {
            self.heartbeat.last = None;
            return;
        }
        let now = self.io.now();
        if let Some(stopped_at) = self.heartbeat.stopped_at(now) {
            self.rebuild(stopped_at, now);
        } else if self.heartbeat.next_deadline().is_some_and(|due| now < due) {
            return;
        }
        self.heartbeat.last = Some(now);
        for (_, process) in self.processes.iter() {
            if let Some(pages) = &process.endpoint.pages {
                pages.beat(now);
            }
        }
        for (id, request) in self.connections.pending.reported() {
            let pending = attach_answer(AttachStatus::Pending, PAGE_VERSION);
            // If the peer does not read its answers, the last one fails too, and the connection is closed.
            let _ = self.connections.answer(id, request, pending);
        }
    }

    /// The loop did not run from `stopped_at` until `now`. Hooks whose processes waited or were disabled have let them run. So nothing
    /// is known of the groups, and all grants have ended: no client is charged for the pause.
    fn rebuild(&mut self, stopped_at: u64, now: u64) {
        let ms = now.saturating_sub(stopped_at) / 1_000_000;
        warn!(ms, "the manager did not run: it takes back all grants and sets all channel groups anew");
        let Self { clients, processes, grants, .. } = self;
        let is_token_scheduled = |id: ProcessId, process: &Process| {
            process.is_attached()
                && !processes.is_hardware_scheduled(id)
                && !clients.is_critical(process.client)
        };
        let token_scheduled = processes.iter().filter(|(id, process)| is_token_scheduled(*id, process));
        let mut waiting = Vec::new();
        for (id, process) in token_scheduled {
            let Some(pages) = &process.endpoint.pages else { continue };
            // What the process may have returned meanwhile is ignored.
            grants.ledger.withdraw(id, stopped_at);
            pages.grant().close();
            waiting.extend((!process.endpoint.unanswered.is_empty()).then_some(id));
        }
        // The ledger's time does not go back: what happens now comes after all that is withdrawn as of the stop.
        self.apply(Event::ManagerStopped(stopped_at));
        self.group_controls.request(ControlRequest::ForgetChecks);
        for id in waiting {
            let _ = self.grants.ledger.request(id, now, GrantRequest::default());
        }
        Grants::export_unseen(stopped_at, now, &mut self.clients, &mut self.processes);
    }
}
