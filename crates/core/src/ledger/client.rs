//! The ledger's state of one client.

use super::debt::Debt;
use super::lag::Lag;
use super::policy::{ClientSpec, Policy};
use super::ready_queue::Place;
use super::virtual_time::VirtualNs;
use crate::ids::ProcessId;
use crate::limit_bucket::{Depth, LimitBucket};
use crate::quota::AdaptiveQuota;
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) spec: ClientSpec,
    pub(super) processes: BTreeSet<ProcessId>,
    pub(super) quota: AdaptiveQuota,
    pub(super) limit: LimitBucket,
    /// Virtual time at which its next grant begins.
    pub(super) start: VirtualNs,
    /// What it owes the others; nothing unless it is one of the ledger's `indebted`.
    pub(super) debt: Debt,
    /// It returned its last grant within [`Policy::short_grant_ns`]; one that alternates after less than half a quantum of GPU time.
    pub(super) has_short_bursts: bool,
    /// See [`TokenLedger::set_alternates`](super::TokenLedger::set_alternates).
    pub(super) alternates: bool,
    /// Where it waits; `None` if it does not wait, holds a grant or is latency-critical.
    pub(super) place: Option<Place>,
    /// Since when it neither waits nor holds a grant; `None` while it is active. Unused for latency-critical clients.
    pub(super) idle_since: Option<u64>,
    /// Its specification is part of the demand.
    pub(super) in_demand: bool,
    pub(super) lag: Lag,
    /// One of its channel groups is enabled.
    pub(super) running: bool,
    /// See [`TokenLedger::set_suspended`](super::TokenLedger::set_suspended).
    pub(super) suspended: bool,
    /// GPU time charged, ns.
    pub(super) charged_ns: u64,
    /// Time held, ns.
    pub(super) held_ns: u64,
    /// Time for which its processes waited because it was delayed, ns.
    pub(super) delayed_ns: u64,
}

impl Client {
    pub(super) fn new(spec: ClientSpec, policy: &Policy, now: u64) -> Self {
        Self {
            spec,
            processes: BTreeSet::new(),
            quota: AdaptiveQuota::new(&policy.quota),
            limit: limit_bucket(spec, policy, now),
            start: 0,
            debt: Debt::default(),
            has_short_bursts: false,
            alternates: false,
            place: None,
            idle_since: Some(now),
            in_demand: false,
            lag: Lag::default(),
            running: false,
            suspended: false,
            charged_ns: 0,
            held_ns: 0,
            delayed_ns: 0,
        }
    }

    /// Changes the specification from `now` on. After a change from or to latency-critical the limit begins anew.
    pub(super) fn set_spec(&mut self, spec: ClientSpec, policy: &Policy, now: u64) {
        if self.spec.class.is_latency_critical() == spec.class.is_latency_critical() {
            self.limit.set_rate(spec.limit, now);
        } else {
            self.limit = limit_bucket(spec, policy, now);
        }
        self.spec = spec;
    }

    pub(super) fn is_critical(&self) -> bool {
        self.spec.class.is_latency_critical()
    }
}

/// The bucket of a client's limit. A latency-critical one can save up a request's burst and nothing more.
fn limit_bucket(spec: ClientSpec, policy: &Policy, now: u64) -> LimitBucket {
    let depth = if spec.class.is_latency_critical() {
        Depth { idle_ns: policy.critical_burst_ns, waiting_ns: 0 }
    } else {
        Depth { idle_ns: policy.limit_depth_ns, waiting_ns: policy.limit_wait_ns }
    };
    LimitBucket::new(spec.limit, depth, now)
}
