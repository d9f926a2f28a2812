//! The series of one client.

use super::Series;
use super::latencies::LatencySeries;
use crate::definition::ClientKey;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
};
use sluice_core::processes::{ObstacleKind, ViolationKind};
use std::collections::HashMap;
use std::sync::Arc;

/// Bounds of the waiting-time histogram, seconds: hand-offs take microseconds, quanta last milliseconds.
const WAIT_BUCKETS: [f64; 14] =
    [0.000_01, 0.000_05, 0.000_2, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0];

/// Grants and GPU time.
pub(crate) struct GrantSeries {
    pub(crate) wait_seconds: Histogram,
    pub(crate) held_seconds: Counter,
    pub(crate) gpu_seconds: Counter,
    pub(crate) hold_seconds: Counter,
    pub(crate) delayed_seconds: Counter,
    pub(crate) postponed_seconds: Counter,
    pub(crate) overrun_seconds: Counter,
    pub(crate) hold_and_wait_seconds: Counter,
    pub(crate) not_returned: IntCounter,
    pub(crate) granted: IntCounter,
    pub(crate) share: Gauge,
    /// What the client is promised.
    pub(crate) quota: Gauge,
    /// The most that it may use.
    pub(crate) limit: Gauge,
}

/// Memory.
pub(crate) struct MemorySeries {
    pub(crate) used: IntGauge,
    pub(crate) overhead: IntGauge,
    pub(crate) limit: IntGauge,
    pub(crate) denied: IntCounter,
    /// Movable memory on the GPU, and on the host.
    pub(crate) resident: IntGauge,
    pub(crate) swapped: IntGauge,
    pub(crate) moved: IntCounter,
    pub(crate) waited_seconds: Counter,
}

/// The time slices that the client's latency-critical processes want for best-effort clients; [`SLICE_MODES`] gives the order.
pub(crate) struct SliceSeries {
    pub(crate) wanted: [IntGauge; 2],
    pub(crate) burst_seconds: [Gauge; 2],
}

/// The driver's default slices, or short ones.
const SLICE_MODES: [&str; 2] = ["short", "default"];

/// All series of one client.
pub(crate) struct ClientMetrics {
    pub(crate) grants: GrantSeries,
    pub(crate) memory: MemorySeries,
    pub(crate) processes: IntGauge,
    pub(crate) slices: SliceSeries,
    pub(crate) latencies: LatencySeries,
    /// Processes without the hook that are scheduled.
    pub(crate) unhooked: IntGauge,
    /// Processes without the hook that are not scheduled, by [`ObstacleKind::index`].
    pub(crate) unscheduled: [IntGauge; ObstacleKind::LABELS.len()],
    /// Violations by [`ViolationKind::index`].
    pub(crate) violations: [IntCounter; ViolationKind::LABELS.len()],
    /// Processes that are stopped because of violations.
    pub(crate) stopped: IntGauge,
    /// It is suspended.
    pub(crate) suspended: IntGauge,
    /// Energy beyond that of an idle GPU.
    pub(crate) energy_joules: Counter,
    collectors: Vec<Box<dyn Collector>>,
}

/// One metric of a client. Each is registered by itself: the registry identifies a collector by the sum of its metrics' hashes, and the
/// sums of two clients whose names differ in the last character are often equal.
pub(super) struct ClientCollector {
    client: Arc<ClientMetrics>,
    index: usize,
}

impl ClientCollector {
    /// The collectors of all metrics of a client.
    pub(super) fn all(client: &Arc<ClientMetrics>) -> impl Iterator<Item = Box<dyn Collector>> {
        let collector = |index| Self { client: Arc::clone(client), index };
        (0..client.collectors.len()).map(move |index| Box::new(collector(index)) as _)
    }

    fn metric(&self) -> Option<&dyn Collector> {
        self.client.collectors.get(self.index).map(|metric| &**metric)
    }
}

impl Collector for ClientCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.metric().map(Collector::desc).unwrap_or_default()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.metric().map(Collector::collect).unwrap_or_default()
    }
}

impl GrantSeries {
    fn new(series: &mut Series) -> prometheus::Result<Self> {
        let wait = "Time that requests waited for a grant, seconds";
        let wait = HistogramOpts::from(series.opts("sluice_token_wait_seconds", wait));
        let wait = Histogram::with_opts(wait.buckets(WAIT_BUCKETS.to_vec()));
        Ok(Self {
            wait_seconds: series.keep(wait)?,
            held_seconds: series.amount("sluice_token_held_seconds_total", "Wall time that grants were held, seconds")?,
            gpu_seconds: series.amount("sluice_gpu_seconds_total", "GPU time charged, seconds")?,
            hold_seconds: series.amount(
                "sluice_hold_seconds_total",
                "Time in which hold kernels kept the GPU without work of their program, not charged, seconds",
            )?,
            delayed_seconds: series.amount(
                "sluice_delayed_seconds_total",
                "Time that requests of a latency-critical client waited because it had used its limit, or more than its request while another client lagged, seconds",
            )?,
            postponed_seconds: series.amount(
                "sluice_postponed_seconds_total",
                "Time that launches of a latency-critical client waited for work of one with an earlier deadline, seconds",
            )?,
            overrun_seconds: series.amount(
                "sluice_token_overrun_seconds_total",
                "Time that grants were held past their deadline until their GPU work had drained, seconds",
            )?,
            hold_and_wait_seconds: series.amount(
                "sluice_hold_and_wait_seconds_total",
                "Time in which the client held the GPU and executed nothing while another client waited, seconds",
            )?,
            not_returned: series.counter(
                "sluice_grants_not_returned_total",
                "Grants revoked because they were not returned within the timeout",
            )?,
            granted: series.counter("sluice_grants_total", "Requests for grants that were granted")?,
            share: series.ratio("sluice_share", "Share of GPU time over the window, 0 to 1")?,
            quota: series.ratio("sluice_quota_ratio", "Share of GPU time that the client is guaranteed, 0 to 1")?,
            limit: series.ratio("sluice_limit_ratio", "Largest share of GPU time that the client may use, 0 to 1")?,
        })
    }
}

impl SliceSeries {
    fn new(series: &mut Series) -> prometheus::Result<Self> {
        let wanted = "Latency-critical processes by the time slices that they want for best-effort clients";
        let wanted = IntGaugeVec::new(series.opts("sluice_client_slices", wanted), &["mode"]);
        let seconds =
            "Median time of a burst beside time slices of this kind in the last test of a process, seconds";
        let seconds = GaugeVec::new(series.opts("sluice_client_burst_seconds", seconds), &["mode"]);
        Ok(Self {
            wanted: series.by_value(wanted, SLICE_MODES)?,
            burst_seconds: series.by_value(seconds, SLICE_MODES)?,
        })
    }
}

impl ClientMetrics {
    pub(super) fn new(client: &ClientKey) -> prometheus::Result<Self> {
        let mut series = Series { labels: labels(client), ..Series::default() };
        let overhead = "Memory of all processes that the driver reports beyond the reserved one, bytes";
        let limit = "Memory that all processes may reserve together, bytes";
        let unhooked = "Processes without the hook that are scheduled all the same";
        let unscheduled = "Processes without the hook that are not scheduled, and attached ones that cannot be inspected, by reason";
        let unscheduled =
            IntGaugeVec::new(series.opts("sluice_unsteered_processes", unscheduled), &["reason"]);
        let stopped = "Processes that are stopped because of violations";
        let suspended = "1 while the client is suspended and gets no grants, 0 while its memory still leaves";
        let violations = "Violations of the client's limits by its processes, by kind";
        let violations = IntCounterVec::new(series.opts("sluice_violations_total", violations), &["kind"]);
        Ok(Self {
            grants: GrantSeries::new(&mut series)?,
            memory: MemorySeries {
                used: series.gauge("sluice_memory_used_bytes", "Memory reserved by all processes, bytes")?,
                overhead: series.gauge("sluice_memory_overhead_bytes", overhead)?,
                limit: series.gauge("sluice_memory_limit_bytes", limit)?,
                denied: series.counter("sluice_memory_denied_total", "Memory reservations refused")?,
                resident: series.gauge(
                    "sluice_memory_resident_bytes",
                    "Memory on the GPU that may leave it for that of other clients, bytes",
                )?,
                swapped: series.gauge(
                    "sluice_memory_swapped_bytes",
                    "Memory that has left the GPU for that of other clients, bytes",
                )?,
                moved: series.counter(
                    "sluice_memory_moved_bytes_total",
                    "Memory that has left the GPU or returned, bytes",
                )?,
                waited_seconds: series.amount(
                    "sluice_memory_waited_seconds_total",
                    "Time in which a process waited for memory that had left the GPU, or for room, seconds",
                )?,
            },
            slices: SliceSeries::new(&mut series)?,
            latencies: LatencySeries::new(&mut series)?,
            processes: series.gauge("sluice_processes", "Processes connected to the manager")?,
            unhooked: series.gauge("sluice_adopted_processes", unhooked)?,
            unscheduled: series.by_value(unscheduled, ObstacleKind::LABELS)?,
            violations: series.by_value(violations, ViolationKind::LABELS)?,
            energy_joules: series.amount(
                "sluice_energy_joules_total",
                "Energy that the GPU drew beyond that of an idle one, attributed by execution time, joules",
            )?,
            stopped: series.gauge("sluice_stopped_processes", stopped)?,
            suspended: series.gauge("sluice_client_suspended", suspended)?,
            collectors: series.collectors,
        })
    }
}

/// The labels of a client's series. Two pods of one name may exist for a moment, so the uid is among them.
fn labels(client: &ClientKey) -> HashMap<String, String> {
    let pairs = match client {
        ClientKey::Named(name) => vec![("client", name)],
        ClientKey::Pod { uid, namespace, name } => {
            vec![("namespace", namespace), ("pod", name), ("pod_uid", uid)]
        }
    };
    pairs.into_iter().map(|(label, value)| (label.to_owned(), value.clone())).collect()
}
