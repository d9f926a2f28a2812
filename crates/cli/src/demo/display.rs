//! The demo's progress: a block that is redrawn on a terminal, or a line every two seconds elsewhere.

use std::io::{self, IsTerminal, Write};

use sluice_test_bed::Metrics;

use super::oracle::OracleReading;
use super::tenants::{Class, DemoTenant};
use crate::quantity::bytes;

/// Cells of a full bar.
const BAR: usize = 30;
/// Without a terminal, one of so many snapshots becomes a line.
const LINE_EVERY: u32 = 4;

/// State of the run at one time.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// Seconds since the best-effort tenants began, and length of the run in seconds.
    pub(crate) time: (f64, f64),
    pub(crate) tenants: &'a [DemoTenant],
    pub(crate) reading: &'a OracleReading,
    /// The manager's metrics, if they could be scraped.
    pub(crate) metrics: Option<&'a Metrics>,
}

/// Where progress goes: standard output.
#[derive(Debug)]
pub(crate) struct Display {
    terminal: bool,
    /// Lines of the block that is on the terminal.
    drawn: usize,
    snapshots: u32,
}

impl Display {
    /// Standard output, a terminal or not.
    pub(crate) fn new() -> Self {
        Self { terminal: io::stdout().is_terminal(), drawn: 0, snapshots: 0 }
    }

    /// Prints lines that stay.
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        self.drawn = 0;
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    /// Shows a snapshot in place of the previous one.
    pub(crate) fn show(&mut self, snapshot: &Snapshot<'_>) -> io::Result<()> {
        self.snapshots += 1;
        let mut out = io::stdout().lock();
        if self.terminal {
            let block = block(snapshot);
            if self.drawn > 0 {
                write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
            }
            self.drawn = block.len();
            for line in block {
                writeln!(out, "{line}")?;
            }
        } else if self.snapshots.is_multiple_of(LINE_EVERY) {
            writeln!(out, "{}", line(snapshot))?;
        }
        out.flush()
    }
}

fn block(snapshot: &Snapshot<'_>) -> Vec<String> {
    let ((now, end), busy) = (snapshot.time, snapshot.reading.busy * 100.0);
    let mut lines = vec![format!("  {now:2.0} s of {end:.0}    the GPU worked {busy:.0} % of the time")];
    for tenant in snapshot.tenants {
        let share = share(snapshot, tenant);
        let reading = snapshot.reading.of(tenant.pid());
        let promise = match tenant.plan.class {
            Class::BestEffort => format!("quota {:2.0} %", tenant.plan.quota * 100.0),
            Class::LatencyCritical => "goes first".to_owned(),
        };
        let memory = format!("{} of {}", bytes(reading.memory), bytes(tenant.plan.memory_limit));
        lines.push(format!(
            "  {:6} {promise:10}  {:5.1} % {:BAR$}  memory {memory}{}",
            tenant.plan.name,
            share * 100.0,
            bar(share),
            refusals(tenant)
        ));
    }
    let critical = snapshot.tenants.iter().filter(|tenant| tenant.plan.class == Class::LatencyCritical);
    lines.extend(critical.map(latency));
    lines.extend(snapshot.metrics.map(|metrics| format!("  metrics: {}", tokens(snapshot.tenants, metrics))));
    lines
}

fn line(snapshot: &Snapshot<'_>) -> String {
    let mut text = format!("{:4.0} s", snapshot.time.0);
    for tenant in snapshot.tenants {
        match tenant.plan.class {
            Class::BestEffort => {
                let reading = snapshot.reading.of(tenant.pid());
                text += &format!(
                    "  | {} {:.1} % (quota {:.0} %), {}{}",
                    tenant.plan.name,
                    share(snapshot, tenant) * 100.0,
                    tenant.plan.quota * 100.0,
                    bytes(reading.memory),
                    refusals(tenant)
                );
            }
            Class::LatencyCritical => {
                let us = tenant.load.lc.latency_us;
                text += &format!("  | {} p50 {} p99 {}", tenant.plan.name, time(us.p50), time(us.p99));
            }
        }
    }
    text
}

/// Share of the best-effort GPU time for best-effort tenants, of all time for the others.
fn share(snapshot: &Snapshot<'_>, tenant: &DemoTenant) -> f64 {
    let gpu_ns = |tenant: &DemoTenant| snapshot.reading.of(tenant.pid()).gpu_ns as f64;
    let best_effort = snapshot.tenants.iter().filter(|tenant| tenant.plan.class == Class::BestEffort);
    let whole = match tenant.plan.class {
        Class::BestEffort => best_effort.map(gpu_ns).sum(),
        Class::LatencyCritical => snapshot.time.0 * 1e9,
    };
    gpu_ns(tenant) / whole.max(1.0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=BAR")]
fn bar(share: f64) -> String {
    "#".repeat((share * BAR as f64).round().clamp(0.0, BAR as f64) as usize)
}

fn refusals(tenant: &DemoTenant) -> String {
    match tenant.load.be.denied {
        0 => String::new(),
        denied => format!(", {denied} requests refused"),
    }
}

fn latency(tenant: &DemoTenant) -> String {
    let (name, requests, us) = (tenant.plan.name, tenant.load.lc.requests, tenant.load.lc.latency_us);
    format!("  {name} answered {requests} requests: p50 {}, p99 {}", time(us.p50), time(us.p99))
}

fn tokens(tenants: &[DemoTenant], metrics: &Metrics) -> String {
    let best_effort = tenants.iter().filter(|tenant| tenant.plan.class == Class::BestEffort);
    let parts = best_effort.filter_map(|tenant| {
        let name = tenant.plan.name;
        let held = metrics.of_client("sluice_token_held_seconds_total", name)?;
        let grants = metrics.of_client("sluice_grants_total", name)?;
        Some(format!("{name} {grants:.0} tokens, held {held:.1} s"))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Formats microseconds.
pub(crate) fn time(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} µs") } else { format!("{:.2} ms", us / 1000.0) }
}
