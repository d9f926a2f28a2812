//! `sluice-dev bench scenarios`: what happens to the other tenants when one is limited, idle, killed or allocates without end, and
//! when the manager is killed. All figures come from the simulated GPU's timeline and ledger.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use sluice_load::samples::Samples;
use sluice_sys::clock::monotonic_ns;

use super::percentiles::Percentiles;
use super::scenario_bed::ScenarioBed;
use sluice_test_bed::timeline::{handoffs, last_user, longest_gap, next_start};
use sluice_test_bed::{Interrupts, Metrics, Tenant};

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
        let figures = scenario.run(interrupts).with_context(|| format!("scenario {name}"))?;
        writeln!(io::stdout(), "{name:20} {figures}")?;
        all.insert(name, figures);
    }
    Ok(all)
}

impl Scenario {
    fn run(self, interrupts: &Interrupts) -> anyhow::Result<Value> {
        match self {
            Self::Shares => shares(interrupts),
            Self::Limit => limit(interrupts),
            Self::Idle => idle(interrupts),
            Self::Memory => memory(interrupts),
            Self::KillHolder => kill_holder(interrupts),
            Self::KillManagerOpen => kill_manager(interrupts, "open"),
            Self::KillManagerClosed => kill_manager(interrupts, "closed"),
        }
    }
}

fn shares(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&TWO, &[], interrupts)?;
    let small = bed.start_tenant("be-30", "be-30", &[])?;
    let large = bed.start_tenant("be-70", "be-70", &[])?;
    let from = monotonic_ns();
    bed.let_pass(Duration::from_secs(20))?;
    let to = monotonic_ns();
    let window = bed.window(from, to)?;
    let idle: Samples = handoffs(&bed.timeline(from, to)?).collect();
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
    let from = monotonic_ns();
    bed.let_pass(Duration::from_secs(10))?;
    let to = monotonic_ns();
    let stall = longest_gap(&bed.timeline(from, to)?, &[pid], from, to);
    Ok(json!({ "share": bed.window(from, to)?.share_of_time(pid), "longest_stall_ms": ms(stall) }))
}

fn idle(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&TWO, &[], interrupts)?;
    let small = bed.start_tenant("be-30", "be-30", &[])?;
    bed.start_tenant("be-70", "be-70", &["--idle-after", "3"])?;
    let from = monotonic_ns();
    bed.let_pass(Duration::from_secs(3))?;
    let before = bed.window(from, monotonic_ns())?.share_of_busy(small);
    bed.let_pass(Duration::from_millis(500))?;
    let from = monotonic_ns();
    bed.let_pass(Duration::from_secs(5))?;
    let after = bed.window(from, monotonic_ns())?.share_of_time(small);
    Ok(json!({ "share_before": before, "share_of_time_after": after }))
}

fn memory(interrupts: &Interrupts) -> anyhow::Result<Value> {
    // A limit that no chunk size divides.
    let limit = GIB + 12_345;
    let mut bed = ScenarioBed::new(&[("greedy", 1.0, 1.0, limit)], &[], interrupts)?;
    for process in ["greedy-1", "greedy-2", "greedy-3", "greedy-4"] {
        bed.start_tenant(process, "greedy", &["--grow", "--duration-us", "200"])?;
    }
    let held = |bed: &ScenarioBed<'_>| -> anyhow::Result<Vec<u64>> {
        Ok(bed.ledger()?.processes.iter().map(|process| process.memory_bytes).collect())
    };
    bed.let_pass(Duration::from_secs(6))?;
    let each = held(&bed)?;
    let sum: u64 = each.iter().sum();
    Ok(json!({ "limit": limit, "held": sum, "processes": each, "exact": sum == limit }))
}

fn kill_holder(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&TWO, &[], interrupts)?;
    bed.start_tenant("be-30", "be-30", &[])?;
    bed.start_tenant("be-70", "be-70", &[])?;
    let mut gaps = Vec::new();
    while gaps.len() < KILLS {
        bed.let_pass(Duration::from_millis(700))?;
        let now = monotonic_ns();
        let holder = last_user(&bed.timeline(now - 20_000_000, now)?).context("no process uses the GPU")?;
        let victim = bed
            .tenants
            .iter()
            .find(|tenant| tenant.pid() == holder)
            .context("an unknown process on the GPU")?;
        let name = victim.name().to_owned();
        let killed = bed.kill(holder)?;
        let other = bed.tenants.first().map(Tenant::pid).context("no tenant is left")?;
        bed.let_pass(Duration::from_millis(500))?;
        // If the token had just been handed over, this was not its holder: repeat.
        if let Some(start) = next_start(&bed.timeline(killed, monotonic_ns())?, other, killed) {
            gaps.push(ms(start - killed));
        }
        bed.start_tenant(&name, &name, &[])?;
    }
    Ok(json!({ "gap_ms": gaps, "longest_gap_ms": gaps.iter().copied().fold(0.0, f64::max) }))
}

fn kill_manager(interrupts: &Interrupts, on_loss: &str) -> anyhow::Result<Value> {
    let mut bed = ScenarioBed::new(&TWO, &["--on-manager-loss", on_loss], interrupts)?;
    let small = bed.start_tenant("be-30", "be-30", &[])?;
    let large = bed.start_tenant("be-70", "be-70", &[])?;
    bed.let_pass(Duration::from_secs(2))?;
    let killed = monotonic_ns();
    bed.bed.kill_manager();
    bed.let_pass(Duration::from_millis(2000))?;
    let back = monotonic_ns();
    let timeline = bed.timeline(killed, back)?;
    // Kernels in flight when the manager was killed may still end.
    let settled = killed + 300_000_000;
    let without = bed.window(settled, back)?;
    let busy = without.busy_ns as f64 / (back - settled) as f64;
    let gap = longest_gap(&timeline, &[small, large], killed, back);
    bed.restart_manager()?;
    let returned = Instant::now();
    while !both_attached(&bed) {
        if returned.elapsed() > Duration::from_secs(10) {
            bail!("the tenants did not attach to the new manager");
        }
        bed.pause()?;
    }
    let attached_ms = returned.elapsed().as_secs_f64() * 1e3;
    let from = monotonic_ns();
    bed.let_pass(Duration::from_secs(5))?;
    let window = bed.window(from, monotonic_ns())?;
    Ok(json!({
        "busy_without_manager": busy,
        "longest_gap_ms": ms(gap),
        "attached_again_ms": attached_ms,
        "share_of_30_afterwards": window.share_of_busy(small),
    }))
}

fn both_attached(bed: &ScenarioBed<'_>) -> bool {
    Metrics::scrape(bed.bed.metrics_address()).is_ok_and(|metrics| {
        TWO.iter().all(|(name, ..)| {
            metrics.of_client("sluice_grants_total", name).is_some_and(|grants| grants > 0.0)
        })
    })
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
