//! What the token policy "quota" is set to.

use crate::quota::QuotaPolicy;
use crate::share::Share;

/// How a client is let run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Takes turns by token.
    #[default]
    BestEffort,
    /// Holds a standing grant from its first request on and never waits.
    LatencyCritical,
}

/// What a client was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientSpec {
    /// Guaranteed share of GPU time. Zero: the client gets what the others leave.
    pub request: Share,
    /// Largest share of GPU time; above zero and at least the request.
    pub limit: Share,
    /// Turns or standing grant.
    pub class: Class,
    /// Among best-effort clients that have their request, GPU time goes in proportion to weight × request, where a
    /// request below 1 % counts as 1 %. Usually 1; 0 counts as 1.
    pub weight: u32,
}

/// Where the GPU time that a grant is charged with comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UsageSource {
    /// GPU time that processes measured with events and reported on returning the token: the sum over the client's
    /// processes, at most the time the grant lasted. A process that did not report is charged the time it held.
    #[default]
    Events,
    /// Time for which an enforcer let the client's channels run, told with [`TokenLedger::ran`](super::TokenLedger::ran);
    /// what processes report is ignored, because event time under slices contains other tenants' slices.
    Turn,
}

/// Settings of the token ledger; all times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Span over which requests are kept. Default 10 s.
    pub window_ns: u64,
    /// Length of grants.
    pub quota: QuotaPolicy,
    /// Best-effort clients that may hold grants at once, at least 1. One by token; more under slices or MPS.
    pub capacity: usize,
    /// How long a process that has not returned its grant is waited for after the deadline. Default 2 s.
    pub return_timeout_ns: u64,
    /// How long a client that returned at its deadline may take to ask again before its turn passes on. Default 200 µs.
    /// Only waited for when it would be chosen anyway, so that a client can have two grants running.
    pub linger_ns: u64,
    /// The same for peers whose grants end by timer, which notice the end of a grant later. Default 2 ms.
    pub timer_linger_ns: u64,
    /// A pause up to this long counts as activity: all the credit that idling earns. Default 100 ms.
    pub idle_credit_ns: u64,
    /// A process joins its client's running grant when at least this is left; else it waits for the next. Default 1 ms.
    pub join_min_ns: u64,
    /// GPU time that a limited client can save up while idle. Default 10 ms.
    pub limit_depth_ns: u64,
    /// A limited client that waits for others goes on earning for so long. Default 1 s.
    pub limit_wait_ns: u64,
    /// A grant that nobody else waits for is prolonged by the base quota when no more than this is left of it, so that a
    /// program alone on the GPU need not drain. At most half of the base quota counts. 0: never. Only for clients with limit 1 that return their grants. Default
    /// 5 ms.
    pub renew_ahead_ns: u64,
    /// A grant lasts no longer than this, however often it is prolonged: what it used is charged when it ends. Default 2 s.
    pub renew_total_ns: u64,
    /// What is charged.
    pub usage: UsageSource,
    /// Length of grants of clients whose processes are all steered. A hand-over costs about a millisecond of driver time, so it
    /// does not adapt to bursts. A limited client gets limit × `limit_period_ns` if that is less. Default 50 ms.
    pub turn_ns: u64,
    /// No such grant is shorter. Default 30 ms.
    pub min_turn_ns: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            window_ns: 10_000_000_000,
            quota: QuotaPolicy::default(),
            capacity: 1,
            return_timeout_ns: 2_000_000_000,
            linger_ns: 200_000,
            timer_linger_ns: 2_000_000,
            idle_credit_ns: 100_000_000,
            join_min_ns: 1_000_000,
            limit_depth_ns: 10_000_000,
            limit_wait_ns: 1_000_000_000,
            renew_ahead_ns: 5_000_000,
            renew_total_ns: 2_000_000_000,
            usage: UsageSource::Events,
            turn_ns: 50_000_000,
            min_turn_ns: 30_000_000,
        }
    }
}
