//! What the policy file may contain, and what is refused with the reason.

use crate::config::Config;
use std::time::Duration;

/// A field of the configuration.
pub(super) type Field<T> = fn(&mut Config) -> &mut T;

/// A setting of the policy file.
pub(super) struct Setting {
    /// Its keys, from the outermost to its own.
    pub(super) path: &'static [&'static str],
    /// The name of its field in mistakes of a configuration.
    pub(super) field: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

/// What the value of a setting is.
pub(super) enum Kind {
    /// A number of milliseconds in this range.
    Milliseconds(f64, f64, Field<Duration>),
    /// A whole number of microseconds in this range.
    Microseconds(f64, f64, Field<Duration>),
    /// A whole number in this range.
    Count(f64, f64, Field<usize>),
}

/// The longest span that requests may be kept over, and thus the longest grant, milliseconds.
const HOUR_MS: f64 = 3_600_000.0;

const TIMESLICE: &str = "timeslice";
const SCHEDULING: &str = "scheduling";
const ROOT: &str = "preemption";

/// All settings, in the order of the documentation.
pub(super) static SETTINGS: [Setting; 11] = [
    Setting {
        path: &[ROOT, TIMESLICE, "be_task_us"],
        field: "best_effort_slice",
        kind: Kind::Microseconds(1.0, 2_048.0, |config| &mut config.best_effort_slice),
        help: "Time slice of best-effort channel groups beside a latency-critical process that works",
    },
    Setting {
        path: &[ROOT, TIMESLICE, "lc_task_us"],
        field: "critical_slice",
        kind: Kind::Microseconds(1_000.0, 1_000_000.0, |config| &mut config.critical_slice),
        help: "Time slice of latency-critical channel groups while at most one of them has work",
    },
    Setting {
        path: &[ROOT, TIMESLICE, "lc_shared_us"],
        field: "shared_critical_slice",
        kind: Kind::Microseconds(1_000.0, 1_000_000.0, |config| &mut config.shared_critical_slice),
        help: "Time slice of latency-critical channel groups while several of them have work",
    },
    Setting {
        path: &[ROOT, SCHEDULING, "quantum_ms"],
        field: "quantum",
        kind: Kind::Milliseconds(30.0, 100.0, |config| &mut config.quantum),
        help: "Length of a quantum where channel groups are controlled; at least 12.5 ms times the GPUs of the node",
    },
    Setting {
        path: &[ROOT, SCHEDULING, "first_grant_ms"],
        field: "base_quota",
        kind: Kind::Milliseconds(1.0, HOUR_MS, |config| &mut config.base_quota),
        help: "Length of grants to clients of which no burst is known, between the shortest and the longest grant",
    },
    Setting {
        path: &[ROOT, SCHEDULING, "shortest_grant_ms"],
        field: "min_quota",
        kind: Kind::Milliseconds(1.0, HOUR_MS, |config| &mut config.min_quota),
        help: "Length of the shortest grant, at most the longest one",
    },
    Setting {
        path: &[ROOT, SCHEDULING, "longest_grant_ms"],
        field: "max_quota",
        kind: Kind::Milliseconds(1.0, HOUR_MS, |config| &mut config.max_quota),
        help: "Length of the longest grant, at most the manager's --window-ms",
    },
    Setting {
        path: &[ROOT, SCHEDULING, "limit_period_ms"],
        field: "limit_period",
        kind: Kind::Milliseconds(1.0, HOUR_MS, |config| &mut config.limit_period),
        help: "A client with limit L has grants of at most L times this, so that its pauses stay below it; at most --window-ms",
    },
    Setting {
        path: &[ROOT, SCHEDULING, "grants_at_once"],
        field: "capacity",
        kind: Kind::Count(1.0, 64.0, |config| &mut config.capacity),
        help: "Best-effort clients that may hold grants at the same time",
    },
    Setting {
        path: &[ROOT, SCHEDULING, "return_timeout_ms"],
        field: "return_timeout",
        kind: Kind::Milliseconds(0.0, 60_000.0, |config| &mut config.return_timeout),
        help: "Time after the deadline of a grant after which it is revoked if it was not returned",
    },
    Setting {
        path: &[ROOT, SCHEDULING, "short_pause_ms"],
        field: "idle_credit",
        kind: Kind::Milliseconds(0.0, HOUR_MS, |config| &mut config.idle_credit),
        help: "Longest pause after which a client still counts as active, at most --window-ms",
    },
];

/// Keys that other configurations of GPreempt have, with the reason why they are refused here.
pub(super) static REFUSED: [(&[&str], &str); 9] = [
    (
        &[ROOT, "enabled"],
        "a manager that runs cannot give up channel groups: its flag --controls, or nodeAgent.controls of the chart, decides at its start",
    ),
    (
        &[ROOT, TIMESLICE, "min_timeslice_us"],
        "there are three slices, each with a range of its own; no other slice is ever set",
    ),
    (
        &[ROOT, TIMESLICE, "max_timeslice_us"],
        "there are three slices, each with a range of its own; no other slice is ever set",
    ),
    (
        &[ROOT, "pre_preemption"],
        "each process learns from its own measurements when a hold kernel starts and for how long it stays, and drops hold kernels that \
         do not pay; sluice.dev/slo gives it a goal",
    ),
    (
        &[ROOT, "resources"],
        "contexts count towards the memory of their client; nodeAgent.seatsPerGpu of the chart bounds the pods of a GPU",
    ),
    (
        &[ROOT, SCHEDULING, "policy"],
        "levels, deadlines within level 0 and fair shares within the others all apply at once; sluice sim run compares other policies",
    ),
    (
        &[ROOT, SCHEDULING, "fair_share_enabled"],
        "requests are guaranteed by fair shares, so these cannot be switched off",
    ),
    (
        &[ROOT, "priorities"],
        "the four levels are fixed and pods choose theirs by sluice.dev/priority; two enabled groups with slices below 1 ms stop the GPU, \
         so levels have no slices of their own",
    ),
    (
        &[ROOT, "monitoring"],
        "Prometheus reads metrics at its own interval, from the address that the flag --metrics or --http gives at the start",
    ),
];
