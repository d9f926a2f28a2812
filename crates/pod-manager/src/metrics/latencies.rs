//! The series of a latency-critical client's steps and requests. Other clients have none of them.

use super::{Series, counted_to_proto};
use crate::latencies::NewLatencies;
use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Gauge, GaugeVec, IntCounter, Result};
use sluice_comm::latency::{BOUNDS_NS, BUCKETS, range_ns};
use sluice_proto::control;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A histogram has each so many-th bound of the report page: 40 of them, each 1.36 times the one before.
const BOUND_EVERY: usize = 4;

/// The quantiles that are exported: their labels and values.
const QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999)];

/// What hold kernels are predicted from: when the next request begins, and how long after its first copy its first launch comes.
const PREDICTED: [&str; 2] = ["arrival", "preparation"];

/// Quantiles cover the present and the last interval of this length, nanoseconds.
const INTERVAL_NS: u64 = 30_000_000_000;

/// Hold kernels end after this time, whatever they wait for.
const LONGEST_LINGER: Duration = Duration::from_secs(1);

/// Steps and requests of one client.
pub(crate) struct LatencySeries {
    is_critical: Arc<AtomicBool>,
    pub(crate) steps: LatencyFamily,
    pub(crate) requests: LatencyFamily,
    pub(crate) slo_violations: IntCounter,
    pub(crate) unobserved_steps: IntCounter,
    slo_seconds: Gauge,
    linger_seconds: Gauge,
    /// By [`PREDICTED`].
    prediction_error_seconds: [Gauge; PREDICTED.len()],
}

/// Steps or requests.
pub(crate) struct LatencyFamily {
    counted: Arc<Counted>,
    quantiles: [Gauge; QUANTILES.len()],
}

/// Latencies in the buckets of the report page.
struct Counted {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// The latencies of the last one to two intervals.
#[derive(Debug)]
pub(crate) struct RecentLatencies {
    present: [u64; BUCKETS],
    last: [u64; BUCKETS],
    began_ns: u64,
}

impl LatencySeries {
    pub(super) fn new(series: &mut Series) -> Result<Self> {
        let is_critical = Arc::new(AtomicBool::new(false));
        let steps = "Time from the first call after a wait to the end of the next wait, seconds";
        let requests = "Time of requests on the GPU: steps with shorter pauses than the linger time, seconds";
        let errors = GaugeVec::new(
            series.opts(
                "sluice_prediction_error_seconds",
                "Largest mean error of its processes' predictions of when a request begins (arrival) and when its first launch comes (preparation), seconds; 0: nothing is predicted",
            ),
            &["predicted"],
        )?;
        let made = Self {
            steps: LatencyFamily::new(
                ("sluice_step_seconds", "sluice_step_quantile_seconds"),
                steps,
                series,
                &is_critical,
            )?,
            requests: LatencyFamily::new(
                ("sluice_request_seconds", "sluice_request_quantile_seconds"),
                requests,
                series,
                &is_critical,
            )?,
            slo_violations: IntCounter::with_opts(
                series.opts("sluice_slo_violations_total", "Requests that took longer than the client's slo"),
            )?,
            unobserved_steps: IntCounter::with_opts(series.opts(
                "sluice_unobserved_steps_total",
                "Steps without a latency, because no wait for their end was observed",
            ))?,
            slo_seconds: Gauge::with_opts(
                series.opts("sluice_slo_seconds", "Latency goal, seconds; 0: none"),
            )?,
            linger_seconds: Gauge::with_opts(series.opts(
                "sluice_linger_seconds",
                "Longest time for which hold kernels of a process stay without work within a request, seconds",
            ))?,
            prediction_error_seconds: PREDICTED.map(|what| errors.with_label_values(&[what])),
            is_critical,
        };
        for collector in [
            Box::new(made.slo_violations.clone()) as Box<dyn Collector>,
            Box::new(made.unobserved_steps.clone()),
            Box::new(made.slo_seconds.clone()),
            Box::new(made.linger_seconds.clone()),
            Box::new(errors),
        ] {
            series
                .collectors
                .push(Box::new(CriticalOnly { is_critical: Arc::clone(&made.is_critical), collector }));
        }
        Ok(made)
    }

    /// Sets the longest linger time that a process reports. A process can write any number.
    pub(crate) fn set_linger(&self, linger_ns: u64) {
        self.linger_seconds.set(Duration::from_nanos(linger_ns).min(LONGEST_LINGER).as_secs_f64());
    }

    /// Sets the largest mean errors of predictions that a process reports. A process can write any number.
    pub(crate) fn set_prediction_errors(&self, errors_ns: [u64; 2]) {
        for (series, ns) in self.prediction_error_seconds.iter().zip(errors_ns) {
            series.set(Duration::from_nanos(ns).min(LONGEST_LINGER).as_secs_f64());
        }
    }

    /// Sets whether the client is latency-critical, and its latency goal in nanoseconds.
    pub(crate) fn set_client(&self, is_critical: bool, slo_ns: u64) {
        self.is_critical.store(is_critical, Relaxed);
        self.slo_seconds.set(Duration::from_nanos(slo_ns).as_secs_f64());
    }
}

impl LatencyFamily {
    fn new(
        (name, quantile_name): (&str, &str),
        help: &str,
        series: &mut Series,
        is_critical: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        let counted = Arc::new(Counted { counts, sum_ns: AtomicU64::new(0) });
        let desc = series.opts(name, help).describe()?;
        let histogram = HistogramCollector { desc, counted: Arc::clone(&counted) };
        let help = format!("Quantiles of {name} over the last 30 to 60 seconds, seconds");
        let quantiles = series.opts(quantile_name, &help);
        let quantiles = GaugeVec::new(quantiles, &["quantile"])?;
        let family =
            Self { counted, quantiles: QUANTILES.map(|(label, _)| quantiles.with_label_values(&[label])) };
        family.quantiles.iter().for_each(|gauge| gauge.set(f64::NAN));
        for collector in [Box::new(histogram) as Box<dyn Collector>, Box::new(quantiles)] {
            series
                .collectors
                .push(Box::new(CriticalOnly { is_critical: Arc::clone(is_critical), collector }));
        }
        Ok(family)
    }

    /// Adds latencies.
    pub(crate) fn add(&self, new: &NewLatencies) {
        for (count, new) in self.counted.counts.iter().zip(new.counts).filter(|(_, new)| *new > 0) {
            count.fetch_add(new, Relaxed);
        }
        self.counted.sum_ns.fetch_add(new.sum_ns, Relaxed);
    }

    /// Exports the quantiles of these latencies. Without a latency there are none: NaN.
    pub(crate) fn set_quantiles(&self, recent: &RecentLatencies) {
        for (gauge, (_, part)) in self.quantiles.iter().zip(QUANTILES) {
            gauge.set(recent.quantile(part).map_or(f64::NAN, |ns| Duration::from_nanos(ns).as_secs_f64()));
        }
    }

    /// Everything, for the node agent.
    pub(crate) fn to_proto(&self) -> control::Latencies {
        let quantiles = self.quantiles.iter().zip(QUANTILES);
        control::Latencies {
            quantiles: quantiles
                .map(|(gauge, (quantile, _))| control::LatencyQuantile {
                    quantile: quantile.to_owned(),
                    seconds: gauge.get(),
                })
                .collect(),
            ..counted_to_proto(&self.counted.histogram())
        }
    }
}

impl Counted {
    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        let (mut buckets, mut cumulative) = (Vec::with_capacity(BOUNDS_NS.len() / BOUND_EVERY), 0);
        for (index, count) in self.counts.iter().enumerate() {
            cumulative += count.load(Relaxed);
            let bound = BOUNDS_NS.get(index).filter(|_| (index + 1) % BOUND_EVERY == 0);
            if let Some(bound_ns) = bound {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(Duration::from_nanos(*bound_ns).as_secs_f64());
                bucket.set_cumulative_count(cumulative);
                buckets.push(bucket);
            }
        }
        histogram.set_bucket(buckets);
        histogram.set_sample_count(cumulative);
        histogram.set_sample_sum(Duration::from_nanos(self.sum_ns.load(Relaxed)).as_secs_f64());
        histogram
    }
}

impl Default for RecentLatencies {
    fn default() -> Self {
        Self { present: [0; BUCKETS], last: [0; BUCKETS], began_ns: 0 }
    }
}

impl RecentLatencies {
    /// Forgets what is older than two intervals.
    pub(crate) fn advance(&mut self, now: u64) {
        let elapsed_ns = now.saturating_sub(self.began_ns);
        if elapsed_ns >= INTERVAL_NS {
            let present = std::mem::replace(&mut self.present, [0; BUCKETS]);
            self.last = if elapsed_ns < 2 * INTERVAL_NS { present } else { [0; BUCKETS] };
            self.began_ns = now;
        }
    }

    /// Adds latencies of the present interval.
    pub(crate) fn add(&mut self, new: &NewLatencies) {
        self.present.iter_mut().zip(new.counts).for_each(|(count, new)| *count = count.saturating_add(new));
    }

    /// The latency that this part of all does not exceed, in nanoseconds: the middle of its bucket.
    fn quantile(&self, part: f64) -> Option<u64> {
        let counts = || self.present.iter().zip(&self.last).map(|(one, other)| one.saturating_add(*other));
        let all = counts().fold(0, u64::saturating_add);
        let mut below = 0_u64;
        let bucket = counts().position(|count| {
            below = below.saturating_add(count);
            below as f64 >= part * all as f64 && below > 0
        })?;
        let (lower, upper) = range_ns(bucket);
        // Above the highest bound nothing is known.
        Some(if upper == u64::MAX { lower } else { lower + (upper - lower) / 2 })
    }
}

/// A histogram that was counted before.
struct HistogramCollector {
    desc: Desc,
    counted: Arc<Counted>,
}

impl Collector for HistogramCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let labels: Vec<LabelPair> = self.desc.const_label_pairs.clone();
        let mut metric = Metric::from_label(labels);
        metric.set_histogram(self.counted.histogram());
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.mut_metric().push(metric);
        vec![family]
    }
}

/// A collector that is empty while its client is not latency-critical.
struct CriticalOnly {
    is_critical: Arc<AtomicBool>,
    collector: Box<dyn Collector>,
}

impl Collector for CriticalOnly {
    fn desc(&self) -> Vec<&Desc> {
        self.collector.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if self.is_critical.load(Relaxed) { self.collector.collect() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests;
