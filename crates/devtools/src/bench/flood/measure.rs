//! Alternates blocks without and with the flood, and collects what tenants got and how long answers took.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use sluice_comm::RequestBody;
use sluice_load::samples::Samples;
use sluice_sim::ledger::Ledger;
use sluice_sys::clock::monotonic_ns;
use sluice_test_bed::{Interrupts, Metrics, http};

use super::super::Percentiles;
use super::super::disturb::host::{HostLoad, HostWatch};
use super::super::provenance::{commit, date, machine};
use super::super::wire_client::WireClient;
use super::Arguments;
use super::bed::{FloodBed, TENANTS};
use super::figures::{Figures, Manager, Phase, Tenant};

/// Time for which the tenants work before the first block.
const WARM_UP: Duration = Duration::from_secs(2);
/// Time from the begin or the end of the flood to the block that is measured.
const SETTLED: Duration = Duration::from_secs(1);
/// Pause between two questions: the probe does not load the manager itself.
const PROBE_PAUSE: Duration = Duration::from_millis(5);
/// Time between two requests of /healthz, each of which has to be answered.
const HEALTH_EVERY: Duration = Duration::from_secs(1);

/// What was measured in all blocks of one kind.
#[derive(Default)]
struct Blocks {
    gpu_ns: [u64; TENANTS.len()],
    ns: u64,
    answers: Vec<u64>,
    hosts: Vec<HostLoad>,
    latest_health_ms: f64,
    manager_cpu_seconds: f64,
    manager_descriptors: f64,
}

pub(super) fn measure(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<Figures> {
    let mut bed = FloodBed::start(interrupts)?;
    let mut probe = bed.probe()?;
    rest(WARM_UP, interrupts)?;
    let time = Duration::from_secs(flags.seconds);
    let before = Reading::take(&bed, interrupts)?;
    let (mut quiet, mut flood) = (Blocks::default(), Blocks::default());
    for _ in 0..flags.rounds {
        rest(SETTLED, interrupts)?;
        quiet.add(&bed, &mut probe, time, interrupts)?;
        let sources = bed.start_flood(interrupts)?;
        rest(SETTLED, interrupts)?;
        flood.add(&bed, &mut probe, time, interrupts)?;
        drop(sources);
        bed.check_running()?;
    }
    let after = Reading::take(&bed, interrupts)?;
    let tenant = |(place, (name, request)): (usize, &(&'static str, f64))| Tenant {
        client: name,
        entitled: *request,
        quiet_share: quiet.share(place),
        flood_share: flood.share(place),
        exported_off_points: 100.0 * after.exported_ahead_of(&before, place),
    };
    let rounds_above = |bound: &str| after.rounds_above(bound) - before.rounds_above(bound);
    Ok(Figures {
        commit: commit(),
        date: date(),
        machine: machine(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        load_average: fs::read_to_string("/proc/loadavg")
            .context("cannot read /proc/loadavg")?
            .trim()
            .to_owned(),
        tenants: TENANTS.iter().enumerate().map(tenant).collect(),
        manager: Manager {
            rounds: after.sum("sluice_event_loop_seconds_count")
                - before.sum("sluice_event_loop_seconds_count"),
            rounds_above_1_ms: rounds_above("0.001"),
            rounds_above_2_ms: rounds_above("0.002"),
            rounds_above_5_ms: rounds_above("0.005"),
            log_lines_dropped: after.sum("sluice_log_lines_dropped_total"),
            connections_refused: after.sum("sluice_refused_connections_total"),
        },
        quiet: quiet.phase(),
        flood: flood.phase(),
        missed: Vec::new(),
    }
    .judged())
}

impl Blocks {
    /// Measures one block.
    fn add(
        &mut self,
        bed: &FloodBed,
        probe: &mut WireClient,
        time: Duration,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        let Reading { metrics, ledger: begin } = Reading::take(bed, interrupts)?;
        let mut host = HostWatch::begin()?;
        let (begun, mut next_health) = (Instant::now(), Instant::now());
        while begun.elapsed() < time {
            interrupts.check()?;
            let asked = monotonic_ns();
            probe.ask(RequestBody::MemLimit)?;
            self.answers.push(monotonic_ns() - asked);
            if Instant::now() >= next_health {
                next_health += HEALTH_EVERY;
                let asked = Instant::now();
                http::get(&bed.health.to_string(), "/healthz").context("a probe was not answered")?;
                self.latest_health_ms = self.latest_health_ms.max(asked.elapsed().as_secs_f64() * 1e3);
            }
            host.sleep(PROBE_PAUSE);
        }
        self.hosts.push(host.end()?);
        let end = bed.bed.gpu().ledger()?;
        let after = bed.scrape(interrupts)?;
        let gained = |metric| {
            let of = |metrics: &Metrics| metrics.sum(metric, &[]).unwrap_or(0.0);
            of(&after) - of(&metrics)
        };
        self.manager_cpu_seconds += gained("process_cpu_seconds_total");
        let descriptors = after.sum("process_open_fds", &[]).unwrap_or(0.0);
        self.manager_descriptors = self.manager_descriptors.max(descriptors);
        self.ns += end.gpu.now_ns.saturating_sub(begin.gpu.now_ns);
        for (gpu_ns, (name, _)) in self.gpu_ns.iter_mut().zip(TENANTS) {
            *gpu_ns += gpu_ns_of(&end, name).saturating_sub(gpu_ns_of(&begin, name));
        }
        Ok(())
    }

    fn share(&self, tenant: usize) -> f64 {
        self.gpu_ns[tenant] as f64 / self.ns.max(1) as f64
    }

    fn phase(self) -> Phase {
        let answers: Samples = self.answers.into_iter().collect();
        let mean = |of: fn(&HostLoad) -> f64| {
            self.hosts.iter().map(of).sum::<f64>() / self.hosts.len().max(1) as f64
        };
        Phase {
            seconds: self.ns as f64 / 1e9,
            memory_answer_us: Percentiles::of(&answers, 1e3),
            latest_memory_answer_us: answers.quantile(1.0) as f64 / 1e3,
            memory_answers: answers.len(),
            manager_cores: self.manager_cpu_seconds * 1e9 / self.ns.max(1) as f64,
            manager_descriptors: self.manager_descriptors,
            latest_health_ms: self.latest_health_ms,
            host_busy: mean(|host| host.busy()),
            latest_wakeup_ms: self.hosts.iter().map(|host| host.latest_wakeup_ms).fold(0.0, f64::max),
        }
    }
}

fn gpu_ns_of(ledger: &Ledger, name: &str) -> u64 {
    ledger.labels.get(name).map_or(0, |label| label.gpu_ns)
}

/// The manager's figures and the ledger's at one moment.
struct Reading {
    metrics: Metrics,
    ledger: Ledger,
}

impl Reading {
    fn take(bed: &FloodBed, interrupts: &Interrupts) -> anyhow::Result<Self> {
        Ok(Self { metrics: bed.scrape(interrupts)?, ledger: bed.bed.gpu().ledger()? })
    }

    fn sum(&self, metric: &str) -> f64 {
        self.metrics.sum(metric, &[]).unwrap_or(0.0)
    }

    fn rounds_above(&self, bound: &str) -> f64 {
        let below = self.metrics.sum("sluice_event_loop_seconds_bucket", &[&format!("le=\"{bound}\"")]);
        self.sum("sluice_event_loop_seconds_count") - below.unwrap_or(0.0)
    }

    /// By how much the exported share of a tenant since `before` is above the ledger's.
    fn exported_ahead_of(&self, before: &Self, tenant: usize) -> f64 {
        let (name, _) = TENANTS[tenant];
        let ahead = |reading: &Self| {
            let exported = reading.metrics.of_client("sluice_gpu_seconds_total", name).unwrap_or(0.0);
            exported - gpu_ns_of(&reading.ledger, name) as f64 / 1e9
        };
        let seconds = self.ledger.gpu.now_ns.saturating_sub(before.ledger.gpu.now_ns).max(1) as f64 / 1e9;
        (ahead(self) - ahead(before)) / seconds
    }
}

fn rest(time: Duration, interrupts: &Interrupts) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        interrupts.check()?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
