//! The metrics: counters that the event loop increments without a lock, and the registry that the HTTP thread owns.

mod channel_groups;
mod client;
mod preemptions;
mod stream_gates;

use crate::clients::ClientKey;
use crate::connections::Reason;
pub(crate) use channel_groups::{ChannelGroupMetrics, EnforcementLevel};
pub(crate) use client::ClientMetrics;
pub(crate) use preemptions::{Preempted, PreemptionMetrics};
use prometheus::{IntCounter, Opts, Registry, TextEncoder};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
pub(crate) use stream_gates::StreamGateMetrics;

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
