//! The series of one client.

use crate::clients::ClientKey;
use crate::unhooked::scanning::ObstacleKind;
use prometheus::core::Collector;
use prometheus::{Counter, Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts};
use std::collections::HashMap;

/// Bounds of the waiting-time histogram, seconds: hand-offs take microseconds, quanta last milliseconds.
const WAIT_BUCKETS: [f64; 14] =
    [0.000_01, 0.000_05, 0.000_2, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0];

/// Grants and GPU time.
#[derive(Debug)]
pub(crate) struct GrantSeries {
    pub(crate) wait_seconds: Histogram,
    pub(crate) held_seconds: Counter,
    pub(crate) gpu_seconds: Counter,
    pub(crate) hold_seconds: Counter,
    pub(crate) overrun_seconds: Counter,
    pub(crate) not_returned: IntCounter,
    pub(crate) granted: IntCounter,
    pub(crate) share: Gauge,
}

/// Memory.
#[derive(Debug)]
pub(crate) struct MemorySeries {
    pub(crate) used: IntGauge,
    pub(crate) limit: IntGauge,
    pub(crate) denied: IntCounter,
}

/// All series of one client.
#[derive(Debug)]
pub(crate) struct ClientMetrics {
    pub(crate) grants: GrantSeries,
    pub(crate) memory: MemorySeries,
    pub(crate) processes: IntGauge,
    /// Processes without the hook that are scheduled.
    pub(crate) unhooked: IntGauge,
    /// Processes without the hook that are not scheduled, by [`ObstacleKind::index`].
    pub(crate) unscheduled: Vec<IntGauge>,
}

/// Makes collectors with the labels of one client.
struct Labels(HashMap<String, String>);

impl Labels {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_labels(self.0.clone())
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<Counter> {
        Counter::with_opts(self.opts(name, help))
    }

    fn int_counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        IntCounter::with_opts(self.opts(name, help))
    }

    fn int_gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        IntGauge::with_opts(self.opts(name, help))
    }
}

impl GrantSeries {
    fn new(labels: &Labels) -> prometheus::Result<Self> {
        let wait =
            HistogramOpts::new("sluice_token_wait_seconds", "Time that requests waited for a grant, seconds")
                .const_labels(labels.0.clone())
                .buckets(WAIT_BUCKETS.to_vec());
        Ok(Self {
            wait_seconds: Histogram::with_opts(wait)?,
            held_seconds: labels
                .counter("sluice_token_held_seconds_total", "Wall time that grants were held, seconds")?,
            gpu_seconds: labels.counter("sluice_gpu_seconds_total", "GPU time charged, seconds")?,
            hold_seconds: labels.counter(
                "sluice_hold_seconds_total",
                "GPU time of hold kernels between requests, not charged, seconds",
            )?,
            overrun_seconds: labels.counter(
                "sluice_token_overrun_seconds_total",
                "Time that grants were held past their deadline until their GPU work had drained, seconds",
            )?,
            not_returned: labels.int_counter(
                "sluice_grants_not_returned_total",
                "Grants revoked because they were not returned within the timeout",
            )?,
            granted: labels.int_counter("sluice_grants_total", "Requests for grants that were granted")?,
            share: Gauge::with_opts(
                labels.opts("sluice_share", "Share of GPU time over the window, 0 to 1"),
            )?,
        })
    }
}

impl MemorySeries {
    fn new(labels: &Labels) -> prometheus::Result<Self> {
        Ok(Self {
            used: labels.int_gauge("sluice_memory_used_bytes", "Memory reserved by all processes, bytes")?,
            limit: labels.int_gauge(
                "sluice_memory_limit_bytes",
                "Memory that all processes may reserve together, bytes",
            )?,
            denied: labels.int_counter("sluice_memory_denied_total", "Memory reservations refused")?,
        })
    }
}

impl ClientMetrics {
    pub(super) fn new(client: &ClientKey) -> prometheus::Result<Self> {
        let labels = Labels(labels(client));
        let unscheduled = |why: &&str| {
            let help = "Processes without the hook that are not scheduled, by reason";
            let opts = labels.opts("sluice_unsteered_processes", help);
            IntGauge::with_opts(opts.const_label("reason", *why))
        };
        Ok(Self {
            grants: GrantSeries::new(&labels)?,
            memory: MemorySeries::new(&labels)?,
            processes: labels.int_gauge("sluice_processes", "Processes connected to the manager")?,
            unhooked: labels.int_gauge(
                "sluice_adopted_processes",
                "Processes without the hook that are scheduled all the same",
            )?,
            unscheduled: ObstacleKind::LABELS.iter().map(unscheduled).collect::<prometheus::Result<_>>()?,
        })
    }

    pub(super) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let Self { grants, memory, processes, unhooked, unscheduled } = self;
        let mut all: Vec<Box<dyn Collector>> = vec![
            Box::new(grants.wait_seconds.clone()),
            Box::new(grants.held_seconds.clone()),
            Box::new(grants.gpu_seconds.clone()),
            Box::new(grants.hold_seconds.clone()),
            Box::new(grants.overrun_seconds.clone()),
            Box::new(grants.not_returned.clone()),
            Box::new(grants.granted.clone()),
            Box::new(grants.share.clone()),
            Box::new(memory.used.clone()),
            Box::new(memory.limit.clone()),
            Box::new(memory.denied.clone()),
            Box::new(processes.clone()),
            Box::new(unhooked.clone()),
        ];
        all.extend(unscheduled.iter().map(|gauge| Box::new(gauge.clone()) as Box<dyn Collector>));
        all
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
