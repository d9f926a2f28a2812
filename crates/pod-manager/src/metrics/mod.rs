//! The metrics: counters that the event loop increments without a lock, and the registry that the HTTP thread owns.

mod channel_groups;
mod preemptions;
mod stream_gates;

use crate::adopt::Why;
use crate::clients::ClientKey;
use crate::connections::Reason;
pub(crate) use channel_groups::{ChannelGroupMetrics, EnforcementLevel};
pub(crate) use preemptions::{Preempted, PreemptionMetrics};
use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry, TextEncoder,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
pub(crate) use stream_gates::StreamGateMetrics;

/// Bounds of the waiting-time histogram, seconds: hand-offs take microseconds, quanta last milliseconds.
const WAIT_BUCKETS: [f64; 14] =
    [0.000_01, 0.000_05, 0.000_2, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0];

/// The series of one client.
#[derive(Debug)]
pub(crate) struct ClientMetrics {
    pub(crate) wait_seconds: Histogram,
    pub(crate) held_seconds: Counter,
    pub(crate) gpu_seconds: Counter,
    pub(crate) hold_seconds: Counter,
    pub(crate) overrun_seconds: Counter,
    pub(crate) not_returned: IntCounter,
    pub(crate) grants: IntCounter,
    pub(crate) share: Gauge,
    pub(crate) memory_used: IntGauge,
    pub(crate) memory_limit: IntGauge,
    pub(crate) memory_denied: IntCounter,
    pub(crate) processes: IntGauge,
    pub(crate) adopted: IntGauge,
    /// By [`Why::index`].
    pub(crate) unsteered: Vec<IntGauge>,
}

impl ClientMetrics {
    fn new(client: &ClientKey) -> prometheus::Result<Self> {
        let labels = labels(client);
        let opts = |name: &str, help: &str| Opts::new(name, help).const_labels(labels.clone());
        let counter = |name, help| Counter::with_opts(opts(name, help));
        let int_counter = |name, help| IntCounter::with_opts(opts(name, help));
        let int_gauge = |name, help| IntGauge::with_opts(opts(name, help));
        let wait =
            HistogramOpts::new("sluice_token_wait_seconds", "Time that requests waited for a grant, seconds")
                .const_labels(labels.clone())
                .buckets(WAIT_BUCKETS.to_vec());
        Ok(Self {
            wait_seconds: Histogram::with_opts(wait)?,
            held_seconds: counter(
                "sluice_token_held_seconds_total",
                "Wall time that grants were held, seconds",
            )?,
            gpu_seconds: counter("sluice_gpu_seconds_total", "GPU time charged, seconds")?,
            hold_seconds: counter(
                "sluice_hold_seconds_total",
                "GPU time of hold kernels between requests, not charged, seconds",
            )?,
            overrun_seconds: counter(
                "sluice_token_overrun_seconds_total",
                "Time that grants were held past their deadline until their GPU work had drained, seconds",
            )?,
            not_returned: int_counter(
                "sluice_grants_not_returned_total",
                "Grants revoked because they were not returned within the timeout",
            )?,
            grants: int_counter("sluice_grants_total", "Requests for grants that were granted")?,
            share: Gauge::with_opts(opts("sluice_share", "Share of GPU time over the window, 0 to 1"))?,
            memory_used: int_gauge("sluice_memory_used_bytes", "Memory reserved by all processes, bytes")?,
            memory_limit: int_gauge(
                "sluice_memory_limit_bytes",
                "Memory that all processes may reserve together, bytes",
            )?,
            memory_denied: int_counter("sluice_memory_denied_total", "Memory reservations refused")?,
            processes: int_gauge("sluice_processes", "Processes connected to the manager")?,
            adopted: int_gauge(
                "sluice_adopted_processes",
                "Processes without the hook that are scheduled all the same",
            )?,
            unsteered: Why::LABELS
                .iter()
                .map(|why| {
                    let help = "Processes without the hook that are not scheduled, by reason";
                    IntGauge::with_opts(opts("sluice_unsteered_processes", help).const_label("reason", *why))
                })
                .collect::<prometheus::Result<_>>()?,
        })
    }

    fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let mut all: Vec<Box<dyn Collector>> = vec![
            Box::new(self.wait_seconds.clone()),
            Box::new(self.held_seconds.clone()),
            Box::new(self.gpu_seconds.clone()),
            Box::new(self.hold_seconds.clone()),
            Box::new(self.overrun_seconds.clone()),
            Box::new(self.not_returned.clone()),
            Box::new(self.grants.clone()),
            Box::new(self.share.clone()),
            Box::new(self.memory_used.clone()),
            Box::new(self.memory_limit.clone()),
            Box::new(self.memory_denied.clone()),
            Box::new(self.processes.clone()),
            Box::new(self.adopted.clone()),
        ];
        all.extend(self.unsteered.iter().map(|gauge| Box::new(gauge.clone()) as Box<dyn Collector>));
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

/// A message to the owner of the registry.
enum Notice {
    Add(Arc<ClientMetrics>),
    Remove(Arc<ClientMetrics>),
}

/// The event loop's end: creates and removes the series of clients, counts refused connections, controls and preemptions.
pub(crate) struct Metrics {
    pub(crate) channel_groups: ChannelGroupMetrics,
    pub(crate) stream_gates: StreamGateMetrics,
    pub(crate) preemptions: PreemptionMetrics,
    notices: Sender<Notice>,
    refused: Vec<IntCounter>,
}

impl Metrics {
    pub(crate) fn add(&self, client: &ClientKey) -> prometheus::Result<Arc<ClientMetrics>> {
        let metrics = Arc::new(ClientMetrics::new(client)?);
        // Without an HTTP thread the message is dropped, and no metrics are read.
        let _ = self.notices.send(Notice::Add(Arc::clone(&metrics)));
        Ok(metrics)
    }

    pub(crate) fn remove(&self, metrics: Arc<ClientMetrics>) {
        let _ = self.notices.send(Notice::Remove(metrics));
    }

    pub(crate) fn refused(&self, reason: &Reason) {
        self.refused[reason.index()].inc();
    }

    /// Connections refused so far, by reason, without reasons that did not occur.
    pub(crate) fn refusals(&self) -> HashMap<String, u64> {
        let counts = Reason::LABELS.iter().zip(&self.refused).map(|(label, counter)| (*label, counter.get()));
        counts.filter(|(_, count)| *count > 0).map(|(label, count)| (label.to_owned(), count)).collect()
    }
}

/// The HTTP thread's end: the registry.
pub(crate) struct Exposition {
    registry: Registry,
    notices: Receiver<Notice>,
}

impl Exposition {
    /// All metrics in Prometheus's text format.
    pub(crate) fn text(&self) -> prometheus::Result<String> {
        for notice in self.notices.try_iter() {
            match notice {
                Notice::Add(metrics) => {
                    for collector in metrics.collectors() {
                        self.registry.register(collector)?;
                    }
                }
                Notice::Remove(metrics) => {
                    for collector in metrics.collectors() {
                        self.registry.unregister(collector)?;
                    }
                }
            }
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// A new pair.
pub(crate) fn pair() -> prometheus::Result<(Metrics, Exposition)> {
    let (sender, receiver) = channel();
    let registry = Registry::new();
    let mut refused = Vec::with_capacity(Reason::LABELS.len());
    for label in Reason::LABELS {
        let opts =
            Opts::new("sluice_refused_connections_total", "Connections closed by the manager, by reason")
                .const_label("reason", label);
        let counter = IntCounter::with_opts(opts)?;
        registry.register(Box::new(counter.clone()))?;
        refused.push(counter);
    }
    let channel_groups = ChannelGroupMetrics::new(&registry)?;
    let stream_gates = StreamGateMetrics::new(&registry)?;
    let preemptions = PreemptionMetrics::new(&registry)?;
    Ok((
        Metrics { channel_groups, stream_gates, preemptions, notices: sender, refused },
        Exposition { registry, notices: receiver },
    ))
}
