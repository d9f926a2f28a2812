//! The metrics: counters that the event loop increments without a lock, and the registry that the HTTP thread owns.

mod client;
mod latencies;
mod memory_readings;
mod policy_reloads;
mod scheduling;
mod switch_times;

use crate::definition::ClientKey;
use crate::reason::Reason;
use client::ClientCollector;
pub(crate) use client::ClientMetrics;
pub(crate) use latencies::RecentLatencies;
use memory_readings::MemoryReadings;
pub(crate) use memory_readings::ReadingOutcome;
use policy_reloads::PolicyReloads;
use prometheus::core::{Collector, Metric, MetricVec, MetricVecBuilder};
use prometheus::proto::{Bucket, MetricFamily};
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};
use scheduling::{ChannelGroupMetrics, PreemptionMetrics};
pub(crate) use scheduling::{EnforcementLevel, Preempted};
use sluice_daemon::ProcessCollector;
use sluice_proto::control::{self, EventLoop, EventLoopBucket};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
pub(crate) use switch_times::{SwitchLevel, SwitchTimes};

/// Bounds of the histogram of rounds, seconds. Under a flood one round in a thousand takes more than 1 ms, a few more than 5 ms
/// (`sluice-dev bench flood` on two cores; time in which the kernel ran other threads is included).
const ROUND_BUCKETS: [f64; 11] =
    [0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.1];

/// A message to the owner of the registry.
enum Notice {
    Add(Arc<ClientMetrics>),
    Remove(Arc<ClientMetrics>),
}

/// The event loop's end: creates and removes the series of clients, counts refused connections, controls and preemptions.
pub(crate) struct Metrics {
    pub(crate) channel_groups: ChannelGroupMetrics,
    pub(crate) preemptions: PreemptionMetrics,
    pub(crate) switch_times: SwitchTimes,
    pub(crate) memory_readings: MemoryReadings,
    pub(crate) policy_reloads: PolicyReloads,
    /// Energy of the GPU without work.
    pub(crate) idle_energy_joules: Counter,
    notices: Sender<Notice>,
    refused: [IntCounter; Reason::LABELS.len()],
    /// Time of one round of the event loop, without its wait.
    round_seconds: Histogram,
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

    /// Counts a round of the event loop.
    pub(crate) fn round(&self, ns: u64) {
        self.round_seconds.observe(Duration::from_nanos(ns).as_secs_f64());
    }

    /// The rounds so far, for the node agent.
    pub(crate) fn rounds(&self) -> EventLoop {
        let metric = self.round_seconds.metric();
        let histogram = metric.get_histogram();
        let bucket = |bucket: &Bucket| EventLoopBucket {
            seconds: bucket.upper_bound(),
            rounds: bucket.cumulative_count(),
        };
        EventLoop {
            buckets: histogram.get_bucket().iter().map(bucket).collect(),
            rounds: histogram.get_sample_count(),
            seconds: histogram.get_sample_sum(),
        }
    }

    /// Connections refused so far, by reason, without reasons that did not occur.
    pub(crate) fn refusals(&self) -> HashMap<String, u64> {
        let counts = Reason::LABELS.iter().zip(&self.refused).map(|(label, counter)| (*label, counter.get()));
        counts.filter(|(_, count)| *count > 0).map(|(label, count)| (label.to_owned(), count)).collect()
    }
}

/// The readers' end: the registry.
#[derive(Debug)]
pub(crate) struct Exposition {
    registry: Registry,
    notices: Receiver<Notice>,
}

impl Exposition {
    /// All metrics in Prometheus's text format.
    pub(crate) fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.families()?)
    }

    /// The value of a gauge without labels; `None` if there is no such gauge.
    pub(crate) fn gauge(&self, name: &str) -> prometheus::Result<Option<f64>> {
        let families = self.families()?;
        let metrics = families.iter().find(|family| family.name() == name).map(|family| family.get_metric());
        Ok(metrics.and_then(<[_]>::first).map(|metric| metric.get_gauge().get_value()))
    }

    fn families(&self) -> prometheus::Result<Vec<MetricFamily>> {
        for notice in self.notices.try_iter() {
            match notice {
                Notice::Add(client) => {
                    ClientCollector::all(&client).try_for_each(|metric| self.registry.register(metric))?;
                }
                Notice::Remove(client) => {
                    ClientCollector::all(&client).try_for_each(|metric| self.registry.unregister(metric))?;
                }
            }
        }
        Ok(self.registry.gather())
    }
}

/// A new pair.
pub(crate) fn pair() -> prometheus::Result<(Metrics, Exposition)> {
    let (sender, notices) = channel();
    let mut series = Series::default();
    let refused =
        series.opts("sluice_refused_connections_total", "Connections closed by the manager, by reason");
    let rounds = series.opts(
        "sluice_event_loop_seconds",
        "Time of one round of the event loop: until it waits again, no event is handled",
    );
    let rounds = HistogramOpts::from(rounds).buckets(ROUND_BUCKETS.to_vec());
    let metrics = Metrics {
        round_seconds: series.keep(Histogram::with_opts(rounds))?,
        channel_groups: ChannelGroupMetrics::new(&mut series)?,
        preemptions: PreemptionMetrics::new(&mut series)?,
        switch_times: SwitchTimes::new(&mut series)?,
        memory_readings: MemoryReadings::new(&mut series)?,
        policy_reloads: PolicyReloads::new(&mut series)?,
        idle_energy_joules: series.amount(
            "sluice_idle_energy_joules_total",
            "Energy that the GPU drew, or would have drawn, without work, joules",
        )?,
        notices: sender,
        refused: series.by_value(IntCounterVec::new(refused, &["reason"]), Reason::LABELS)?,
    };
    let registry = Registry::new();
    registry.register(Box::new(ProcessCollector::new()?))?;
    series.collectors.into_iter().try_for_each(|collector| registry.register(collector))?;
    Ok((metrics, Exposition { registry, notices }))
}

/// A histogram as the node agent reads it.
fn histogram_to_proto(histogram: &Histogram) -> control::Latencies {
    counted_to_proto(histogram.metric().get_histogram())
}

fn counted_to_proto(histogram: &prometheus::proto::Histogram) -> control::Latencies {
    let bucket = |bucket: &Bucket| control::LatencyBucket {
        seconds: bucket.upper_bound(),
        count: bucket.cumulative_count(),
    };
    control::Latencies {
        buckets: histogram.get_bucket().iter().map(bucket).collect(),
        count: histogram.get_sample_count(),
        seconds: histogram.get_sample_sum(),
        quantiles: Vec::new(),
    }
}

/// Makes collectors with common labels and keeps a copy of each, so that they can be registered together.
#[derive(Default)]
struct Series {
    labels: HashMap<String, String>,
    collectors: Vec<Box<dyn Collector>>,
}

impl Series {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_labels(self.labels.clone())
    }

    /// Keeps a copy of a collector.
    fn keep<C: Collector + Clone + 'static>(&mut self, made: prometheus::Result<C>) -> prometheus::Result<C> {
        made.inspect(|made| self.collectors.push(Box::new(made.clone())))
    }

    fn amount(&mut self, name: &str, help: &str) -> prometheus::Result<Counter> {
        self.keep(Counter::with_opts(self.opts(name, help)))
    }

    fn ratio(&mut self, name: &str, help: &str) -> prometheus::Result<Gauge> {
        self.keep(Gauge::with_opts(self.opts(name, help)))
    }

    fn counter(&mut self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.keep(IntCounter::with_opts(self.opts(name, help)))
    }

    fn gauge(&mut self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.keep(IntGauge::with_opts(self.opts(name, help)))
    }

    /// A metric of this family for each value of its label.
    fn by_value<B: MetricVecBuilder + 'static, const N: usize>(
        &mut self,
        family: prometheus::Result<MetricVec<B>>,
        values: [&str; N],
    ) -> prometheus::Result<[B::M; N]> {
        let family = self.keep(family)?;
        Ok(values.map(|value| family.with_label_values(&[value])))
    }

    /// A counter for each value of a label and each outcome.
    fn outcomes<const N: usize, const M: usize>(
        &mut self,
        (name, help): (&str, &str),
        (label, values): (&str, [&str; N]),
        outcomes: [&str; M],
    ) -> prometheus::Result<[[IntCounter; M]; N]> {
        let family = self.keep(IntCounterVec::new(self.opts(name, help), &[label, "outcome"]))?;
        Ok(values.map(|value| outcomes.map(|outcome| family.with_label_values(&[value, outcome]))))
    }
}

#[cfg(test)]
mod tests;
