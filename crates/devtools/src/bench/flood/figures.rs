//! The figures of the benchmark beside their bars. Pure functions.

use std::fmt;

use serde::Serialize;

use super::super::Percentiles;
use super::source::{HALF_OPEN, IDLE, VALID};

/// Largest difference of a share to its bar, hundredths of the GPU's time.
const POINTS: f64 = 1.0;
/// Longest answer about memory at p99.
const ANSWER_US: f64 = 1000.0;

/// All figures, and where they come from.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) commit: String,
    pub(super) date: String,
    pub(super) machine: String,
    pub(super) command: String,
    /// /proc/loadavg at the end; it contains this benchmark's own processes.
    pub(super) load_average: String,
    pub(super) tenants: Vec<Tenant>,
    pub(super) quiet: Phase,
    pub(super) flood: Phase,
    pub(super) manager: Manager,
    pub(super) missed: Vec<String>,
}

/// Shares are parts of the GPU's time by the simulator's ledger.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Tenant {
    pub(super) client: &'static str,
    pub(super) entitled: f64,
    pub(super) quiet_share: f64,
    pub(super) flood_share: f64,
    /// The share that the manager exported over the whole run less the ledger's, hundredths of the GPU's time.
    pub(super) exported_off_points: f64,
}

/// What was measured in all blocks without the flood, or with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Phase {
    pub(super) seconds: f64,
    pub(super) memory_answer_us: Percentiles,
    pub(super) latest_memory_answer_us: f64,
    pub(super) memory_answers: usize,
    /// Part of one core that the manager used.
    pub(super) manager_cores: f64,
    /// The most descriptors that the manager had open at the end of a block: the flood's connections are among them.
    pub(super) manager_descriptors: f64,
    /// The latest answer of /healthz.
    pub(super) latest_health_ms: f64,
    /// Part of the processors' time in which they could not run another process at once.
    pub(super) host_busy: f64,
    /// Longest time by which the measuring thread was woken late.
    pub(super) latest_wakeup_ms: f64,
}

/// What the manager counted over the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Manager {
    pub(super) rounds: f64,
    pub(super) rounds_above_1_ms: f64,
    pub(super) rounds_above_2_ms: f64,
    pub(super) rounds_above_5_ms: f64,
    pub(super) log_lines_dropped: f64,
    pub(super) connections_refused: f64,
}

impl Figures {
    /// Compares with the bars.
    pub(super) fn judged(mut self) -> Self {
        self.missed = missed(&self.tenants, &self.flood);
        self
    }

    pub(super) fn is_passed(&self) -> bool {
        self.missed.is_empty()
    }
}

/// The bars that were missed, a sentence each.
fn missed(tenants: &[Tenant], flood: &Phase) -> Vec<String> {
    let mut missed = Vec::new();
    for Tenant { client, entitled, flood_share, exported_off_points, .. } in tenants {
        let off = 100.0 * (flood_share - entitled);
        if off.abs() > POINTS {
            missed.push(format!("share of {client} off by {off:.2} points, expected at most {POINTS}"));
        }
        if exported_off_points.abs() > POINTS {
            let off = exported_off_points;
            missed.push(format!(
                "exported share of {client} off by {off:.2} points, expected at most {POINTS}"
            ));
        }
    }
    let p99 = flood.memory_answer_us.p99;
    if p99 > ANSWER_US {
        missed.push(format!("answer about memory at p99 {p99:.0} µs, expected at most {ANSWER_US}"));
    }
    missed
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "flood: {VALID} connections with requests, garbage, {IDLE} idle ones, {HALF_OPEN} half-open ones"
        )?;
        writeln!(f, "tenant   entitled    quiet    flood   exported off by, points")?;
        for Tenant { client, entitled, quiet_share, flood_share, exported_off_points } in &self.tenants {
            writeln!(
                f,
                "{client:8} {entitled:8.3} {quiet_share:8.3} {flood_share:8.3} {exported_off_points:8.2}"
            )?;
        }
        writeln!(
            f,
            "answers about memory        p50      p99   latest, µs   manager, cores   descriptors   host busy"
        )?;
        for (name, phase) in [("quiet", &self.quiet), ("flood", &self.flood)] {
            let (Percentiles { p50, p99 }, latest) = (phase.memory_answer_us, phase.latest_memory_answer_us);
            let (cores, descriptors) = (phase.manager_cores, phase.manager_descriptors);
            let busy = 100.0 * phase.host_busy;
            writeln!(
                f,
                "  {name:20} {p50:8.0} {p99:8.0} {latest:8.0} {cores:18.2} {descriptors:13.0} {busy:9.0} %"
            )?;
        }
        let Manager {
            rounds,
            rounds_above_1_ms,
            rounds_above_2_ms,
            rounds_above_5_ms,
            log_lines_dropped,
            ..
        } = self.manager;
        writeln!(
            f,
            "rounds of the manager: {rounds:.0}, above 1 ms {rounds_above_1_ms:.0}, above 2 ms {rounds_above_2_ms:.0}, \
             above 5 ms {rounds_above_5_ms:.0}; log lines dropped: {log_lines_dropped:.0}"
        )?;
        self.missed.iter().try_for_each(|why| writeln!(f, "MISSED: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(flood_share: f64, exported_off_points: f64) -> Tenant {
        Tenant { client: "a", entitled: 0.5, quiet_share: 0.5, flood_share, exported_off_points }
    }

    fn phase(p99: f64) -> Phase {
        Phase { memory_answer_us: Percentiles { p50: 50.0, p99 }, ..Phase::default() }
    }

    #[test]
    fn figures_within_their_bars_miss_none() {
        assert!(missed(&[tenant(0.491, -0.9)], &phase(999.0)).is_empty());
    }

    #[test]
    fn each_missed_bar_is_named() {
        let missed = missed(&[tenant(0.48, 0.0), tenant(0.5, 1.5)], &phase(1200.0));
        let words = ["share of a off by -2.00", "exported share of a off by 1.50", "p99 1200 µs"];
        assert_eq!(missed.len(), words.len());
        for (sentence, words) in missed.iter().zip(words) {
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
