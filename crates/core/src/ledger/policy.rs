//! Settings of the token ledger and its clients.

use super::TokenLedger;
use crate::quota::QuotaPolicy;
use crate::share::Share;
use sluice_units::Class;

/// Specification of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientSpec {
    /// Guaranteed share of GPU time. Zero: the client gets time that the others leave.
    pub request: Share,
    /// Largest share of GPU time; above zero and at least the request.
    pub limit: Share,
    /// Its level, and whether it receives grants with deadlines or an unlimited grant.
    pub class: Class,
}

/// Settings of the token ledger. All times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The most GPU time by which a client may be ahead of its entitled share or behind it when it competes for the next
    /// grant. More is forgotten, so that no disturbance has a lasting effect. Longer than a grant of 100 ms with its drain. Default 250 ms.
    pub lag_ns: u64,
    /// Length of grants.
    pub quota: QuotaPolicy,
    /// Best-effort clients that may hold grants at once, at least 1. One by token; more under slices or MPS.
    pub capacity: usize,
    /// How long after the deadline a grant that was not returned is revoked. Default 2 s.
    pub return_timeout_ns: u64,
    /// How long a client that returned at its deadline may take to request again before another one is chosen. Default
    /// 200 µs. The ledger waits only if it would choose that client, so that a client can hold two grants in a row.
    pub linger_ns: u64,
    /// The same for peers whose grants end by timer, which notice the end of a grant later. Default 2 ms.
    pub timer_linger_ns: u64,
    /// After a pause up to this long a client is still behind as far as it was. After a longer one it is not. Default
    /// 100 ms.
    pub idle_credit_ns: u64,
    /// A process joins its client's running grant if at least this is left; otherwise it waits for the next. Default 1
    /// ms.
    pub join_min_ns: u64,
    /// GPU time that a limited client can save up while idle. Default 10 ms.
    pub limit_depth_ns: u64,
    /// How long a limited client that waits for others continues to earn GPU time. Default 1 s.
    pub limit_wait_ns: u64,
    /// A grant for which no other client waits is extended by the base quota when no more than this is left of it, so
    /// that a program alone on the GPU need not drain. At most half of the base quota counts. 0: never. Only for
    /// clients with limit 1 that return their grants. Default 5 ms.
    pub extend_ahead_ns: u64,
    /// The longest that a grant lasts by its extensions. It is charged when it ends. Default 2 s. It lasts longer only for processes of its
    /// client that wait meanwhile.
    pub longest_extended_ns: u64,
    /// A client that returned its last grant within this time is granted beside the holder, for as long. Default 10 ms: a kernel of
    /// 0.1 ms takes that long if the GPU alternates between two programs by default slices of 2 ms. 0: never.
    pub short_grant_ns: u64,
    /// Quantum: length of grants of clients whose processes are all hardware-scheduled. A hand-off costs about 1 ms of
    /// driver time, so the quantum does not adapt to bursts. A limited client gets limit × `limit_period_ns` if that is
    /// less. Default 50 ms.
    pub quantum_ns: u64,
    /// The shortest quantum. Default 30 ms.
    pub min_quantum_ns: u64,
    /// GPU time that a latency-critical client may use above its limit or its request before it can be delayed: one
    /// request's burst. Default 80 ms, so that a limit holds to 0.8 % over 10 s.
    pub critical_burst_ns: u64,
    /// What the GPU loses when a latency-critical burst interrupts a hardware-scheduled process: two context switches.
    /// Default 365 µs, measured (docs/reference/gpu.md section 2).
    pub burst_switch_ns: u64,
    /// A latency-critical client beyond its request is delayed while another client is further than this behind its own
    /// request. GPU time; default 100 ms.
    pub critical_lag_ns: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lag_ns: 250_000_000,
            quota: QuotaPolicy::default(),
            capacity: 1,
            return_timeout_ns: 2_000_000_000,
            linger_ns: 200_000,
            timer_linger_ns: 2_000_000,
            idle_credit_ns: 100_000_000,
            join_min_ns: 1_000_000,
            limit_depth_ns: 10_000_000,
            limit_wait_ns: 1_000_000_000,
            extend_ahead_ns: 5_000_000,
            longest_extended_ns: 2_000_000_000,
            short_grant_ns: 10_000_000,
            quantum_ns: 50_000_000,
            min_quantum_ns: 30_000_000,
            critical_burst_ns: 80_000_000,
            burst_switch_ns: 365_000,
            critical_lag_ns: 100_000_000,
        }
    }
}

impl TokenLedger {
    /// Replaces the settings. Running grants keep their deadlines; decisions from here on follow the new settings.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        // The entries contain the end of a short pause.
        let leaving = std::mem::take(&mut self.leaving).into_iter().filter_map(|(_, id)| {
            let idle_since = self.clients.get(&id)?.idle_since?;
            Some((idle_since.saturating_add(policy.idle_credit_ns), id))
        });
        self.leaving = leaving.collect();
    }
}
