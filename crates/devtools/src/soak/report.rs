//! What the soak has found.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::census::Usage;
use super::disturbances::Targets;
use super::node::SoakNode;
use super::tenant_node::TenantNode;

/// Broken statements that are listed; further ones are counted.
const LISTED: usize = 40;

/// Statements with the number of their checks, the broken ones, and figures.
#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    seed: u64,
    rounds: u64,
    ok: bool,
    /// How often each statement was checked.
    checked: BTreeMap<&'static str, u64>,
    broken: Vec<String>,
    broken_not_listed: u64,
    disturbances: BTreeMap<&'static str, u64>,
    pub(super) figures: Figures,
    #[serde(skip)]
    place: String,
}

/// Totals of the run.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    pub(super) with_agent: bool,
    pub(super) seconds: f64,
    pub(super) calls: u64,
    pub(super) allocations_refused: u64,
    pub(super) kernels_verified: u64,
    pub(super) processes: u64,
    pub(super) kernels_completed: u64,
    /// How often the memory of a process left the second node's GPU or returned.
    pub(super) moves: u64,
    /// A daemon with no process attached, and the quiet states of the process that was observed longest.
    pub(super) idle: BTreeMap<&'static str, Usage>,
    pub(super) observed: BTreeMap<&'static str, Vec<Usage>>,
}

impl Findings {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ok: true, place: "start".to_owned(), ..Self::default() }
    }

    /// Names the round in which statements are broken from here on.
    pub(super) fn begin_round(&mut self, round: u64, targets: Targets) {
        self.rounds = round;
        self.place = format!("round {round} ({targets:?})");
    }

    /// Names the part of the end in which statements are broken from here on.
    pub(super) fn begin(&mut self, place: &str) {
        self.place = place.to_owned();
    }

    /// Checks a statement; `found` describes the case in which it does not hold.
    pub(super) fn check(&mut self, statement: &'static str, holds: bool, found: impl FnOnce() -> String) {
        *self.checked.entry(statement).or_default() += 1;
        if !holds {
            self.broken(statement, &found());
        }
    }

    /// Records a broken statement.
    pub(super) fn broken(&mut self, statement: &'static str, found: &str) {
        self.ok = false;
        self.checked.entry(statement).or_default();
        if self.broken.len() < LISTED {
            self.broken.push(format!("{}: not so: {statement}: {found}", self.place));
        } else {
            self.broken_not_listed += 1;
        }
    }

    pub(super) fn count_disturbance(&mut self, kind: &'static str) {
        *self.disturbances.entry(kind).or_default() += 1;
    }

    pub(super) fn is_ok(&self) -> bool {
        self.ok
    }

    /// Takes the last figures.
    pub(super) fn finish(&mut self, node: &SoakNode) {
        self.figures.with_agent = node.has_agent();
        if let Ok(ledger) = node.gpu().ledger() {
            self.figures.processes = ledger.processes.len() as u64;
            self.figures.kernels_completed = ledger.processes.iter().map(|row| row.kernels_completed).sum();
        }
    }

    pub(super) fn print_progress(&self, elapsed: Duration) -> io::Result<()> {
        let (place, broken) = (&self.place, self.broken.len());
        let seconds = elapsed.as_secs();
        writeln!(io::stdout(), "{seconds:>5} s  {place}: {} calls, {broken} broken", self.figures.calls)
    }

    /// Writes everything as JSON.
    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (statement, times) in &self.checked {
            let broken = self.broken.iter().any(|line| line.contains(&format!("not so: {statement}:")));
            writeln!(f, "  {}  {statement} ({times} times)", if broken { "FAILED" } else { "ok    " })?;
        }
        let Figures { calls, kernels_verified, allocations_refused, processes, moves, .. } = &self.figures;
        writeln!(
            f,
            "{} rounds, {processes} processes, {calls} calls, {kernels_verified} kernels verified, {allocations_refused} allocations refused, {moves} moves",
            self.rounds
        )?;
        let disturbances = self.disturbances.iter().map(|(kind, times)| format!("{times} {kind}"));
        writeln!(f, "disturbances: {}", disturbances.collect::<Vec<_>>().join(", "))?;
        for line in &self.broken {
            writeln!(f, "BROKEN  {line}")?;
        }
        if self.broken_not_listed > 0 {
            writeln!(f, "BROKEN  {} more", self.broken_not_listed)?;
        }
        let outcome = if self.is_ok() { "every statement held" } else { "statements are broken" };
        write!(f, "seed {}: {outcome}", self.seed)
    }
}
