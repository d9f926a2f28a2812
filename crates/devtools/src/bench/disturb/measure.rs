//! One run of a scenario: settle, disturb, settle, measure.

use std::time::{Duration, Instant};

use anyhow::Context;
use sluice_sim::ledger::Ledger;

use super::bed::DisturbBed;
use super::disturbances::{self, Observed};
use super::entitled::{Terms, entitled_shares};
use super::exported::{Difference, Exported, SHARE_WINDOW_NS, Sample, compare, gained};
use super::host::{HostLoad, HostWatch};
use super::scenario::{Bar, Scenario};
use super::waits::Waits;
use super::windows::{Span, Worst, by_second, shares, worst};

/// Time before the disturbance.
const WARM_UP: Duration = Duration::from_secs(2);
/// Time after the disturbance after which shares are judged: the bar.
const SETTLED: Duration = Duration::from_secs(2);
/// Time between two readings of the exported figures, and between two wake-ups.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
const WAKE_EVERY: Duration = Duration::from_millis(10);

/// Everything that was measured. Shares are those of the clients, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub(super) seconds: f64,
    pub(super) shares: Vec<f64>,
    /// Shares of the last ten seconds, the time before the measurement included.
    pub(super) shares_10_s: Vec<f64>,
    /// Parts of the time in which the GPU switched between contexts, and in which it did neither that nor run a kernel.
    pub(super) switching: f64,
    pub(super) idle: f64,
    /// Entitled shares; 0 for a client that does not run.
    pub(super) entitled: Vec<f64>,
    pub(super) worst: Option<Worst>,
    /// The shares of each second.
    pub(super) by_second: Vec<Vec<f64>>,
    /// Absent if the manager did not serve its figures.
    pub(super) exported: Option<Vec<Difference>>,
    /// The same for the exported seconds from before the disturbance to the end, in points; not judged.
    pub(super) exported_whole_run: Option<Vec<f64>>,
    pub(super) observed: Observed,
    /// Median latency of requests at the end, where requests are judged.
    pub(super) latency_ms: Option<f64>,
    pub(super) host: HostLoad,
}

/// Runs a scenario and measures for this time, or longer if its bar needs that, counted from when it has settled.
pub(super) fn run(scenario: &Scenario, time: Duration, waits: &Waits<'_>) -> anyhow::Result<Measured> {
    let mut bed = DisturbBed::start(scenario, waits)?;
    waits.rest(WARM_UP)?;
    let before = read(&bed)?;
    let observed = disturbances::disturb(&mut bed)?;
    waits.rest(SETTLED)?;
    let of_requests = scenario.bar == Bar::RequestsNotDelayed;
    if of_requests {
        disturbances::median_latency(&mut bed)?;
    }
    let (begin, mut host) = (bed.bed.gpu().ledger()?, HostWatch::begin()?);
    let mut samples = sample(&bed, &mut host, time.max(scenario.least_span()))?;
    let (end, host) = (bed.bed.gpu().ledger()?, host.end()?);
    let latency_ms = of_requests.then(|| disturbances::median_latency(&mut bed)).transpose()?;
    bed.check_running()?;

    let span = Span { from: begin.gpu.now_ns, to: end.gpu.now_ns };
    let (clients, count) = (bed.clients_by_pid()?, scenario.clients.len());
    let timeline = bed.bed.gpu().timeline(span.from.saturating_sub(SHARE_WINDOW_NS), span.to)?;
    let of = |span| shares(&timeline, &clients, count, span);
    for sample in &mut samples {
        let window = Span { from: sample.at_ns.saturating_sub(SHARE_WINDOW_NS), to: sample.at_ns };
        for (exported, share) in sample.clients.iter_mut().zip(of(window)) {
            exported.ledger_share = share;
        }
    }
    let entitled = entitled_by_client(scenario);
    let part = |of: fn(&Ledger) -> u64| of(&end).saturating_sub(of(&begin)) as f64 / 1e9 / span.seconds();
    let (busy, switching) = (part(|ledger| ledger.gpu.busy_ns), part(|ledger| ledger.gpu.switch_ns));
    Ok(Measured {
        seconds: span.seconds(),
        shares: of(span),
        shares_10_s: of(Span { from: span.to.saturating_sub(SHARE_WINDOW_NS), to: span.to }),
        switching,
        idle: 1.0 - busy - switching,
        worst: worst(&timeline, &clients, &entitled, span),
        by_second: by_second(&timeline, &clients, count, span),
        entitled,
        exported: compare(&samples),
        exported_whole_run: before.zip(samples.last()).map(|(first, last)| gained(&first, last)),
        observed,
        latency_ms,
        host,
    })
}

/// The entitled shares of the clients whose processes run, by client.
fn entitled_by_client(scenario: &Scenario) -> Vec<f64> {
    let active: Vec<usize> =
        (0..scenario.clients.len()).filter(|client| scenario.is_active(*client)).collect();
    let terms: Vec<Terms> = active.iter().map(|client| scenario.clients[*client].terms).collect();
    let mut all = vec![0.0; scenario.clients.len()];
    active.into_iter().zip(entitled_shares(&terms)).for_each(|(client, share)| all[client] = share);
    all
}

/// Reads the exported figures and the ledger together until `time` has passed.
fn sample(bed: &DisturbBed<'_>, host: &mut HostWatch, time: Duration) -> anyhow::Result<Vec<Sample>> {
    let (until, mut next) = (Instant::now() + time, Instant::now());
    let mut samples = Vec::new();
    while Instant::now() < until {
        if Instant::now() >= next {
            next += SAMPLE_EVERY;
            samples.extend(read(bed)?);
        }
        host.sleep(WAKE_EVERY);
        bed.waits.check()?;
    }
    Ok(samples)
}

fn read(bed: &DisturbBed<'_>) -> anyhow::Result<Option<Sample>> {
    let Some(metrics) = bed.metrics() else { return Ok(None) };
    let ledger = bed.bed.gpu().ledger()?;
    let of_client = |name: &str| {
        let metric = |metric| metrics.of_client(metric, name);
        let seconds = metric("sluice_gpu_seconds_total").context("no sluice_gpu_seconds_total")?;
        let hold_seconds = metric("sluice_hold_seconds_total").unwrap_or(0.0);
        let label = ledger.labels.get(name);
        anyhow::Ok(Exported {
            seconds: seconds + hold_seconds,
            hold_seconds,
            share: metric("sluice_share").context("no sluice_share")?,
            ledger_seconds: label.map_or(0.0, |label| label.gpu_ns as f64 / 1e9),
            ledger_share: 0.0,
        })
    };
    let clients = bed.scenario.clients.iter().map(|client| of_client(client.name));
    Ok(Some(Sample { at_ns: ledger.gpu.now_ns, clients: clients.collect::<anyhow::Result<_>>()? }))
}
