//! Latency-critical clients: their unlimited grants, what they are charged, and when they are delayed.
//!
//! A latency-critical client is delayed in two cases. It has used up its limit, apart from one request's burst. Or it has
//! used more than its request, and a client of a worse level is behind its own request by more than
//! [`Policy::critical_lag_ns`](super::Policy::critical_lag_ns). Its unlimited grants are revoked then and granted again
//! later. Work that it has submitted runs on and is charged.

use super::action::Usage;
use super::client::Client;
use super::policy::{ClientSpec, Policy};
use super::{Action, Deadline, GrantEnd, TokenLedger};
use crate::ids::{ClientId, ProcessId};
use crate::limit_bucket::{Depth, LimitBucket};
use std::collections::{BTreeMap, BTreeSet};

/// A delay ends when this much GPU time has been earned: shorter ones would consist of revoking and granting.
const RESUME_NS: u64 = 10_000_000;
/// How often a busy client that can be delayed is checked.
const CHECK_NS: u64 = 5_000_000;
/// The same for one that was not charged for this long.
const IDLE_CHECK_NS: u64 = 50_000_000;

/// Why a latency-critical client is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cause {
    /// It has used up its limit.
    Limit,
    /// It has used more than its request, and another client lags.
    Lag,
}

/// One latency-critical client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    /// Earns at the rate of the request: overdrawn while the client is beyond its request.
    request: LimitBucket,
    delayed: Option<Cause>,
    charged_at: u64,
}

/// All latency-critical clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CriticalClients {
    entries: BTreeMap<ClientId, Entry>,
    /// Processes that requested an unlimited grant and do not hold one, with the time of the request.
    waiting: BTreeMap<ProcessId, u64>,
    /// When to check again whether a client is to be delayed or resumed.
    pub(super) check_at: Option<u64>,
}

impl CriticalClients {
    /// A client becomes latency-critical, or its specification changes.
    pub(super) fn set(&mut self, client: ClientId, spec: &ClientSpec, policy: &Policy, now: u64) {
        let depth = Depth { idle_ns: policy.critical_burst_ns, waiting_ns: 0 };
        let new =
            || Entry { request: LimitBucket::new(spec.request, depth, now), delayed: None, charged_at: now };
        self.entries.entry(client).or_insert_with(new).request.set_rate(spec.request, now);
        self.check_at = Some(now);
    }

    /// A client is no longer latency-critical.
    pub(super) fn remove(&mut self, client: ClientId) {
        self.entries.remove(&client);
    }

    pub(super) fn is_delayed(&self, client: ClientId) -> bool {
        self.entries.get(&client).is_some_and(|entry| entry.delayed.is_some())
    }

    pub(super) fn waits(&mut self, process: ProcessId, now: u64) {
        self.waiting.entry(process).or_insert(now);
    }

    /// A process no longer waits for an unlimited grant. Returns since when it did.
    pub(super) fn no_longer_waits(&mut self, process: ProcessId) -> Option<u64> {
        self.waiting.remove(&process)
    }
}

impl TokenLedger {
    /// Charges a client with an unlimited grant for `used_ns` of GPU time (at most the span) between `from` and `to`.
    ///
    /// Grants of other clients that ran in this span are not charged for that time. If work of a token-scheduled grant
    /// ran beside it, the GPU alternated between both by time slice: each is charged one half.
    pub fn charge_unlimited(&mut self, client: ClientId, from: u64, to: u64, used_ns: u64) {
        let to = self.at(to);
        let Some(entry) = self.clients.get_mut(&client) else { return };
        let span = to.saturating_sub(from);
        let used = used_ns.min(span);
        let mut own = used;
        for grant in &mut self.grants {
            if self.withheld_since.is_some() && grant.can_be_suspended() {
                continue;
            }
            let overlap = to.saturating_sub(from.max(grant.start));
            let beside = used.min(
                u64::try_from(u128::from(used) * u128::from(overlap) / u128::from(span.max(1)))
                    .unwrap_or(used),
            );
            if grant.hardware_scheduled {
                grant.preempted_ns = grant.preempted_ns.saturating_add(beside);
            } else {
                grant.preempted_ns = grant.preempted_ns.saturating_add(beside / 2);
                own = own.saturating_sub(beside / 2);
            }
        }
        entry.charged_ns = entry.charged_ns.saturating_add(own);
        entry.held_ns = entry.held_ns.saturating_add(own);
        entry.limit.charge(from, to, own);
        if let Some(critical) = self.critical.entries.get_mut(&client) {
            critical.request.charge(from, to, own);
            critical.charged_at = if own > 0 { to } else { critical.charged_at };
            if critical.delayed.is_none()
                && (entry.limit.is_overdrawn(to) || critical.request.is_overdrawn(to))
            {
                self.critical.check_at = Some(to);
            }
        }
    }

    /// Grants waiting processes of latency-critical clients, after it has decided which clients are delayed.
    pub(super) fn grant_unlimited(&mut self, now: u64) {
        if self.critical.check_at.is_some_and(|at| at <= now) {
            self.check_delays(now);
        }
        let waiting: Vec<(ProcessId, u64)> =
            self.critical.waiting.iter().map(|(id, since)| (*id, *since)).collect();
        for (id, since) in waiting {
            let Some(process) = self.processes.get_mut(&id) else { continue };
            let client = process.client;
            if self.critical.is_delayed(client) {
                continue;
            }
            (process.unlimited, process.requested) = (true, false);
            self.critical.waiting.remove(&id);
            self.epoch += 1;
            self.actions.push(Action::Grant {
                process: id,
                client,
                epoch: self.epoch,
                deadline: Deadline::Unlimited,
                waited_ns: now.saturating_sub(since),
            });
        }
    }

    fn check_delays(&mut self, now: u64) {
        let ids: Vec<ClientId> = self.critical.entries.keys().copied().collect();
        let mut next = None;
        for id in ids {
            let (Some(entry), Some(client)) = (self.critical.entries.get(&id), self.clients.get(&id)) else {
                continue;
            };
            let (before, cause) = (entry.delayed, self.cause_of_delay(entry, client, now));
            match (before, cause) {
                (None, Some(cause)) => self.delay(id, cause, now),
                (Some(_), None) => self.resume(id, now),
                _ => {}
            }
            next = next.into_iter().chain(self.next_check(id, now)).min();
        }
        self.critical.check_at = next;
    }

    fn cause_of_delay(&self, entry: &Entry, client: &Client, now: u64) -> Option<Cause> {
        let earned = |bucket: &LimitBucket| bucket.left_ns(now) >= RESUME_NS;
        let limited = match entry.delayed {
            Some(Cause::Limit) => !earned(&client.limit),
            _ => client.limit.is_overdrawn(now),
        };
        if limited {
            return Some(Cause::Limit);
        }
        let beyond_request = match entry.delayed {
            Some(Cause::Lag) => !earned(&entry.request),
            _ => entry.request.is_overdrawn(now),
        };
        let bound = match entry.delayed {
            Some(Cause::Lag) => self.policy.critical_lag_ns.saturating_sub(RESUME_NS),
            _ => self.policy.critical_lag_ns,
        };
        (beyond_request && self.another_client_lags(bound, now)).then_some(Cause::Lag)
    }

    /// Whether a client that waits for grants or holds one is behind its request by more than `bound_ns`.
    fn another_client_lags(&self, bound_ns: u64, now: u64) -> bool {
        self.clients.iter().filter(|(_, client)| !client.is_critical() && client.idle_since.is_none()).any(
            |(id, client)| {
                let running = self.running_ns(*id, now);
                client.lag.exceeds(client.spec.request, running, bound_ns, now)
            },
        )
    }

    /// When to check a client again: `None` if it can only be delayed or resumed after another event.
    fn next_check(&self, id: ClientId, now: u64) -> Option<u64> {
        let (entry, client) = (self.critical.entries.get(&id)?, self.clients.get(&id)?);
        if client.processes.is_empty() {
            return None;
        }
        let poll =
            now + if now.saturating_sub(entry.charged_at) < IDLE_CHECK_NS { CHECK_NS } else { IDLE_CHECK_NS };
        match entry.delayed {
            Some(Cause::Limit) => Some(client.limit.holds_at(RESUME_NS, now)?.max(now + 1)),
            Some(Cause::Lag) => Some(now + CHECK_NS),
            None => {
                let limit = self.is_limited(id).then(|| client.limit.left_ns(now));
                let others = !self.queue.is_empty() || !self.grants.is_empty();
                let request = others.then(|| entry.request.left_ns(now));
                let left = limit.into_iter().chain(request).min()?;
                Some(poll.max(now.saturating_add(left)))
            }
        }
    }

    fn delay(&mut self, id: ClientId, cause: Cause, now: u64) {
        let Some(entry) = self.critical.entries.get_mut(&id) else { return };
        entry.delayed = Some(cause);
        let processes: BTreeSet<ProcessId> =
            self.clients.get(&id).map(|c| c.processes.clone()).unwrap_or_default();
        for process_id in processes {
            let Some(process) = self.processes.get_mut(&process_id) else { continue };
            if std::mem::take(&mut process.unlimited) {
                self.critical.waits(process_id, now);
                self.actions.push(Action::Revoke { process: process_id, reason: GrantEnd::Delayed });
            }
        }
    }

    fn resume(&mut self, id: ClientId, now: u64) {
        let Some(entry) = self.critical.entries.get_mut(&id) else { return };
        entry.delayed = None;
        let Some(client) = self.clients.get_mut(&id) else { return };
        // Processes that requested by themselves have work that waited. The others only lost their grants.
        let requested =
            client.processes.iter().filter(|p| self.processes.get(p).is_some_and(|p| p.requested));
        let since = requested.filter_map(|process| self.critical.waiting.get(process)).min();
        if let Some(since) = since {
            client.delayed_ns = client.delayed_ns.saturating_add(now.saturating_sub(*since));
        }
    }

    /// The processes that hold an unlimited grant or wait for one.
    #[must_use]
    pub fn critical_processes(&self) -> Vec<ProcessId> {
        let clients = self.critical.entries.keys().filter_map(|id| self.clients.get(id));
        clients.flat_map(|client| client.processes.iter().copied()).collect()
    }

    /// Usage of a client, if it is known.
    #[must_use]
    pub fn usage(&self, client: ClientId, now: u64) -> Option<Usage> {
        let entry = self.clients.get(&client)?;
        let now = now.max(self.now);
        Some(Usage {
            charged_ns: entry.charged_ns,
            held_ns: entry.held_ns,
            running_ns: self.running_ns(client, now),
            delayed_ns: entry.delayed_ns,
        })
    }
}
