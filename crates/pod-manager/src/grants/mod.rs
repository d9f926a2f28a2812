//! The grants: the token ledger decides, this part writes what it decided to pages and counts it.

use crate::channel_groups::ChannelGroups;
use crate::clients::{Clients, Processes};
use crate::effect::{Effect, Effects};
use crate::io::Io;
use crate::metrics::{EnforcementLevel, Preempted};
use sluice_comm::ResponseBody;
use sluice_comm::page::UNLIMITED;
use sluice_core::ledger::{Action, Deadline, GrantEnd, GrantRequest, Returned, TokenLedger};
use sluice_core::share::Share;
use sluice_core::{ClientId, ProcessId};
use tracing::{debug, warn};

/// The length of an unlimited grant in milliseconds, for peers that read the answer instead of the page: a day.
pub(crate) const UNLIMITED_MS: f64 = 86_400_000.0;

/// The token ledger of one GPU.
pub(crate) struct Grants {
    pub(crate) ledger: TokenLedger,
    busy_poll_ns: u64,
}

impl Grants {
    pub(crate) fn new(ledger: TokenLedger, busy_poll_ns: u64) -> Self {
        Self { ledger, busy_poll_ns }
    }

    /// When the loop has to decide again.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.ledger.next_deadline()
    }

    /// When the loop begins to poll instead of sleeping, because a grant is about to be returned and a client waits for it. A time
    /// that has passed: it polls now.
    pub(crate) fn busy_poll_from(&self, now: u64) -> Option<u64> {
        if self.busy_poll_ns == 0 || self.ledger.waiting().next().is_none() {
            return None;
        }
        let deadlines = self.ledger.holders().map(|(_, deadline)| deadline);
        let ahead = deadlines.filter(|deadline| now < deadline.saturating_add(self.busy_poll_ns));
        ahead.map(|deadline| deadline.saturating_sub(self.busy_poll_ns)).min()
    }

    /// Asks for a grant on behalf of a process.
    pub(crate) fn request(&mut self, id: ProcessId, ask: GrantRequest, now: u64) {
        if let Err(refused) = self.ledger.request(id, now, ask) {
            debug!(%refused, "request for a grant");
        }
    }

    /// A process returns its grant.
    pub(crate) fn returned(
        &mut self,
        id: ProcessId,
        used_ns: u64,
        overuse_ns: u64,
        processes: &Processes,
        now: u64,
    ) {
        if self.ledger.returned(id, now, used_ns, overuse_ns) == Ok(Returned::NothingHeld) {
            return debug!(process = ?id, "process returned a grant that it does not hold");
        }
        if let Some(pages) = processes.get(id).and_then(|process| process.pages.as_ref()) {
            pages.grant().close();
        }
    }

    /// Carries out one decision of the ledger. Decisions about hardware-scheduled processes go to the channel groups.
    pub(crate) fn apply(
        &mut self,
        action: &Action,
        clients: &mut Clients,
        processes: &mut Processes,
        groups: &mut ChannelGroups,
        io: &mut Io,
    ) -> Effects {
        if let Action::Grant { client, waited_ns, .. } = *action
            && let Some(client) = clients.get_mut(client)
        {
            client.wait_ns = client.wait_ns.saturating_add(waited_ns);
            client.metrics.grants.granted.inc();
            client.metrics.grants.wait_seconds.observe(seconds(waited_ns));
        }
        let is_for_process = matches!(
            action,
            Action::Grant { .. } | Action::Extend { .. } | Action::Revoke { .. } | Action::Disable { .. }
        );
        if is_for_process && groups.act(action, io) {
            return Effects::new();
        }
        match *action {
            Action::Grant { process, epoch, deadline, .. } => {
                return open(process, epoch, deadline, clients, processes, io);
            }
            Action::Extend { process, epoch, deadline } => prolong(process, epoch, deadline, processes, io),
            Action::Revoke { process, reason: why } => revoke(process, why, clients, processes, io),
            Action::Disable { .. } => {}
            Action::Contended { client, contended } => set_contended(client, contended, clients, processes),
            Action::Ended { client, held_ns, charged_ns, overrun_ns, how } => {
                count_end(client, how, clients, processes, groups, io);
                if how != GrantEnd::Continued {
                    set_contended(client, false, clients, processes);
                }
                let Some(client) = clients.get(client) else { return Effects::new() };
                client.metrics.grants.held_seconds.inc_by(seconds(held_ns));
                client.metrics.grants.gpu_seconds.inc_by(seconds(charged_ns));
                client.metrics.grants.overrun_seconds.inc_by(seconds(overrun_ns));
                if how == GrantEnd::NotReturned {
                    client.metrics.grants.not_returned.inc();
                }
            }
        }
        Effects::new()
    }

    /// Charges what a latency-critical process with an unlimited grant reports to have used since the last charge. The elapsed time
    /// bounds it, so no client is charged more than was possible.
    pub(crate) fn charge_unlimited(
        &mut self,
        id: ProcessId,
        clients: &Clients,
        processes: &mut Processes,
        now: u64,
    ) {
        let Some(process) = processes.get_mut(id) else { return };
        let Some(client) = clients.get(process.client) else { return };
        let Some(pages) = process.pages.as_mut().filter(|_| clients.is_critical(process.client)) else {
            return;
        };
        let (held, since) = pages.holds_seen;
        let holds = pages.report().hold_ns();
        let more = holds.saturating_sub(held).min(now.saturating_sub(since));
        if more > 0 {
            pages.holds_seen = (holds, now);
            client.metrics.grants.hold_seconds.inc_by(seconds(more));
        }
        let (seen, since) = pages.busy_seen;
        let busy = pages.report().busy_ns();
        let used = busy.saturating_sub(seen).min(now.saturating_sub(since));
        if used > 0 {
            pages.busy_seen = (busy, now);
            client.metrics.grants.gpu_seconds.inc_by(seconds(used));
            self.ledger.charge_unlimited(process.client, since, now, used);
        }
    }

    /// Charges all unlimited grants of a client up to now, and begins anew: the client's class is about to change.
    pub(crate) fn settle_client(
        &mut self,
        client: ClientId,
        clients: &Clients,
        processes: &mut Processes,
        now: u64,
    ) {
        for id in processes.ids_of_client(client) {
            self.charge_unlimited(id, clients, processes, now);
            if let Some(pages) = processes.get_mut(id).and_then(|process| process.pages.as_mut()) {
                pages.busy_seen = (pages.report().busy_ns(), now);
            }
        }
    }

    /// Updates the gauges of shares and charges all unlimited grants up to now.
    pub(crate) fn refresh_gauges(&mut self, clients: &Clients, processes: &mut Processes, now: u64) {
        let ids: Vec<ProcessId> = processes.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.charge_unlimited(id, clients, processes, now);
        }
        for (id, client) in clients.iter() {
            let share = self.ledger.usage(id, now).map_or(Share::ZERO, |usage| usage.share);
            client.metrics.grants.share.set(share.as_fraction());
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

/// Opens the launch gate, then answers: a process that reads the answer finds the gate open.
fn open(
    id: ProcessId,
    epoch: u64,
    deadline: Deadline,
    clients: &Clients,
    processes: &mut Processes,
    io: &mut Io,
) -> Effects {
    let (deadline_ns, quota_ms) = match deadline {
        Deadline::Unlimited => (UNLIMITED, UNLIMITED_MS),
        Deadline::At(at) => (at, seconds(at.saturating_sub(io.now())) * 1e3),
    };
    let deadline_tsc = match deadline {
        Deadline::Unlimited => UNLIMITED,
        Deadline::At(at) => io.clock.ticks_at(at).unwrap_or(0),
    };
    let Some(process) = processes.get_mut(id) else { return Effects::new() };
    if let Some(pages) = &process.pages {
        let contended = clients.get(process.client).is_some_and(|client| client.contended);
        pages.grant().set_contended(contended);
        pages.grant().open(deadline_tsc, deadline_ns, epoch);
    }
    answer_all(id, quota_ms, processes)
}

/// Moves the deadline on the page.
fn prolong(id: ProcessId, epoch: u64, deadline: u64, processes: &Processes, io: &mut Io) {
    let ticks = io.clock.ticks_at(deadline).unwrap_or(0);
    if let Some(pages) = processes.get(id).and_then(|process| process.pages.as_ref()) {
        pages.grant().open(ticks, deadline, epoch);
    }
}

fn revoke(id: ProcessId, why: GrantEnd, clients: &Clients, processes: &Processes, io: &mut Io) {
    let Some(process) = processes.get(id) else { return };
    if let Some(pages) = &process.pages {
        pages.grant().close();
    }
    let client = clients.name(process.client);
    match why {
        GrantEnd::NotReturned if io.may_log("not_returned").is_some() => {
            warn!(client, peer = %process.label, "grant was not returned within the timeout and is revoked");
        }
        _ => debug!(client, peer = %process.label, ?why, "grant has ended"),
    }
}

/// Tells all processes of a client whether another client waits.
fn set_contended(id: ClientId, contended: bool, clients: &mut Clients, processes: &Processes) {
    let Some(client) = clients.get_mut(id).filter(|client| client.contended != contended) else { return };
    client.contended = contended;
    for (_, process) in processes.of_client(id) {
        if let Some(pages) = &process.pages {
            pages.grant().set_contended(contended);
        }
    }
}

/// Counts a preemption: a grant that ends while another client waits. Those of hardware-scheduled processes are counted with their
/// controls.
fn count_end(
    client: ClientId,
    how: GrantEnd,
    clients: &Clients,
    processes: &Processes,
    groups: &ChannelGroups,
    io: &Io,
) {
    let contended = clients.get(client).is_some_and(|client| client.contended);
    let outcome = match how {
        GrantEnd::NotReturned => Preempted::Timeout,
        GrantEnd::Returned | GrantEnd::Expired if contended => Preempted::Success,
        _ => return,
    };
    if !processes.of_client(client).any(|(id, _)| groups.is_hardware_scheduled(id)) {
        io.metrics.preemptions.count(EnforcementLevel::Token, outcome);
    }
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
