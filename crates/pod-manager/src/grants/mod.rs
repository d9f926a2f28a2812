//! The grants: the token ledger decides, this part writes what it decided to pages and counts it.

mod energy;
mod hand_offs;
mod usage;

use crate::clients::{Client, Clients};
use crate::io::Io;
use crate::metrics::{Preempted, SwitchLevel};
use crate::party::Party;
use crate::processes::{Processes, pages};
use hand_offs::HandOffs;
use sluice_comm::page::UNLIMITED;
use sluice_comm::{HandOffStep, ResponseBody};
use sluice_core::energy::EnergyMeter;
use sluice_core::ledger::{Action, Deadline, GrantEnd, Returned, TokenLedger};
use sluice_core::{ClientId, ConnectionId, ProcessId};
use std::time::Duration;
use tracing::{debug, warn};

/// The length of an unlimited grant in milliseconds, for peers that read the answer instead of the page: a day.
pub(crate) const UNLIMITED_MS: f64 = 86_400_000.0;

/// An answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) connection: ConnectionId,
    pub(crate) request: i32,
    pub(crate) body: ResponseBody,
}

/// The token ledger of one GPU.
pub(crate) struct Grants {
    pub(crate) ledger: TokenLedger,
    hand_offs: HandOffs,
    energy: EnergyMeter,
    /// Window of the exported shares.
    pub(crate) window_ns: u64,
}

impl Grants {
    pub(crate) fn new(ledger: TokenLedger, busy_poll_ns: u64, window_ns: u64) -> Self {
        Self { ledger, hand_offs: HandOffs::new(busy_poll_ns), energy: EnergyMeter::default(), window_ns }
    }

    /// A process returns its grant.
    pub(crate) fn return_grant(
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
        if let Some(pages) = pages(processes, id) {
            pages.grant().close();
        }
    }

    /// Carries out one decision of the ledger. Decisions about hardware-scheduled processes go to the scheduler of channel groups.
    pub(crate) fn apply(
        &mut self,
        action: &Action,
        clients: &mut Clients,
        processes: &mut Processes,
        io: &mut Io,
    ) -> Vec<Answer> {
        if processes.scheduler.apply_action(action) {
            if matches!(action, Action::Grant { .. }) {
                io.metrics.channel_groups.quanta.inc();
            }
            count_grant(action, clients);
            return Vec::new();
        }
        match *action {
            Action::Grant { process, epoch, deadline, .. } => {
                let answers = self.open(process, epoch, deadline, clients, processes, io);
                count_grant(action, clients);
                return answers;
            }
            Action::Extend { process, epoch, deadline } => {
                let ticks = io.clock.ticks_at(deadline).unwrap_or(0);
                if let Some(pages) = pages(processes, process) {
                    pages.grant().open(ticks, deadline, epoch);
                }
            }
            Action::Revoke { process, reason } => revoke(process, reason, clients, processes, io),
            Action::Disable { .. } => {}
            Action::Contended { client, contended } => set_contended(client, contended, clients, processes),
            Action::Ended { client, held_ns, overrun_ns, hold_and_wait_ns, how, .. } => {
                count_end(client, how, overrun_ns, clients, processes, io);
                let now = io.now();
                self.count_gpu_time(client, clients, processes, &mut io.trace, now);
                let Some(client) = clients.get_mut(client) else { return Vec::new() };
                // The pages keep what held at the end of the grant. The next grant shows it anew.
                client.contended &= how == GrantEnd::Continued;
                client.gpu_time.was_charged();
                client.metrics.grants.held_seconds.inc_by(seconds(held_ns));
                client.metrics.grants.overrun_seconds.inc_by(seconds(overrun_ns));
                client.hold_and_wait_ns = client.hold_and_wait_ns.saturating_add(hold_and_wait_ns);
                client.metrics.grants.hold_and_wait_seconds.inc_by(seconds(hold_and_wait_ns));
                if how == GrantEnd::NotReturned {
                    client.metrics.grants.not_returned.inc();
                }
            }
        }
        Vec::new()
    }

    /// Opens the launch gate, then answers: a process that reads the answer finds the gate open.
    fn open(
        &mut self,
        id: ProcessId,
        epoch: u64,
        deadline: Deadline,
        clients: &Clients,
        processes: &mut Processes,
        io: &mut Io,
    ) -> Vec<Answer> {
        let (deadline_ns, deadline_tsc, quota_ms) = match deadline {
            Deadline::Unlimited => (UNLIMITED, UNLIMITED, UNLIMITED_MS),
            Deadline::At(at) => {
                let left_ns = at.saturating_sub(io.now());
                (at, io.clock.ticks_at(at).unwrap_or(0), seconds(left_ns) * 1e3)
            }
        };
        if let Some(process) = processes.get(id)
            && let Some(pages) = &process.endpoint.pages
        {
            let contended = clients.get(process.client).is_some_and(|client| client.contended);
            let (page, limited) = (pages.grant(), self.ledger.is_limited(process.client));
            page.set_contended(contended);
            if page.limited() != limited {
                page.set_limited(limited);
            }
            page.open(deadline_tsc, deadline_ns, epoch);
            io.record_step(HandOffStep::Shown);
        }
        answer_all(id, quota_ms, processes)
    }
}

fn count_grant(action: &Action, clients: &mut Clients) {
    if let Action::Grant { client, waited_ns, .. } = *action
        && let Some(client) = clients.get_mut(client)
    {
        client.wait_ns = client.wait_ns.saturating_add(waited_ns);
        client.metrics.grants.granted.inc();
        client.metrics.grants.wait_seconds.observe(seconds(waited_ns));
    }
}

fn revoke(id: ProcessId, why: GrantEnd, clients: &Clients, processes: &Processes, io: &mut Io) {
    let Some(process) = processes.get(id) else { return };
    if let Some(pages) = &process.endpoint.pages {
        pages.grant().close();
    }
    let (client, cause, peer) =
        (clients.name(process.client), Party::Client(process.client), &process.endpoint.label);
    match why {
        GrantEnd::NotReturned if io.may_log("not_returned", cause).is_some() => {
            warn!(client, %peer, "grant was not returned within the timeout and is revoked");
        }
        _ => debug!(client, %peer, ?why, "grant has ended"),
    }
}

/// Tells all processes of a client whether another client waits.
fn set_contended(id: ClientId, contended: bool, clients: &mut Clients, processes: &Processes) {
    let changes = |client: &&mut Client| client.contended != contended;
    let Some(client) = clients.get_mut(id).filter(changes) else { return };
    client.contended = contended;
    for pages in processes.of_client(id).filter_map(|(_, process)| process.endpoint.pages.as_ref()) {
        pages.grant().set_contended(contended);
    }
}

/// Counts a preemption: a grant that ends while another client waits. Those of hardware-scheduled processes are counted with
/// their controls.
fn count_end(
    client: ClientId,
    how: GrantEnd,
    overrun_ns: u64,
    clients: &Clients,
    processes: &Processes,
    io: &Io,
) {
    let contended = clients.get(client).is_some_and(|client| client.contended);
    let outcome = match how {
        GrantEnd::NotReturned => Preempted::Timeout,
        GrantEnd::Returned | GrantEnd::Expired if contended => Preempted::Success,
        _ => return,
    };
    if !processes.of_client(client).any(|(id, _)| processes.is_hardware_scheduled(id)) {
        io.metrics.preemptions.count_token(outcome);
        io.metrics.switch_times.preempted(SwitchLevel::Token, Duration::from_nanos(overrun_ns));
    }
}

/// Answers all QUOTA requests of a process.
pub(crate) fn answer_all(id: ProcessId, quota_ms: f64, processes: &mut Processes) -> Vec<Answer> {
    let Some(process) = processes.get_mut(id) else { return Vec::new() };
    let Some(connection) = process.token else { return Vec::new() };
    let answer = |request| Answer { connection, request, body: ResponseBody::Quota { quota_ms } };
    std::mem::take(&mut process.endpoint.unanswered).into_iter().map(answer).collect()
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
