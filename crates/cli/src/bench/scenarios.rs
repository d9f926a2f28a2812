//! `sluice bench scenarios`: what happens to the others when one tenant is limited, idle, killed or greedy, and when the
//! manager is killed. All figures come from the simulated GPU's timeline and ledger.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use sluice_load::samples::Samples;
use sluice_sys::clock::monotonic_ns;

use super::figures::Spread;
use super::timeline::{handovers, last_user, longest_gap, next_start};
use super::troupe::Troupe;
use crate::metrics::Metrics;
use crate::signals::Interrupts;

/// One situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Two tenants, 0.3 and 0.7, for 20 seconds
    Shares,
    /// One tenant alone with a limit of 0.5
    Limit,
    /// Two tenants, of which one goes idle
    Idle,
    /// Four processes of one client fill its memory
    Memory,
    /// Tenants that hold the token are killed
    KillHolder,
    /// The manager is killed, tenants go on without
    KillManagerOpen,
    /// The manager is killed, tenants hold
    KillManagerClosed,
}

const GIB: u64 = 1 << 30;
const TWO: [(&str, f64, f64, u64); 2] = [("be-30", 0.3, 1.0, 4 * GIB), ("be-70", 0.7, 1.0, 4 * GIB)];
const KILLS: usize = 5;

/// Plays the scenarios asked for, or all, and tells people.
pub(crate) fn measure(only: &[Scenario], interrupts: &Interrupts) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for scenario in Scenario::value_variants() {
        if !only.is_empty() && !only.contains(scenario) {
            continue;
        }
        let name = scenario.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let figures = scenario.play(interrupts).with_context(|| format!("scenario {name}"))?;
        writeln!(io::stdout(), "{name:20} {figures}")?;
        all.insert(name, figures);
    }
    Ok(all)
}

impl Scenario {
    fn play(self, interrupts: &Interrupts) -> anyhow::Result<Value> {
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
    let mut troupe = Troupe::new(&TWO, &[], interrupts)?;
    let small = troupe.enter("be-30", "be-30", &[])?;
    let large = troupe.enter("be-70", "be-70", &[])?;
    let from = monotonic_ns();
    troupe.let_pass(Duration::from_secs(20))?;
    let to = monotonic_ns();
    let window = troupe.window(from, to)?;
    let idle: Samples = handovers(&troupe.timeline(from, to)?).collect();
    Ok(json!({
        "share_of_30": window.share_of_busy(small),
        "share_of_70": window.share_of_busy(large),
        "busy": window.share_of_time(small) + window.share_of_time(large),
        "handovers": idle.len(),
        "gpu_idle_at_handover_us": Spread::of(&idle, 1e3),
    }))
}

fn limit(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut troupe = Troupe::new(&[("half", 0.5, 0.5, GIB)], &[], interrupts)?;
    let pid = troupe.enter("half", "half", &[])?;
    let from = monotonic_ns();
    troupe.let_pass(Duration::from_secs(10))?;
    let to = monotonic_ns();
    let stall = longest_gap(&troupe.timeline(from, to)?, &[pid], from, to);
    Ok(json!({ "share": troupe.window(from, to)?.share_of_time(pid), "longest_stall_ms": ms(stall) }))
}

fn idle(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut troupe = Troupe::new(&TWO, &[], interrupts)?;
    let small = troupe.enter("be-30", "be-30", &[])?;
    troupe.enter("be-70", "be-70", &["--idle-after", "3"])?;
    let from = monotonic_ns();
    troupe.let_pass(Duration::from_secs(3))?;
    let before = troupe.window(from, monotonic_ns())?.share_of_busy(small);
    troupe.let_pass(Duration::from_millis(500))?;
    let from = monotonic_ns();
    troupe.let_pass(Duration::from_secs(5))?;
    let after = troupe.window(from, monotonic_ns())?.share_of_time(small);
    Ok(json!({ "share_before": before, "share_of_time_after": after }))
}

fn memory(interrupts: &Interrupts) -> anyhow::Result<Value> {
    // A limit that no chunk size divides.
    let limit = GIB + 12_345;
    let mut troupe = Troupe::new(&[("greedy", 1.0, 1.0, limit)], &[], interrupts)?;
    for process in ["greedy-1", "greedy-2", "greedy-3", "greedy-4"] {
        troupe.enter(process, "greedy", &["--grow", "--duration-us", "200"])?;
    }
    let held = |troupe: &Troupe<'_>| -> anyhow::Result<Vec<u64>> {
        Ok(troupe.ledger()?.processes.iter().map(|process| process.memory_bytes).collect())
    };
    troupe.let_pass(Duration::from_secs(6))?;
    let each = held(&troupe)?;
    let sum: u64 = each.iter().sum();
    Ok(json!({ "limit": limit, "held": sum, "processes": each, "exact": sum == limit }))
}

fn kill_holder(interrupts: &Interrupts) -> anyhow::Result<Value> {
    let mut troupe = Troupe::new(&TWO, &[], interrupts)?;
    troupe.enter("be-30", "be-30", &[])?;
    troupe.enter("be-70", "be-70", &[])?;
    let mut gaps = Vec::new();
    while gaps.len() < KILLS {
        troupe.let_pass(Duration::from_millis(700))?;
        let now = monotonic_ns();
        let holder = last_user(&troupe.timeline(now - 20_000_000, now)?).context("nobody uses the GPU")?;
        let victim =
            troupe.tenants.iter().find(|tenant| tenant.pid() == holder).context("a stranger on the GPU")?;
        let name = victim.name().to_owned();
        let killed = troupe.kill(holder)?;
        let other = troupe.tenants.first().map(crate::supervise::Process::pid).context("nobody is left")?;
        troupe.let_pass(Duration::from_millis(500))?;
        // If the token had just been handed over, this was not its holder: kill once more.
        if let Some(start) = next_start(&troupe.timeline(killed, monotonic_ns())?, other, killed) {
            gaps.push(ms(start - killed));
        }
        troupe.enter(&name, &name, &[])?;
    }
    Ok(json!({ "gap_ms": gaps, "longest_gap_ms": gaps.iter().copied().fold(0.0, f64::max) }))
}

fn kill_manager(interrupts: &Interrupts, on_loss: &str) -> anyhow::Result<Value> {
    let mut troupe = Troupe::new(&TWO, &["--on-manager-loss", on_loss], interrupts)?;
    let small = troupe.enter("be-30", "be-30", &[])?;
    let large = troupe.enter("be-70", "be-70", &[])?;
    troupe.let_pass(Duration::from_secs(2))?;
    let killed = monotonic_ns();
    troupe.stage.kill_manager();
    troupe.let_pass(Duration::from_millis(2000))?;
    let back = monotonic_ns();
    let timeline = troupe.timeline(killed, back)?;
    // What was in flight when the manager died may still end.
    let settled = killed + 300_000_000;
    let without = troupe.window(settled, back)?;
    let busy = without.busy_ns as f64 / (back - settled) as f64;
    let gap = longest_gap(&timeline, &[small, large], killed, back);
    troupe.restart_manager()?;
    let returned = Instant::now();
    while !both_attached(&troupe) {
        if returned.elapsed() > Duration::from_secs(10) {
            bail!("the tenants did not attach to the new manager");
        }
        troupe.look()?;
    }
    let attached_ms = returned.elapsed().as_secs_f64() * 1e3;
    let from = monotonic_ns();
    troupe.let_pass(Duration::from_secs(5))?;
    let window = troupe.window(from, monotonic_ns())?;
    Ok(json!({
        "busy_without_manager": busy,
        "longest_gap_ms": ms(gap),
        "attached_again_ms": attached_ms,
        "share_of_30_afterwards": window.share_of_busy(small),
    }))
}

fn both_attached(troupe: &Troupe<'_>) -> bool {
    Metrics::scrape(troupe.stage.metrics).is_ok_and(|metrics| {
        TWO.iter()
            .all(|(name, ..)| metrics.get("sluice_grants_total", name).is_some_and(|grants| grants > 0.0))
    })
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
