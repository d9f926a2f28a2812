//! The ledger's state of one client: specification, windows, limit bucket and level.

use super::policy::{ClientSpec, Policy};
use crate::limit_bucket::{Depth, LimitBucket};
use crate::quota::AdaptiveQuota;
use crate::share::{Share, WHOLE_PPM};
use crate::window::SlidingSum;

/// Smallest weight in the division of unrequested time: a client without a request counts like one with 1 %.
const LEAST_WEIGHT_PPM: u32 = WHOLE_PPM / 100;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) spec: ClientSpec,
    pub(super) quota: AdaptiveQuota,
    bucket: LimitBucket,
    /// GPU time charged.
    used: SlidingSum,
    /// Time in which the GPU was at its disposal, used or not.
    held: SlidingSum,
    /// Time in which it waited or held a grant. Its request is a share of this.
    active: SlidingSum,
    /// Up to when `active` has been added up; `None` while idle beyond the credit.
    active_until: Option<u64>,
    /// Since when it neither waits nor holds a grant; `None` while it does either.
    idle_since: Option<u64>,
    /// GPU time charged per unit of weight. Among clients at or above their request, the lowest level goes first.
    pub(super) level: u64,
    /// Its level must be raised to the others' before it competes again: it was idle or waited for its limit.
    behind: bool,
    /// Until when the ledger waits for its next request after it returned a grant at the deadline.
    pub(super) lingers_until: Option<u64>,
    /// One of its channel groups is enabled.
    pub(super) running: bool,
    pub(super) charged_ns: u64,
    pub(super) held_ns: u64,
    added: u64,
}

impl Client {
    pub(super) fn new(spec: ClientSpec, policy: &Policy, now: u64) -> Self {
        let depth = Depth { idle_ns: policy.limit_depth_ns, waiting_ns: policy.limit_wait_ns };
        Self {
            spec,
            quota: AdaptiveQuota::new(&policy.quota),
            bucket: LimitBucket::new(spec.limit, depth, now),
            used: SlidingSum::new(policy.window_ns),
            held: SlidingSum::new(policy.window_ns),
            active: SlidingSum::new(policy.window_ns),
            active_until: None,
            idle_since: Some(now),
            level: 0,
            behind: true,
            lingers_until: None,
            running: false,
            charged_ns: 0,
            held_ns: 0,
            added: now,
        }
    }

    pub(super) fn set_spec(&mut self, spec: ClientSpec, now: u64) {
        self.bucket.set_rate(spec.limit, now);
        self.spec = spec;
    }

    pub(super) fn is_best_effort(&self) -> bool {
        !self.spec.class.is_latency_critical()
    }

    /// It requests the GPU from `now` on. A pause within the credit counts as activity, a longer one does not count.
    pub(super) fn becomes_active(&mut self, now: u64, policy: &Policy) {
        self.lingers_until = None;
        let Some(idle_since) = self.idle_since.take() else { return };
        let short = self.active_until.is_some() && now.saturating_sub(idle_since) <= policy.idle_credit_ns;
        if !short {
            if self.active_until.is_some() {
                self.count_activity(idle_since.saturating_add(policy.idle_credit_ns));
            }
            self.active_until = Some(now);
            self.behind = true;
            self.bucket.was_idle(now);
        }
    }

    /// It neither waits nor holds a grant from `now` on.
    pub(super) fn becomes_idle(&mut self, now: u64) {
        if self.idle_since.is_none() {
            self.count_activity(now);
            self.idle_since = Some(now);
        }
    }

    pub(super) fn count_activity(&mut self, now: u64) {
        if let Some(until) = self.active_until
            && now > until
        {
            self.active.add(until, now, now - until);
            self.active_until = Some(now);
        }
    }

    /// Charges `used` for a grant that lasted from `from` to `to`, during which `held` of the GPU was at its disposal.
    pub(super) fn charge(&mut self, from: u64, to: u64, used: u64, held: u64) {
        self.used.add(from, to, used);
        self.held.add(from, to, held);
        self.bucket.charge(from, to, used);
        let per_weight = u128::from(used) * u128::from(WHOLE_PPM) / u128::from(self.weight());
        self.level = self.level.saturating_add(u64::try_from(per_weight).unwrap_or(u64::MAX));
        self.charged_ns = self.charged_ns.saturating_add(used);
        self.held_ns = self.held_ns.saturating_add(held);
    }

    /// When its limit allows a grant again (at or before `now`: at once). A client that has to wait loses its level.
    pub(super) fn ready_at(&mut self, now: u64) -> Option<u64> {
        let ready = self.bucket.ready_at(now);
        if ready != Some(now) {
            self.behind = true;
        }
        ready
    }

    pub(super) fn peek_ready_at(&self, now: u64) -> Option<u64> {
        self.bucket.ready_at(now)
    }

    /// Raises its level to `level` if it was idle or waited for its limit.
    pub(super) fn catch_up(&mut self, level: u64) {
        if std::mem::take(&mut self.behind) {
            self.level = self.level.max(level);
        }
    }

    /// GPU time that its request entitles it to, and the time that counts against it.
    ///
    /// Time held without use counts, too. Otherwise a client that holds long and uses little would stay below its request
    /// for ever and starve the others.
    pub(super) fn entitlement(&self, now: u64) -> (u64, u64) {
        let entitled = self.spec.request.of(self.active.total(now));
        (entitled, self.used.total(now).max(self.held.total(now)))
    }

    /// Share of GPU time over the window, or since the client was added if that is shorter. A grant that has been
    /// `running` for this long counts as fully used until it is charged.
    pub(super) fn share(&self, now: u64, window_ns: u64, running: u64) -> Share {
        let used = self.used.total(now).saturating_add(running);
        Share::ratio(used, window_ns.min(now.saturating_sub(self.added)))
    }

    fn weight(&self) -> u64 {
        u64::from(self.spec.request.ppm().max(LEAST_WEIGHT_PPM))
    }
}
