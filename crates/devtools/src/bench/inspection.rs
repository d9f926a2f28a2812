//! `sluice-dev bench inspection`: processor time of a pod-manager with many attached processes, with and without their inspection.
//!
//! The processes are idle, so that little of the manager's time is spent on grants and controls. A query takes the simulated driver 20 to 40
//! times as long as a real one, so the figure of a simulated GPU is mostly that of the simulated driver.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use sluice_test_bed::{Interrupts, Metrics, Tenant, TestBedOptions};

use super::{Common, Gpu, resource_file, start_bed};
use crate::escapes::uuid_of_first_gpu;

/// Clients, of which each has an equal part of the processes.
const CLIENTS: usize = 10;
/// Flags of the benchmark.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Attached processes
    #[arg(long, default_value_t = 50)]
    processes: usize,
    /// Length of each measurement
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Time after the last process has attached until the measurement begins: inspections become rare
    #[arg(long, default_value_t = 130)]
    settle_seconds: u64,
}

/// What was measured: processor seconds per second.
#[derive(Debug, Serialize)]
struct InspectionFigures {
    processes: usize,
    seconds: u64,
    without: BTreeMap<String, f64>,
    with: BTreeMap<String, f64>,
    /// Of the whole manager, as a part of one core.
    difference: f64,
    violations: f64,
}

/// Measures and prints the figures.
pub(crate) fn measure(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<()> {
    let (without, _) = manager_time(flags, "--adopt=off", interrupts)?;
    let (with, violations) = manager_time(flags, "--adopt=auto", interrupts)?;
    let sum = |times: &BTreeMap<String, f64>| times.values().sum::<f64>();
    let figures = InspectionFigures {
        processes: flags.processes,
        seconds: flags.seconds,
        difference: sum(&with) - sum(&without),
        without,
        with,
        violations,
    };
    let mut out = io::stdout().lock();
    writeln!(out, "processor time of the manager with {} processes, % of a core", figures.processes)?;
    for (name, times) in [("without inspection", &figures.without), ("with inspection", &figures.with)] {
        let threads = times.iter().map(|(thread, time)| format!("{thread} {:.2}", 100.0 * time));
        writeln!(
            out,
            "  {name:20} {:5.2}  ({})",
            100.0 * sum(times),
            threads.collect::<Vec<_>>().join(", ")
        )?;
    }
    writeln!(out, "  difference           {:5.2}", 100.0 * figures.difference)?;
    flags.common.publish(&figures)
}

/// Processor seconds per second of each thread of a manager, and the violations that it has counted.
fn manager_time(
    flags: &Arguments,
    adopt: &str,
    interrupts: &Interrupts,
) -> anyhow::Result<(BTreeMap<String, f64>, f64)> {
    let names: Vec<String> = (0..CLIENTS).map(|n| format!("client-{n}")).collect();
    let clients: Vec<_> = names.iter().map(|name| (name.as_str(), 0.1, 1.0, 8 << 30)).collect();
    let simulated = flags.common.gpu == Gpu::Sim;
    let mut manager_flags = vec![adopt.to_owned()];
    if simulated {
        manager_flags.push("--controls=simulated".to_owned());
    } else {
        manager_flags.extend(["--gpu-uuid".to_owned(), uuid_of_first_gpu()?]);
    }
    let options = TestBedOptions {
        simulated,
        resource_file: resource_file(&clients),
        manager_flags,
        ..TestBedOptions::default()
    };
    let bed = start_bed(options, || interrupts.pause())?;
    let mut tenants = Vec::new();
    for (n, client) in (0..flags.processes).zip(names.iter().cycle()) {
        let load = ["be", "--depth", "1", "--idle-after", "0.1"];
        let mut tenant = Tenant::start(&bed, &format!("process-{n}"), client, load)?;
        tenant.wait_until_started(|| interrupts.pause())?;
        tenants.push(tenant);
    }
    let task = format!("/proc/{}/task", bed.manager_pid().context("the pod-manager has ended")?);
    wait(Duration::from_secs(flags.settle_seconds), interrupts)?;
    let (before, begun) = (times_of_threads(Path::new(&task))?, Instant::now());
    wait(Duration::from_secs(flags.seconds), interrupts)?;
    let after = times_of_threads(Path::new(&task))?;
    let elapsed = begun.elapsed().as_secs_f64();
    let used = |thread: &String, time: f64| (time - before.get(thread).copied().unwrap_or(0.0)) / elapsed;
    let times = after.iter().map(|(thread, time)| (thread.clone(), used(thread, *time))).collect();
    let violations = Metrics::scrape(bed.metrics_address())?.sum("sluice_violations_total", &[]);
    Ok((times, violations.unwrap_or(0.0)))
}

fn wait(time: Duration, interrupts: &Interrupts) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        interrupts.check()?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Processor seconds of each thread so far, by its name.
fn times_of_threads(task: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut times = BTreeMap::new();
    for thread in fs::read_dir(task)? {
        let folder = thread?.path();
        let name = fs::read_to_string(folder.join("comm"))?.trim().to_owned();
        let statistics = fs::read_to_string(folder.join("schedstat"))?;
        let ns: f64 = statistics.split(' ').next().unwrap_or_default().parse().context("schedstat")?;
        *times.entry(name).or_default() += ns / 1e9;
    }
    Ok(times)
}
