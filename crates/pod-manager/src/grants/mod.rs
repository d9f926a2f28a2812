//! The grants: the token ledger decides, this part writes what it decided to pages and counts it.

mod hand_offs;
mod usage;

use crate::channel_groups::ChannelGroups;
use crate::clients::{Client, Processes};
use crate::effect::{Effect, Effects};
use crate::metrics::Preempted;
use crate::party::Party;
use crate::shared::Shared;
use hand_offs::HandOffs;
use sluice_comm::page::UNLIMITED;
use sluice_comm::{HandOffStep, ResponseBody};
use sluice_core::ledger::{Action, Deadline, GrantEnd, Returned, TokenLedger};
use sluice_core::{ClientId, ProcessId};
use tracing::{debug, warn};

/// The length of an unlimited grant in milliseconds, for peers that read the answer instead of the page: a day.
pub(crate) const UNLIMITED_MS: f64 = 86_400_000.0;

/// The token ledger of one GPU.
pub(crate) struct Grants {
    pub(crate) ledger: TokenLedger,
    pub(crate) hand_offs: HandOffs,
    /// Window of the exported shares.
    pub(crate) window_ns: u64,
}

impl Grants {
    pub(crate) fn new(ledger: TokenLedger, busy_poll_ns: u64, window_ns: u64) -> Self {
        Self { ledger, hand_offs: HandOffs::new(busy_poll_ns), window_ns }
    }
}

impl Shared {
    /// A process returns its grant.
    pub(crate) fn return_grant(&mut self, id: ProcessId, used_ns: u64, overuse_ns: u64) {
        let now = self.io.now();
        if self.grants.ledger.returned(id, now, used_ns, overuse_ns) == Ok(Returned::NothingHeld) {
            return debug!(process = ?id, "process returned a grant that it does not hold");
        }
        if let Some(pages) = self.processes.pages(id) {
            pages.grant().close();
        }
    }

    /// Carries out one decision of the ledger. Decisions about hardware-scheduled processes go to the channel groups.
    pub(crate) fn apply(&mut self, action: &Action, groups: &mut ChannelGroups) -> Effects {
        if groups.act(action, &self.io) {
            self.count_grant(action);
            return Effects::new();
        }
        match *action {
            Action::Grant { process, epoch, deadline, .. } => {
                let effects = self.open(process, epoch, deadline);
                self.count_grant(action);
                return effects;
            }
            Action::Extend { process, epoch, deadline } => {
                let ticks = self.io.clock.ticks_at(deadline).unwrap_or(0);
                if let Some(pages) = self.processes.pages(process) {
                    pages.grant().open(ticks, deadline, epoch);
                }
            }
            Action::Revoke { process, reason } => self.revoke(process, reason),
            Action::Disable { .. } => {}
            Action::Contended { client, contended } => self.set_contended(client, contended),
            Action::Ended { client, held_ns, overrun_ns, how, .. } => {
                self.count_end(client, how, groups);
                if how != GrantEnd::Continued {
                    self.set_contended(client, false);
                }
                self.count_gpu_time(client);
                let Some(client) = self.clients.get_mut(client) else { return Effects::new() };
                client.gpu_time.was_charged();
                client.metrics.grants.held_seconds.inc_by(seconds(held_ns));
                client.metrics.grants.overrun_seconds.inc_by(seconds(overrun_ns));
                if how == GrantEnd::NotReturned {
                    client.metrics.grants.not_returned.inc();
                }
            }
        }
        Effects::new()
    }

    fn count_grant(&mut self, action: &Action) {
        if let Action::Grant { client, waited_ns, .. } = *action
            && let Some(client) = self.clients.get_mut(client)
        {
            client.wait_ns = client.wait_ns.saturating_add(waited_ns);
            client.metrics.grants.granted.inc();
            client.metrics.grants.wait_seconds.observe(seconds(waited_ns));
        }
    }

    /// Opens the launch gate, then answers: a process that reads the answer finds the gate open.
    fn open(&mut self, id: ProcessId, epoch: u64, deadline: Deadline) -> Effects {
        let (deadline_ns, deadline_tsc, quota_ms) = match deadline {
            Deadline::Unlimited => (UNLIMITED, UNLIMITED, UNLIMITED_MS),
            Deadline::At(at) => {
                let left_ns = at.saturating_sub(self.io.now());
                (at, self.io.clock.ticks_at(at).unwrap_or(0), seconds(left_ns) * 1e3)
            }
        };
        if let Some(process) = self.processes.get(id)
            && let Some(pages) = &process.pages
        {
            let contended = self.clients.get(process.client).is_some_and(|client| client.contended);
            self.grants.ledger.set_gated(id, pages.has_gates());
            pages.grant().set_contended(contended);
            pages.grant().open(deadline_tsc, deadline_ns, epoch);
            self.io.record_step(HandOffStep::Shown);
        }
        answer_all(id, quota_ms, &mut self.processes)
    }

    fn revoke(&mut self, id: ProcessId, why: GrantEnd) {
        let Some(process) = self.processes.get(id) else { return };
        if let Some(pages) = &process.pages {
            pages.grant().close();
        }
        let (client, cause) = (self.clients.name(process.client), Party::Client(process.client));
        match why {
            GrantEnd::NotReturned if self.io.may_log("not_returned", cause).is_some() => {
                warn!(client, peer = %process.label, "grant was not returned within the timeout and is revoked");
            }
            _ => debug!(client, peer = %process.label, ?why, "grant has ended"),
        }
    }

    /// Tells all processes of a client whether another client waits.
    fn set_contended(&mut self, id: ClientId, contended: bool) {
        let changes = |client: &&mut Client| client.contended != contended;
        let Some(client) = self.clients.get_mut(id).filter(changes) else { return };
        client.contended = contended;
        for pages in self.processes.of_client(id).filter_map(|(_, process)| process.pages.as_ref()) {
            pages.grant().set_contended(contended);
        }
    }

    /// Counts a preemption: a grant that ends while another client waits. Those of hardware-scheduled processes are counted with
    /// their controls.
    fn count_end(&self, client: ClientId, how: GrantEnd, groups: &ChannelGroups) {
        let contended = self.clients.get(client).is_some_and(|client| client.contended);
        let outcome = match how {
            GrantEnd::NotReturned => Preempted::Timeout,
            GrantEnd::Returned | GrantEnd::Expired if contended => Preempted::Success,
            _ => return,
        };
        if !self.processes.of_client(client).any(|(id, _)| groups.is_hardware_scheduled(id)) {
            self.io.metrics.preemptions.count_token(outcome);
        }
    }
}

/// Answers all QUOTA requests of a process.
pub(crate) fn answer_all(id: ProcessId, quota_ms: f64, processes: &mut Processes) -> Effects {
    let Some(process) = processes.get_mut(id) else { return Effects::new() };
    let Some(connection) = process.token else { return Effects::new() };
    let answer = |request| Effect::Answer { connection, request, body: ResponseBody::Quota { quota_ms } };
    std::mem::take(&mut process.unanswered).into_iter().map(answer).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days; beyond that a metric may lose nanoseconds"
)]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;
