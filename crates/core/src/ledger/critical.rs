//! Latency-critical clients: their unlimited grants and what they are charged. `delays.rs` decides when they are delayed.

use super::action::Usage;
use super::grant::Grant;
use super::policy::{ClientSpec, Policy};
use super::{Action, Deadline, TokenLedger};
use crate::ids::{ClientId, ProcessId};
use crate::limit_bucket::{Depth, LimitBucket};
use crate::share::Share;
use std::collections::BTreeMap;

/// What each of two processes gets of a time in which the GPU alternates between them by the default time slice: of 2048 µs
/// and a switch of 230 µs (docs/reference/gpu.md).
const ALTERNATING: Share = match Share::from_ppm(450_000) {
    Some(share) => share,
    None => Share::ZERO,
};

/// A burst beside a process with the same slices ends within a time slice: of its last slice of 2048 µs it uses half on average. So the
/// latency-critical client has this much less than its part [`ALTERNATING`] of the burst, and the other this much more.
const LAST_SLICE_NS: u64 = 460_000;
/// The part of the time in which hold kernels may lead for the sake of others: as much as the hook lets them.
const LEADING_PART: u64 = 10;

/// Why a latency-critical client is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// It has used up its limit.
    Limit,
    /// It has used more than its request, and another client lags.
    Lag,
}

/// One latency-critical client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// Earns at the rate of the request: overdrawn while the client is beyond its request.
    pub(super) request: LimitBucket,
    pub(super) delayed: Option<Cause>,
    pub(super) charged_at: u64,
    /// Until when the part of the time was taken that hold kernels may lead for others.
    leads_until: u64,
    /// It is in a gang whose window was open at the last check.
    pub(super) in_window: bool,
}

/// All latency-critical clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CriticalClients {
    pub(super) entries: BTreeMap<ClientId, Entry>,
    /// Processes that requested an unlimited grant and do not hold one, with the time of the request.
    pub(super) waiting: BTreeMap<ProcessId, u64>,
    /// When to check again whether a client is to be delayed or resumed.
    pub(super) check_at: Option<u64>,
}

impl CriticalClients {
    /// A client becomes latency-critical, or its specification changes.
    pub(super) fn set(&mut self, client: ClientId, spec: &ClientSpec, policy: &Policy, now: u64) {
        let depth = Depth { idle_ns: policy.critical_burst_ns, waiting_ns: 0 };
        let new = || Entry {
            request: LimitBucket::new(spec.request, depth, now),
            delayed: None,
            charged_at: now,
            leads_until: now,
            in_window: false,
        };
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

    /// A process no longer waits for an unlimited grant.
    pub(super) fn no_longer_waits(&mut self, process: ProcessId) {
        self.waiting.remove(&process);
    }
}

impl TokenLedger {
    /// From now on hardware-scheduled best-effort processes have the driver's default slices beside latency-critical ones, or short ones.
    pub const fn set_default_slices(&mut self, default_slices: bool) {
        self.default_slices = default_slices;
    }

    /// Charges a client with an unlimited grant for `used_ns` of GPU time (at most the span) between `from` and `to`.
    ///
    /// Grants of other clients that ran in this span are not charged for that time. If work of a token-scheduled grant
    /// ran beside it, or that of a hardware-scheduled process with the default slice, the GPU alternated between both by
    /// time slice: each is charged 0.45 of the time.
    pub fn charge_unlimited(&mut self, client: ClientId, from: u64, to: u64, used_ns: u64) {
        let to = self.at(to);
        let own = self.preempt_grants(from, to, used_ns);
        let Some(entry) = self.clients.get_mut(&client) else { return };
        entry.charged_ns = entry.charged_ns.saturating_add(own);
        entry.held_ns = entry.held_ns.saturating_add(own);
        self.count_to_limit(client, from, to, own);
    }

    /// Counts `held_ns` in which hold kernels of a client kept the GPU between `from` and `to`. No client is charged for that time.
    /// It counts towards the client's limit and request, because otherwise a client could report holds so that others are charged less. Up
    /// to a tenth of the client's time does not count while they are asked to lead for the sake of a best-effort client (`leads`).
    pub fn count_holds(&mut self, client: ClientId, from: u64, to: u64, held_ns: u64, leads: bool) {
        let to = self.at(to);
        let own = self.preempt_grants(from, to, held_ns);
        let for_others = match self.critical.entries.get_mut(&client).filter(|_| leads) {
            // However many processes it has.
            Some(entry) => {
                let since = from.max(entry.leads_until);
                entry.leads_until = entry.leads_until.max(to);
                to.saturating_sub(since) / LEADING_PART
            }
            None => 0,
        };
        let counted = own.saturating_sub(for_others);
        if counted > 0 {
            self.count_to_limit(client, from, to, counted);
        }
    }

    /// A latency-critical client used the GPU for `used_ns` between `from` and `to`: other clients' grants are not charged for that.
    /// Returns the client's part of that time.
    fn preempt_grants(&mut self, from: u64, to: u64, used_ns: u64) -> u64 {
        let span = to.saturating_sub(from);
        let used = used_ns.min(span);
        let mut own = used;
        // Those with which it alternates share what they have of that time.
        let alternates = |grant: &&Grant| !grant.is_preempted(self.default_slices);
        let alternating = self.grants.iter().filter(alternates).count().max(1) as u64;
        for grant in &mut self.grants {
            let overlap = to.saturating_sub(from.max(grant.start));
            let beside = Share::ratio(overlap, span).of(used);
            if grant.is_preempted(self.default_slices) {
                grant.preempted_ns = grant.preempted_ns.saturating_add(beside);
            } else {
                let beside = beside / alternating;
                let part = ALTERNATING.of(beside);
                // The holder is credited for at most half of that, so that short bursts are charged too.
                let unused = self.unused_slices_ns.min(part / 2);
                self.unused_slices_ns -= unused;
                grant.preempted_ns =
                    grant.preempted_ns.saturating_add((beside - part).saturating_sub(unused));
                own = own.saturating_sub(beside - part + unused);
            }
        }
        own
    }

    /// Counts GPU time towards a client's limit, and towards its request.
    fn count_to_limit(&mut self, client: ClientId, from: u64, to: u64, own: u64) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        entry.limit.charge(from, to, own);
        if let Some(critical) = self.critical.entries.get_mut(&client) {
            critical.request.charge(from, to, own);
            critical.charged_at = if own > 0 { to } else { critical.charged_at };
            if critical.delayed.is_none() && entry.limit.is_overdrawn(to) {
                self.critical.check_at = Some(to);
            }
        }
    }

    /// Latency-critical work of `used_ns` began this many times: the context switches are charged to no client. They count
    /// for at most as much as was used, because the client pays for that.
    pub fn count_bursts(&mut self, bursts: u64, used_ns: u64) {
        let lost = bursts.saturating_mul(self.policy.burst_switch_ns).min(used_ns);
        let default_slices = self.default_slices;
        for grant in &mut self.grants {
            if !grant.is_running() || !grant.is_preempted(default_slices) {
                continue;
            }
            grant.preempted_ns = grant.preempted_ns.saturating_add(lost);
        }
        let alternates = |grant: &Grant| !grant.is_preempted(default_slices);
        let unused_ns = self.unused_slices_ns.saturating_add(bursts.saturating_mul(LAST_SLICE_NS));
        // A process can report any number of bursts: what is kept is bounded by what was used.
        let most_ns = ALTERNATING.of(used_ns).max(LAST_SLICE_NS);
        self.unused_slices_ns = if self.grants.iter().any(alternates) { unused_ns.min(most_ns) } else { 0 };
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

    /// The processes that hold an unlimited grant or wait for one.
    #[must_use]
    pub fn critical_processes(&self) -> Vec<ProcessId> {
        let clients = self.critical.entries.keys().filter_map(|id| self.clients.get(id));
        clients.flat_map(|client| client.processes.iter().copied()).collect()
    }

    /// Whether a latency-critical client has used no more than its request and is not delayed. What it may use at once beyond its
    /// request, [`Policy::critical_burst_ns`], counts as within.
    #[must_use]
    pub fn is_within_request(&self, client: ClientId, now: u64) -> bool {
        let now = now.max(self.now);
        let entry = self.critical.entries.get(&client);
        entry.is_some_and(|entry| entry.delayed.is_none() && !entry.request.is_overdrawn(now))
    }

    /// GPU time of a client's running grant that is not charged yet.
    pub(super) fn running_ns(&self, client: ClientId, now: u64) -> u64 {
        let grant = self.grants.iter().find(|grant| grant.client == client);
        grant.map_or(0, |grant| grant.running_ns(now))
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
