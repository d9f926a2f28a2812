//! The extender's metrics.

use std::fmt::Write;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry, TextEncoder};
use sluice_placement::GpuReservations;
use sluice_units::Share;

use super::extender::Extender;
use super::leadership;
use super::recheck::RecheckOutcome;

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Outcome {
    /// Filter reserved GPUs.
    Reserved,
    /// Preempt: victims were found on a node.
    Proposed,
    /// The extender itself evicted pods.
    Evicted,
    /// Filter: no node has room. Preempt: no eviction makes room. Bind: the API server refused.
    Refused,
    /// The pod's annotations are wrong.
    Invalid,
    /// Bind: the pod is bound.
    Bound,
    /// Bind: nothing was reserved (any more).
    NotReserved,
    /// Bind: no answer, or one that leaves the result open.
    Unknown,
    /// This replica is not active.
    Inactive,
    /// The request is malformed.
    Error,
}

/// From 20 µs, the shortest time of an answer, to seconds.
const BUCKETS: [f64; 18] = [
    20e-6, 50e-6, 100e-6, 200e-6, 300e-6, 500e-6, 750e-6, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 10e-3, 20e-3,
    50e-3, 0.2, 1.0, 5.0,
];

/// Shares of a pod for which fragmentation is computed, parts per million of a GPU.
const FRAGMENTATION_PPM: [u32; 4] = [250_000, 500_000, 750_000, 1_000_000];

/// Counters and histograms. Gauges are read at each scrape.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) filter_seconds: Histogram,
    pub(crate) bind_seconds: Histogram,
    filters: IntCounterVec,
    preemptions: IntCounterVec,
    binds: IntCounterVec,
    rechecks: IntCounterVec,
    pub(crate) expired: IntCounter,
    pub(crate) watch_errors: IntCounter,
    pub(crate) events_dropped: IntCounter,
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
            filter_seconds: histogram(
                "sluice_scheduler_filter_seconds",
                "Time to answer a filter call, seconds.",
            )?,
            bind_seconds: histogram(
                "sluice_scheduler_bind_seconds",
                "Time to answer a bind call, including the API server's, seconds.",
            )?,
            filters: counters("sluice_scheduler_filters_total", "Filter calls by outcome.")?,
            preemptions: counters(
                "sluice_scheduler_preemptions_total",
                "Preempt calls, and evictions by the extender itself, by outcome.",
            )?,
            binds: counters("sluice_scheduler_binds_total", "Bind calls by outcome.")?,
            rechecks: counters(
                "sluice_scheduler_second_looks_total",
                "Rechecks with the API server, before a refusal, of pods that hold the needed GPUs, by outcome.",
            )?,
            expired: counter(
                "sluice_scheduler_reservations_expired_total",
                "Reservations that expired without a bind.",
            )?,
            watch_errors: counter(
                "sluice_scheduler_watch_errors_total",
                "Interrupted watches of the API server.",
            )?,
            events_dropped: counter(
                "sluice_scheduler_events_left_out_total",
                "Events dropped because of the rate limit.",
            )?,
            registry,
        })
    }

    pub(crate) fn record_filter(&self, outcome: Outcome, seconds: f64) {
        self.filter_seconds.observe(seconds);
        self.filters.with_label_values(&[<&str>::from(outcome)]).inc();
    }

    pub(crate) fn record_preemption(&self, outcome: Outcome) {
        self.preemptions.with_label_values(&[<&str>::from(outcome)]).inc();
    }

    pub(crate) fn record_bind(&self, outcome: Outcome, seconds: f64) {
        self.bind_seconds.observe(seconds);
        self.binds.with_label_values(&[<&str>::from(outcome)]).inc();
    }

    /// Counts a recheck of pods that hold the GPUs a refused pod needs.
    pub(crate) fn record_recheck(&self, outcome: RecheckOutcome) {
        self.rechecks.with_label_values(&[<&str>::from(outcome)]).inc();
    }
}

/// All series in Prometheus' text format. With more GPUs than `most_gpus` the series are summed by node.
pub(crate) fn page(extender: &Extender, most_gpus: usize) -> Result<String, prometheus::Error> {
    let mut page = TextEncoder::new().encode_to_string(&extender.metrics.registry.gather())?;
    let ((reserved, bound), unusable, uses) = {
        let state = extender.state();
        let uses: Vec<(String, Vec<GpuReservations>)> =
            state.index.uses().map(|(node, uses)| (node.to_string(), uses)).collect();
        let unusable = FRAGMENTATION_PPM.map(|ppm| {
            let share = Share::from_ppm(ppm).unwrap_or(Share::ONE);
            (share, state.index.free_time(share).unusable_ratio())
        });
        (state.index.counts(), unusable, uses)
    };
    let active = u64::from(extender.leadership.state() == leadership::LeadershipState::Active);
    gauge(
        &mut page,
        "sluice_scheduler_active",
        "1 while this replica decides, else 0.",
        &[(String::new(), active.to_string())],
    );
    let one = |count: usize| [(String::new(), count.to_string())];
    gauge(
        &mut page,
        "sluice_scheduler_reservations",
        "Pods with a reservation that are not bound yet.",
        &one(reserved),
    );
    gauge(&mut page, "sluice_scheduler_assigned_pods", "Bound pods that hold GPUs.", &one(bound));
    gauge(&mut page, "sluice_scheduler_nodes", "Nodes with GPUs.", &one(uses.len()));
    let unusable = unusable.map(|(share, ratio)| {
        let share = sluice_placement::format_share(share.ppm().into());
        (format!("{{share=\"{share}\"}}"), format!("{ratio:.4}"))
    });
    gauge(
        &mut page,
        "sluice_scheduler_fragmentation_ratio",
        "Part of the free GPU time that is on GPUs which cannot take a pod of this share and the same part of the memory, 0 to 1.",
        &unusable,
    );
    if let Some(bytes) = resident_bytes() {
        let lines = [(String::new(), bytes.to_string())];
        gauge(&mut page, "process_resident_memory_bytes", "Resident memory, bytes.", &lines);
    }
    write_uses(&mut page, &uses, most_gpus);
    Ok(page)
}

fn write_uses(page: &mut String, uses: &[(String, Vec<GpuReservations>)], most_gpus: usize) {
    let gpus: usize = uses.iter().map(|(_, uses)| uses.len()).sum();
    let (mut shares, mut memories, mut pods) = (Vec::new(), Vec::new(), Vec::new());
    for (node, uses) in uses {
        let of_gpu = |one: &GpuReservations| format!("{{node=\"{node}\",gpu=\"{}\"}}", one.gpu);
        let groups: Vec<(String, &[GpuReservations])> = if gpus <= most_gpus {
            uses.iter().map(|one| (of_gpu(one), std::slice::from_ref(one))).collect()
        } else {
            vec![(format!("{{node=\"{node}\"}}"), uses)]
        };
        for (labels, group) in groups {
            let ppm = group.iter().map(|one| one.ppm).sum();
            shares.push((labels.clone(), sluice_placement::format_share(ppm)));
            let memory: u64 = group.iter().map(|one| one.memory_bytes).sum();
            memories.push((labels.clone(), memory.to_string()));
            let count: u64 = group.iter().map(|one| u64::from(one.pods)).sum();
            pods.push((labels, count.to_string()));
        }
    }
    gauge(
        page,
        "sluice_scheduler_assigned_share",
        "Assigned share of GPUs, 1 is a whole GPU; by node in large clusters.",
        &shares,
    );
    gauge(page, "sluice_scheduler_assigned_memory_bytes", "Assigned memory of GPUs, bytes.", &memories);
    gauge(page, "sluice_scheduler_gpu_pods", "Pods with a share of a GPU, including reservations.", &pods);
}

fn gauge(page: &mut String, name: &str, help: &str, lines: &[(String, String)]) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in lines {
        let _ = writeln!(page, "{name}{labels} {value}");
    }
}

/// Resident memory of this process.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
