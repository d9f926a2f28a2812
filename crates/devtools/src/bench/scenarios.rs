//! `sluice-dev bench scenarios`: what happens to the other tenants when one is limited, idle, killed or allocates without end, and
//! when the manager is killed. All figures come from the simulated GPU's timeline and ledger.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use sluice_load::samples::Samples;
use sluice_sim::ledger::Window;
use sluice_sys::clock::monotonic_ns;
use sluice_test_bed::timeline::{handoffs, longest_gap, next_start};
use sluice_test_bed::{Interrupts, Metrics, Tenant, TestBed, TestBedOptions};

use super::{Percentiles, resource_file, start_bed};

/// One situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Two tenants, 0.3 and 0.7, for 20 seconds
    Shares,
    /// One tenant alone with a limit of 0.5
    Limit,
    /// Two tenants, of which one becomes idle
    Idle,
    /// Four processes of one client fill its memory
    Memory,
    /// Tenants that hold the token are killed
    KillHolder,
    /// The manager is killed, tenants go on without it
    KillManagerOpen,
    /// The manager is killed, tenants hold their launches
    KillManagerClosed,
}

const GIB: u64 = 1 << 30;
const TWO: [(&str, f64, f64, u64); 2] = [("be-30", 0.3, 1.0, 4 * GIB), ("be-70", 0.7, 1.0, 4 * GIB)];
const KILLS: usize = 5;

/// Runs the scenarios in `only`, or all of them, and prints the figures.
pub(crate) fn measure(only: &[Scenario], interrupts: &Interrupts) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for scenario in Scenario::value_variants() {
        if !only.is_empty() && !only.contains(scenario) {
            continue;
        }
        let name = scenario.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let figures = match scenario {
            Scenario::Shares => shares(interrupts),
            Scenario::Limit => limit(interrupts),
            Scenario::Idle => idle(interrupts),
            Scenario::Memory => memory(interrupts),
            Scenario::KillHolder => kill_holder(interrupts),
            Scenario::KillManagerOpen => kill_manager(interrupts, "open"),
            Scenario::KillManagerClosed => kill_manager(interrupts, "closed"),
        };
        let figures = figures.with_context(|| format!("scenario {name}"))?;
        writeln!(io::stdout(), "{name:20} {figures}")?;
        all.insert(name, figures);
    }
    Ok(all)
}

/// A simulated GPU with a manager and best-effort tenants that come and go. Tenants are dropped before the bed.
struct ScenarioBed<'a> {
    tenants: Vec<Tenant>,
    bed: TestBed,
    interrupts: &'a Interrupts,
}

impl<'a> ScenarioBed<'a> {
    /// A bed for these clients, (name, request, limit, memory), with further flags of the manager.
    fn new(
        clients: &[(&str, f64, f64, u64)],
        manager_flags: &[&str],
        interrupts: &'a Interrupts,
    ) -> anyhow::Result<Self> {
        let options = TestBedOptions {
            simulated: true,
            resource_file: resource_file(clients),
            manager_flags: manager_flags.iter().map(|flag| (*flag).to_owned()).collect(),
            ..TestBedOptions::default()
        };
        let bed = start_bed(options, || interrupts.pause())?;
        Ok(Self { tenants: Vec::new(), bed, interrupts })
    }

    /// Starts a best-effort process of a client and waits for its first kernel. Returns its pid.
    fn start_tenant(&mut self, name: &str, client: &str, flags: &[&str]) -> anyhow::Result<i32> {
        let load = ["be", "--depth", "4"].iter().chain(flags);
        let mut tenant = Tenant::start(&self.bed, name, client, load)?;
        tenant.wait_until_started(|| self.interrupts.pause())?;
        let pid = tenant.process.pid();
        self.tenants.push(tenant);
        Ok(pid)
    }

    /// Starts the tenants of [`TWO`], the second one with these flags. Returns their pids.
    fn start_two(&mut self, flags: &[&str]) -> anyhow::Result<[i32; 2]> {
        Ok([self.start_tenant("be-30", "be-30", &[])?, self.start_tenant("be-70", "be-70", flags)?])
    }

    /// Waits for `time` while tenants run. Returns the span of CLOCK_MONOTONIC, nanoseconds.
    fn let_pass(&mut self, time: Duration) -> anyhow::Result<(u64, u64)> {
        let (from, until) = (monotonic_ns(), Instant::now() + time);
        while Instant::now() < until {
            self.tenants.iter_mut().try_for_each(Tenant::poll)?;
            self.interrupts.pause()?;
        }
        Ok((from, monotonic_ns()))
    }

    /// Use of the GPU while tenants run for `time`.
    fn measure(&mut self, time: Duration) -> anyhow::Result<Window> {
        let (from, to) = self.let_pass(time)?;
        self.bed.gpu().window(from, to)
    }

    fn both_attached(&self) -> bool {
        Metrics::scrape(self.bed.metrics_address()).is_ok_and(|metrics| {
            let grants = |name| metrics.of_client("sluice_grants_total", name);
            TWO.iter().all(|(name, ..)| grants(name).is_some_and(|grants| grants > 0.0))
        })
    }
}

fn shares(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&TWO, &[], interrupts)?;
    let [small, large] = bed.start_two(&[])?;
    let (from, to) = bed.let_pass(Duration::from_secs(20))?;
    let window = bed.bed.gpu().window(from, to)?;
    let idle: Samples = handoffs(&bed.bed.gpu().timeline(from, to)?).collect();
    Ok(json!({
        "share_of_30": window.share_of_busy(small),
        "share_of_70": window.share_of_busy(large),
        "busy": window.share_of_time(small) + window.share_of_time(large),
        "handovers": idle.len(),
        "gpu_idle_at_handover_us": Percentiles::of(&idle, 1e3),
    }))
}

fn limit(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&[("half", 0.5, 0.5, GIB)], &[], interrupts)?;
    let pid = bed.start_tenant("half", "half", &[])?;
    let (from, to) = bed.let_pass(Duration::from_secs(10))?;
    let gpu = bed.bed.gpu();
    let stall = longest_gap(&gpu.timeline(from, to)?, &[pid], from, to);
    Ok(json!({ "share": gpu.window(from, to)?.share_of_time(pid), "longest_stall_ms": ms(stall) }))
}

fn idle(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&TWO, &[], interrupts)?;
    let [small, _] = bed.start_two(&["--idle-after", "3"])?;
    let before = bed.measure(Duration::from_secs(3))?.share_of_busy(small);
    bed.let_pass(Duration::from_millis(500))?;
    let after = bed.measure(Duration::from_secs(5))?.share_of_time(small);
    Ok(json!({ "share_before": before, "share_of_time_after": after }))
}

fn memory(interrupts: &Interrupts) -> anyhow::Result<Value> {
    // A limit that no chunk size divides.
    let limit = GIB + 12_345;
    let mut bed = ScenarioBed::new(&[("greedy", 1.0, 1.0, limit)], &[], interrupts)?;
    for process in ["greedy-1", "greedy-2", "greedy-3", "greedy-4"] {
        bed.start_tenant(process, "greedy", &["--grow", "--duration-us", "200"])?;
    }
    bed.let_pass(Duration::from_secs(6))?;
    let ledger = bed.bed.gpu().ledger()?;
    let each: Vec<u64> = ledger.processes.iter().map(|process| process.memory_bytes).collect();
    let sum: u64 = each.iter().sum();
    Ok(json!({ "limit": limit, "held": sum, "processes": each, "exact": sum == limit }))
}

fn kill_holder(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&TWO, &[], interrupts)?;
    bed.start_two(&[])?;
    let gpu = bed.bed.gpu();
    let mut gaps = Vec::new();
    while gaps.len() < KILLS {
        let (_, now) = bed.let_pass(Duration::from_millis(700))?;
        let recent = gpu.timeline(now - 20_000_000, now)?;
        let holder = recent.last().context("no process uses the GPU")?.pid;
        let place = bed.tenants.iter().position(|tenant| tenant.process.pid() == holder);
        let mut victim = bed.tenants.swap_remove(place.context("an unknown process on the GPU")?);
        let name = victim.process.name().to_owned();
        let killed = monotonic_ns();
        victim.process.kill();
        let other = bed.tenants.first().context("no tenant is left")?.process.pid();
        let (_, now) = bed.let_pass(Duration::from_millis(500))?;
        // If the token had just been handed over, this was not its holder: repeat.
        if let Some(start) = next_start(&gpu.timeline(killed, now)?, other, killed) {
            gaps.push(ms(start - killed));
        }
        bed.start_tenant(&name, &name, &[])?;
    }
    Ok(json!({ "gap_ms": gaps, "longest_gap_ms": gaps.iter().copied().fold(0.0, f64::max) }))
}

fn kill_manager(interrupts: &Interrupts, on_loss: &str) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&TWO, &["--on-manager-loss", on_loss], interrupts)?;
    let [small, large] = bed.start_two(&[])?;
    bed.let_pass(Duration::from_secs(2))?;
    let (gpu, killed) = (bed.bed.gpu(), monotonic_ns());
    bed.bed.kill_manager();
    let (_, back) = bed.let_pass(Duration::from_secs(2))?;
    // Kernels in flight when the manager was killed may still end.
    let settled = killed + 300_000_000;
    let busy = gpu.window(settled, back)?.busy_ns as f64 / (back - settled) as f64;
    let gap = longest_gap(&gpu.timeline(killed, back)?, &[small, large], killed, back);
    bed.bed.start_manager(|| interrupts.pause())?;
    let returned = Instant::now();
    while !bed.both_attached() {
        if returned.elapsed() > Duration::from_secs(10) {
            bail!("the tenants did not attach to the new manager");
        }
        interrupts.pause()?;
    }
    let attached_ms = returned.elapsed().as_secs_f64() * 1e3;
    let window = bed.measure(Duration::from_secs(5))?;
    Ok(json!({
        "busy_without_manager": busy,
        "longest_gap_ms": ms(gap),
        "attached_again_ms": attached_ms,
        "share_of_30_afterwards": window.share_of_busy(small),
    }))
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
