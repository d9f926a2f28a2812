//! Carries out what the token ledger decides: pages, answers, metrics.

use super::DataPlane;
use crate::metrics::{Level, Preempted};
use crate::process::Process;
use sluice_comm::ResponseBody;
use sluice_comm::page::STANDING;
use sluice_core::ledger::{Action, Class, Deadline, End};
use sluice_core::share::Share;
use sluice_core::{ClientId, ProcessId};
use tracing::{debug, warn};

/// What a standing grant is called in milliseconds, for peers that look at the answer instead of the page: a day.
const STANDING_MS: f64 = 86_400_000.0;

impl DataPlane {
    /// Decides and acts until there is nothing left to decide.
    pub(super) fn settle(&mut self) {
        loop {
            self.observe();
            self.tend_gates();
            let now = self.clock.now_ns();
            self.helm.steering.ask_and_return(&mut self.tokens, now);
            let actions = self.tokens.advance(now);
            if actions.is_empty() && !self.arm() {
                break;
            }
            for action in actions {
                self.act(action, now);
            }
        }
        self.let_go();
        self.control();
        self.tell_company();
    }

    fn act(&mut self, action: Action, now: u64) {
        match action {
            Action::Grant { process, client, epoch, deadline, waited_ns } => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.tally.wait_ns = client.tally.wait_ns.saturating_add(waited_ns);
                    client.metrics.grants.inc();
                    client.metrics.wait_seconds.observe(seconds(waited_ns));
                }
                if !self.steer(&action) {
                    self.grant(process, epoch, deadline, now);
                }
            }
            Action::Prolong { .. } | Action::Revoke { .. } if self.steer(&action) => {}
            Action::Stop { .. } => drop(self.steer(&action)),
            Action::Prolong { process, epoch, deadline } => self.prolong(process, epoch, deadline),
            Action::Revoke { process, why } => self.revoke(process, why),
            Action::Contended { client, contended } => self.tell_contention(client, contended),
            Action::Ended { client, held_ns, charged_ns, overrun_ns, how } => {
                self.count_end(client, how);
                if how != End::Continued {
                    self.tell_contention(client, false);
                }
                let Some(client) = self.clients.get(client) else { return };
                client.metrics.held_seconds.inc_by(seconds(held_ns));
                client.metrics.gpu_seconds.inc_by(seconds(charged_ns));
                client.metrics.overrun_seconds.inc_by(seconds(overrun_ns));
                if how == End::NotReturned {
                    client.metrics.not_returned.inc();
                }
            }
        }
    }

    /// A grant that ends while somebody waits was to give way.
    fn count_end(&self, client: ClientId, how: End) {
        let contended = self.clients.get(client).is_some_and(|client| client.contended);
        let outcome = match how {
            End::NotReturned => Preempted::Timeout,
            End::Returned | End::Expired if contended => Preempted::Success,
            _ => return,
        };
        // Whose groups are controlled is counted with those.
        let mut its = self.processes.values().filter(|process| process.client == client);
        if !its.any(|process| process.steered) {
            self.meters.preemptions.count(Level::Token, outcome);
        }
    }

    fn tell_contention(&mut self, id: ClientId, contended: bool) {
        let Some(client) = self.clients.get_mut(id).filter(|client| client.contended != contended) else {
            return;
        };
        client.contended = contended;
        for process in self.processes.values().filter(|process| process.client == id) {
            if let Some(pages) = &process.pages {
                pages.grant().set_contended(contended);
            }
        }
    }

    /// Opens the gate, then answers: whoever sees the answer sees the gate open.
    fn grant(&mut self, id: ProcessId, epoch: u64, deadline: Deadline, now: u64) {
        let (deadline_ns, quota_ms) = match deadline {
            Deadline::Standing => (STANDING, STANDING_MS),
            Deadline::At(at) => (at, seconds(at.saturating_sub(now)) * 1e3),
        };
        let deadline_tsc = match deadline {
            Deadline::Standing => STANDING,
            Deadline::At(at) => self.clock.ticks_at(at).unwrap_or(0),
        };
        let Some(process) = self.processes.get_mut(&id) else { return };
        if let Some(pages) = &process.pages {
            let contended = self.clients.get(process.client).is_some_and(|client| client.contended);
            pages.grant().set_contended(contended);
            pages.grant().open(deadline_tsc, deadline_ns, epoch);
        }
        self.answer_quota(id, quota_ms);
    }

    /// Answers what a process that is steered has asked.
    pub(super) fn answer_pending(&mut self, id: ProcessId) {
        self.answer_quota(id, STANDING_MS);
    }

    fn answer_quota(&mut self, id: ProcessId, quota_ms: f64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(number) = process.token else { return };
        for request in std::mem::take(&mut process.pending) {
            if let Err(reason) = self.answer(number, request, ResponseBody::Quota { quota_ms }) {
                return self.close(number, &reason);
            }
        }
    }

    /// Moves the deadline; the process learns of it from its page.
    fn prolong(&mut self, id: ProcessId, epoch: u64, deadline: u64) {
        let ticks = self.clock.ticks_at(deadline).unwrap_or(0);
        if let Some(pages) = self.processes.get(&id).and_then(|process| process.pages.as_ref()) {
            pages.grant().open(ticks, deadline, epoch);
        }
    }

    fn revoke(&mut self, id: ProcessId, why: End) {
        let Some(process) = self.processes.get(&id) else { return };
        if let Some(pages) = &process.pages {
            pages.grant().close();
        }
        let client = self.clients.name(process.client);
        match why {
            End::NotReturned if self.throttle.pass("not_returned", self.clock.now_ns()).is_some() => {
                warn!(client, peer = %process.label, "grant was not returned within the timeout and is taken back");
            }
            _ => debug!(client, peer = %process.label, ?why, "grant is over"),
        }
    }

    /// Charges what a process with a standing grant says it used since it was last charged; the time gone by bounds it,
    /// so nobody is charged more than was possible.
    pub(super) fn charge_standing(&mut self, id: ProcessId, now: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(client) = self.clients.get(process.client) else { return };
        let Some(pages) =
            process.pages.as_mut().filter(|_| client.definition.spec.class == Class::LatencyCritical)
        else {
            return;
        };
        let (held, since) = pages.holds_seen;
        let holds = pages.report().hold_ns();
        let more = holds.saturating_sub(held).min(now.saturating_sub(since));
        if more > 0 {
            pages.holds_seen = (holds, now);
            client.metrics.hold_seconds.inc_by(seconds(more));
        }
        let (seen, since) = pages.busy_seen;
        let busy = pages.report().busy_ns();
        let used = busy.saturating_sub(seen).min(now.saturating_sub(since));
        if used > 0 {
            pages.busy_seen = (busy, now);
            client.metrics.gpu_seconds.inc_by(seconds(used));
            self.tokens.charge_standing(process.client, since, now, used);
        }
    }

    /// Charges what everybody with a standing grant used until now.
    pub(super) fn settle_standing(&mut self) {
        let now = self.clock.now_ns();
        let ids: Vec<ProcessId> = self.processes.keys().copied().collect();
        for id in ids {
            self.charge_standing(id, now);
        }
    }

    /// Brings the gauges up to date, for somebody who is about to read them.
    pub(super) fn refresh_gauges(&mut self) {
        self.settle_standing();
        let now = self.clock.now_ns();
        for (id, client) in self.clients.iter() {
            let share = self.tokens.usage(id, now).map_or(Share::ZERO, |usage| usage.share);
            let account = self.memory.client(id).unwrap_or_default();
            let its = || self.processes.values().filter(|process| process.client == id);
            let connected = its().filter(|process| process.connections().next().is_some()).count();
            client.metrics.share.set(share.as_fraction());
            client.metrics.memory_used.set(gauge(account.used));
            client.metrics.memory_limit.set(gauge(account.limit));
            client.metrics.processes.set(gauge(connected as u64));
            client.metrics.adopted.set(gauge(self.adopted(id) as u64));
            let unsteered = self.unsteered(id);
            for (gauge, count) in client.metrics.unsteered.iter().zip(unsteered) {
                gauge.set(count);
            }
        }
        let level = |(id, process): (&ProcessId, &Process)| process.level(self.helm.steering.controls(*id));
        self.meters.steering.announcements_waiting.set(gauge(self.helm.put_off.len() as u64));
        self.meters.steering.set_levels(self.processes.iter().filter_map(level));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days; beyond that a metric may lose nanoseconds"
)]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
