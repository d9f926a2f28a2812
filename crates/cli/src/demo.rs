//! `sluice demo`: three tenants share a GPU as separate processes under the real hook. Every promise is checked against the GPU's
//! own measurements.

mod display;
mod oracle;
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
use oracle::Oracle;
use report::{DemoReport, Run, SIMULATED, evaluate};
use tenants::{Class, DemoTenant, TenantPlan};

use crate::quantity::bytes;

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
    let plans = tenants::plans();
    display.print(&introduction(simulated, arguments.seconds, &plans))?;
    let begun = Instant::now();
    let pause = || {
        if begun.elapsed() > LONGEST {
            bail!("the demo exceeded its time limit of {} s", LONGEST.as_secs());
        }
        interrupts.pause()
    };
    let controls = match (arguments.by_token, simulated) {
        (true, _) => "off",
        (false, true) => "simulated",
        (false, false) => "auto",
    };
    let options = TestBedOptions {
        simulated,
        resource_file: tenants::resource_file(&plans),
        manager_flags: vec![format!("--controls={controls}")],
        ..TestBedOptions::default()
    };
    let sluice = std::env::current_exe().context("cannot find this program's path")?;
    let mut bed = TestBed::start(Artifacts::beside(&sluice, simulated)?, options, pause)?;
    let mut oracle = Oracle::find(simulated.then(|| bed.gpu()))?;
    let mut tenants = start_tenants(&bed, &plans, &mut oracle, pause)?;
    for tenant in &mut tenants {
        tenant.load.process.send_line("")?;
    }

    let (begin, from_ns) = (Instant::now(), monotonic_ns());
    let length = Duration::from_secs(arguments.seconds.into());
    let (mut shown, mut scraped) = (begin, false);
    while begin.elapsed() < length {
        pause()?;
        tenants::poll(&mut tenants)?;
        bed.check_running()?;
        if shown.elapsed() >= SNAPSHOT_EVERY {
            shown = Instant::now();
            let reading = oracle.read(&tenants, from_ns, monotonic_ns())?;
            let metrics = Metrics::scrape(bed.metrics_address());
            let metrics = metrics.ok().filter(|metrics| names_all(metrics, &plans));
            scraped |= metrics.is_some();
            let time = (begin.elapsed().as_secs_f64(), length.as_secs_f64());
            let (tenants, metrics) = (&*tenants, metrics.as_ref());
            display.show(&Snapshot { time, tenants, reading: &reading, metrics })?;
        }
    }
    let to_ns = monotonic_ns();
    Tenant::finish_all(tenants.iter_mut().map(|tenant| &mut tenant.load), pause)?;
    let reading = oracle.read(&tenants, from_ns, to_ns)?;
    let run = Run {
        gpu: oracle.gpu,
        seconds: (to_ns - from_ns) as f64 / 1e9,
        busy: reading.busy,
        memory_slack: oracle.memory_slack,
        metrics_scraped: scraped,
    };
    let outcomes =
        tenants.iter().map(|tenant| (tenant.plan.clone(), tenant.outcome(reading.of(tenant.pid()))));
    let report = evaluate(run, &outcomes.collect::<Vec<_>>());
    let critical = tenants.iter().find(|tenant| tenant.plan.class == Class::LatencyCritical);
    let alone = critical.and_then(DemoTenant::latency_alone);
    Ok((report, alone, critical.map(|tenant| tenant.load.lc.latency_us).unwrap_or_default()))
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
            let until = Instant::now() + ALONE;
            while Instant::now() < until {
                tenants::poll(&mut tenants)?;
                pause()?;
            }
        }
    }
    tenants.sort_by_key(|tenant| plans.iter().position(|plan| plan.name == tenant.plan.name));
    Ok(tenants)
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
    let is_named = |metric, tenant: &TenantPlan| metrics.of_client(metric, tenant.name).is_some();
    tenants
        .iter()
        .all(|tenant| is_named("sluice_share", tenant) && is_named("sluice_memory_limit_bytes", tenant))
}

fn introduction(simulated: bool, seconds: u32, tenants: &[TenantPlan]) -> String {
    let gpu = if simulated { "a simulated H200 (no GPU is touched)" } else { "this machine's GPU" };
    let mut text = format!(
        "Three programs share {gpu} for {seconds} seconds, each in a process of its own under libsluice.so:\n"
    );
    for tenant in tenants {
        let promise = match tenant.class {
            Class::BestEffort => {
                format!("always has work; is promised {:.0} % of what lc leaves", tenant.quota * 100.0)
            }
            Class::LatencyCritical => {
                format!(
                    "has a small request every 10 ms, goes first; is promised {:.0} %",
                    tenant.quota * 100.0
                )
            }
        };
        let (name, class, memory) = (tenant.name, tenant.class.name(), bytes(tenant.memory_limit));
        text += &format!("  {name:6} {class:16}  {promise}, {memory} of memory\n");
    }
    text
}

fn summary(report: &DemoReport, alone: Option<Quantiles>, shared: Quantiles) -> String {
    let mut text = format!("\n{}", report.checks);
    if let Some(alone) = alone {
        let [p50, p99, alone_p50, alone_p99] = [shared.p50, shared.p99, alone.p50, alone.p99].map(time);
        text += &format!(
            "  note    lc's requests took {p50} (p50) and {p99} (p99) beside the others, {alone_p50} and {alone_p99} alone\n"
        );
    }
    text += match (report.ok, report.gpu == SIMULATED) {
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
