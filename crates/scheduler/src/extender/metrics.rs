//! What Prometheus sees of the extender.

use std::fmt::Write;

use prometheus::{Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry, TextEncoder};
use sluice_placement::GpuUse;

use super::extender::Extender;
use super::leadership;
use super::recheck::RecheckOutcome;

/// How a question was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Filter found places and holds them.
    Reserved,
    /// Filter found none; bind: the API server refused.
    Refused,
    /// The pod's annotations are wrong.
    Invalid,
    /// Bind: done.
    Bound,
    /// Bind: nothing was held (any more).
    NotReserved,
    /// Bind: no answer, or one that leaves open what happened.
    Unknown,
    /// We do not decide at present.
    Inactive,
    /// The question makes no sense.
    Error,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
            Self::Bound => "bound",
            Self::NotReserved => "not-reserved",
            Self::Unknown => "unknown",
            Self::Inactive => "inactive",
            Self::Error => "error",
        }
    }
}

/// From 20 µs, the least that an answer takes, to seconds.
const BUCKETS: [f64; 18] = [
    20e-6, 50e-6, 100e-6, 200e-6, 300e-6, 500e-6, 750e-6, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 10e-3, 20e-3,
    50e-3, 0.2, 1.0, 5.0,
];

/// Counters and histograms; gauges are read when they are asked for.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) filter_seconds: Histogram,
    pub(crate) bind_seconds: Histogram,
    filters: IntCounterVec,
    binds: IntCounterVec,
    rechecks: IntCounterVec,
    pub(crate) expired: IntCounter,
    pub(crate) watch_errors: IntCounter,
    pub(crate) events_left_out: IntCounter,
}

impl Metrics {
    pub(crate) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let histogram = |name: &str, help: &str| {
            let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(BUCKETS.to_vec()))?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let counters = |name: &str, help: &str| {
            let counters = IntCounterVec::new(Opts::new(name, help), &["outcome"])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        Ok(Self {
            filter_seconds: histogram("sluice_scheduler_filter_seconds", "Time to answer a filter call.")?,
            bind_seconds: histogram(
                "sluice_scheduler_bind_seconds",
                "Time to answer a bind call, the API server's included.",
            )?,
            filters: counters("sluice_scheduler_filters_total", "Filter calls by outcome.")?,
            binds: counters("sluice_scheduler_binds_total", "Bind calls by outcome.")?,
            rechecks: counters(
                "sluice_scheduler_second_looks_total",
                "Questions to the API server, before a pod was refused, whether those in its way are still there.",
            )?,
            expired: counter(
                "sluice_scheduler_reservations_expired_total",
                "Pods whose reservation ran out.",
            )?,
            watch_errors: counter("sluice_scheduler_watch_errors_total", "Interrupted watches of the API.")?,
            events_left_out: counter(
                "sluice_scheduler_events_left_out_total",
                "Events not written to spare the API.",
            )?,
            registry,
        })
    }

    pub(crate) fn filtered(&self, outcome: Outcome, seconds: f64) {
        self.filter_seconds.observe(seconds);
        self.filters.with_label_values(&[outcome.name()]).inc();
    }

    pub(crate) fn bound(&self, outcome: Outcome, seconds: f64) {
        self.bind_seconds.observe(seconds);
        self.binds.with_label_values(&[outcome.name()]).inc();
    }

    /// The API server was asked about pods in the way of one that was to be refused.
    pub(crate) fn rechecked(&self, outcome: RecheckOutcome) {
        self.rechecks.with_label_values(&[outcome.name()]).inc();
    }

    fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Everything in Prometheus' text format. More GPUs than `most_gpus` are summed up by node.
pub(crate) fn page(extender: &Extender, most_gpus: usize) -> Result<String, prometheus::Error> {
    let mut page = extender.metrics.text()?;
    let ((reserved, bound), uses) = {
        let state = extender.state();
        let uses: Vec<(String, Vec<GpuUse>)> =
            state.index.uses().map(|(node, uses)| (node.to_string(), uses)).collect();
        (state.index.counts(), uses)
    };
    let active = u64::from(extender.leadership.state() == leadership::LeadershipState::Active);
    gauge(
        &mut page,
        "sluice_scheduler_active",
        "1 while this replica decides.",
        &[(String::new(), active.to_string())],
    );
    let one = |count: usize| [(String::new(), count.to_string())];
    gauge(
        &mut page,
        "sluice_scheduler_reservations",
        "Pods with a place that are not bound yet.",
        &one(reserved),
    );
    gauge(&mut page, "sluice_scheduler_assigned_pods", "Bound pods that hold GPUs.", &one(bound));
    gauge(&mut page, "sluice_scheduler_nodes", "Nodes with GPUs.", &one(uses.len()));
    if let Some(bytes) = resident_bytes() {
        let lines = [(String::new(), bytes.to_string())];
        gauge(&mut page, "process_resident_memory_bytes", "Resident memory size in bytes.", &lines);
    }
    write_uses(&mut page, &uses, most_gpus);
    Ok(page)
}

fn write_uses(page: &mut String, uses: &[(String, Vec<GpuUse>)], most_gpus: usize) {
    let gpus: usize = uses.iter().map(|(_, uses)| uses.len()).sum();
    let (mut shares, mut memories, mut pods) = (Vec::new(), Vec::new(), Vec::new());
    for (node, uses) in uses {
        let by_gpu = uses.iter().map(|one| {
            (format!("{{node=\"{node}\",gpu=\"{}\"}}", one.gpu), one.milli, one.memory_bytes, one.pods)
        });
        if gpus <= most_gpus {
            for (labels, milli, memory, count) in by_gpu {
                shares.push((labels.clone(), sluice_placement::share(milli)));
                memories.push((labels.clone(), memory.to_string()));
                pods.push((labels, count.to_string()));
            }
        } else {
            let labels = format!("{{node=\"{node}\"}}");
            let milli = uses.iter().map(|one| one.milli).sum();
            shares.push((labels.clone(), sluice_placement::share(milli)));
            memories.push((labels.clone(), uses.iter().map(|one| one.memory_bytes).sum::<u64>().to_string()));
            pods.push((labels, uses.iter().map(|one| u64::from(one.pods)).sum::<u64>().to_string()));
        }
    }
    gauge(
        page,
        "sluice_scheduler_assigned_share",
        "Given of GPUs, 1 is a whole one; by node in large clusters.",
        &shares,
    );
    gauge(page, "sluice_scheduler_assigned_memory_bytes", "Given of the GPUs' memory.", &memories);
    gauge(
        page,
        "sluice_scheduler_gpu_pods",
        "Pods that hold some of the GPUs, reservations included.",
        &pods,
    );
}

fn gauge(page: &mut String, name: &str, help: &str, lines: &[(String, String)]) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in lines {
        let _ = writeln!(page, "{name}{labels} {value}");
    }
}

/// This process' memory in RAM.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
