//! `sluice demo`: three tenants share a GPU as separate processes under the real hook. Every promise is checked against the GPU's
//! own measurements.

mod device_oracle;
mod display;
mod oracle;
mod plan;
mod report;
mod tenants;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use sluice_load::driver::Driver;
use sluice_load::samples::Quantiles;
use sluice_sys::clock::monotonic_ns;

use sluice_test_bed::{Artifacts, Interrupts, Metrics, Tenant, TestBed, TestBedOptions};

use display::{Display, Snapshot, time};
use oracle::{Oracle, OracleReading};
use plan::{Class, TenantPlan};
use report::{DemoReport, Run, evaluate};
use tenants::DemoTenant;

/// How long the latency-critical tenant has the GPU to itself, to measure its latency alone.
const ALONE: Duration = Duration::from_millis(1500);
/// Time limit, so that the demo ends within a minute.
const LONGEST: Duration = Duration::from_secs(57);
/// Time between two snapshots on the terminal.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(500);

/// Flags of `sluice demo`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How long the tenants share the GPU
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=40))]
    seconds: u32,
    /// Which GPU: a real one if a driver finds one, otherwise a simulated one
    #[arg(long, value_enum, default_value_t = Gpu::Auto)]
    gpu: Gpu,
    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Schedule by token alone, without the GPU's controls
    #[arg(long)]
    by_token: bool,
}

impl Arguments {
    /// Value of the pod-manager's flag `--controls`.
    fn controls(&self, simulated: bool) -> &'static str {
        match (self.by_token, simulated) {
            (true, _) => "off",
            (false, true) => "simulated",
            (false, false) => "auto",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Gpu {
    /// Real if there is one, else simulated
    Auto,
    /// Simulated
    Sim,
    /// Real
    Real,
}

/// Runs the demo. The exit code is 0 if every check holds.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let interrupts = Interrupts::block()?;
    let mut display = Display::new();
    let (report, alone, shared) = perform(arguments, &interrupts, &mut display)?;
    display.print(&summary(&report, alone, shared))?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn perform(
    arguments: &Arguments,
    interrupts: &Interrupts,
    display: &mut Display,
) -> anyhow::Result<(DemoReport, Option<Quantiles>, Quantiles)> {
    let simulated = is_simulated(arguments.gpu)?;
    let plans = plan::tenants();
    display.print(&introduction(simulated, arguments.seconds, &plans))?;
    let begun = Instant::now();
    let pause = || {
        if begun.elapsed() > LONGEST {
            bail!("the demo exceeded its time limit of {} s", LONGEST.as_secs());
        }
        interrupts.pause()
    };
    let options = TestBedOptions {
        simulated,
        resource_file: plan::resource_file(&plans),
        manager_flags: vec![format!("--controls={}", arguments.controls(simulated))],
        ..TestBedOptions::default()
    };
    let sluice = std::env::current_exe().context("cannot find this program's path")?;
    let mut bed = TestBed::start(Artifacts::beside(&sluice, simulated)?, options, pause)?;
    let mut oracle = Oracle::find(simulated.then(|| bed.gpu()))?;
    let mut tenants = start_tenants(&bed, &plans, &mut oracle, pause)?;
    for tenant in &mut tenants {
        tenant.process.process().send_line("")?;
    }

    let (begin, from_ns) = (Instant::now(), monotonic_ns());
    let length = Duration::from_secs(arguments.seconds.into());
    let (mut shown, mut scraped) = (begin, None);
    while begin.elapsed() < length {
        pause()?;
        tenants::poll(&mut tenants)?;
        bed.check_running()?;
        if shown.elapsed() >= SNAPSHOT_EVERY {
            shown = Instant::now();
            let reading = oracle.read(&tenants, from_ns, monotonic_ns())?;
            let metrics = Metrics::scrape(bed.metrics_address());
            let metrics = metrics.ok().filter(|metrics| names_all(metrics, &plans));
            let time = (begin.elapsed().as_secs_f64(), length.as_secs_f64());
            display.show(&Snapshot {
                time,
                tenants: &tenants,
                reading: &reading,
                metrics: metrics.as_ref(),
            })?;
            scraped = metrics.or(scraped);
        }
    }
    let to_ns = monotonic_ns();
    Tenant::finish_all(tenants.iter_mut().map(|tenant| &mut tenant.process), pause)?;
    let reading = oracle.read(&tenants, from_ns, to_ns)?;
    let run = Run {
        gpu: oracle.gpu(),
        seconds: (to_ns - from_ns) as f64 / 1e9,
        busy: reading.busy,
        memory_slack: oracle.memory_slack(),
        metrics_scraped: scraped.is_some(),
    };
    Ok(conclude(run, &tenants, &reading))
}

/// Starts the tenants one after the other, the latency-critical one first, so that the growth of the GPU's memory belongs to one
/// tenant. The latency-critical one then has the GPU alone for a while. Returns the tenants in the order of `plans`.
fn start_tenants(
    bed: &TestBed,
    plans: &[TenantPlan],
    oracle: &mut Oracle,
    pause: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<DemoTenant>> {
    let mut order: Vec<&TenantPlan> = plans.iter().collect();
    order.sort_by_key(|plan| plan.class != Class::LatencyCritical);
    let mut tenants = Vec::new();
    for plan in order {
        let tenant = DemoTenant::start(bed, plan, &pause)?;
        oracle.register(&tenant)?;
        tenants.push(tenant);
        if plan.class == Class::LatencyCritical {
            tenants::poll_for(ALONE, &mut tenants, &pause)?;
        }
    }
    tenants.sort_by_key(|tenant| plans.iter().position(|plan| plan.name == tenant.plan.name));
    Ok(tenants)
}

fn conclude(
    run: Run,
    tenants: &[DemoTenant],
    reading: &OracleReading,
) -> (DemoReport, Option<Quantiles>, Quantiles) {
    let outcomes: Vec<_> = tenants
        .iter()
        .map(|tenant| (tenant.plan.clone(), tenant.outcome(reading.of(tenant.process.pid()))))
        .collect();
    let critical = tenants.iter().find(|tenant| tenant.plan.class == Class::LatencyCritical);
    let alone = critical.and_then(DemoTenant::latency_alone);
    let shared = critical.map(|tenant| tenant.process.lc.latency_us).unwrap_or_default();
    (evaluate(run, &outcomes), alone, shared)
}

/// Whether the GPU is simulated: `auto` simulates unless a driver finds a device.
fn is_simulated(gpu: Gpu) -> anyhow::Result<bool> {
    let count = || Driver::open().and_then(|driver| driver.device_count());
    match gpu {
        Gpu::Sim => Ok(true),
        Gpu::Auto => Ok(!matches!(count(), Ok(1..))),
        Gpu::Real => match count().context("there is no real GPU to use")? {
            1.. => Ok(false),
            _ => bail!("the driver finds no GPU"),
        },
    }
}

fn names_all(metrics: &Metrics, tenants: &[TenantPlan]) -> bool {
    tenants.iter().all(|tenant| {
        ["sluice_share", "sluice_memory_limit_bytes"]
            .iter()
            .all(|metric| metrics.of_client(metric, tenant.name).is_some())
    })
}

fn introduction(simulated: bool, seconds: u32, tenants: &[TenantPlan]) -> String {
    let gpu = if simulated { "a simulated H200 (no GPU is touched)" } else { "this machine's GPU" };
    let mut text = format!(
        "Three programs share {gpu} for {seconds} seconds, each in a process of its own under libsluice.so:\n"
    );
    for tenant in tenants {
        let promise = match tenant.class {
            Class::BestEffort => {
                format!("always has work; is promised {:.0} % of the GPU", tenant.quota * 100.0)
            }
            Class::LatencyCritical => {
                "has a small request every 10 ms and never waits for a token".to_owned()
            }
        };
        text += &format!(
            "  {:6} {:16}  {promise}, {} of memory\n",
            tenant.name,
            tenant.class.name(),
            crate::quantity::bytes(tenant.memory_limit)
        );
    }
    text
}

fn summary(report: &DemoReport, alone: Option<Quantiles>, shared: Quantiles) -> String {
    let mut text = format!("\n{}", report.checks);
    if let Some(alone) = alone {
        text += &format!(
            "  note    lc's requests took {} (p50) and {} (p99) beside the others, {} and {} alone\n",
            time(shared.p50),
            time(shared.p99),
            time(alone.p50),
            time(alone.p99)
        );
    }
    text += match (report.ok, report.is_simulated()) {
        (true, true) => {
            "\nEvery promise was kept. Shares, memory and kernel counts come from the simulated GPU's own ledger, not from tenants or manager."
        }
        (true, false) => {
            "\nEvery promise was kept. Memory is NVML's figure, and the counted kernels are proven by the contents of memory."
        }
        (false, _) => "\nNot every promise was kept: see FAILED above.",
    };
    text
}
