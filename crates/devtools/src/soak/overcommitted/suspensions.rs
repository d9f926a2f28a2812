//! The clients that the soak has suspended, and what must hold for them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_sim::ledger::Ledger;
use sluice_test_bed::Interrupts;

use super::super::report::Findings;
use super::super::tenant_node::TenantNode;
use super::super::witness::memory;
use super::checks::agree;
use super::node::{CLIENTS, OvercommittedNode};

/// Time between two readings.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After the manager has reported a suspension, what a latency-critical client has submitted before runs on: some kernels of 10 ms at most.
const SUBMITTED: Duration = Duration::from_secs(1);
/// How long the last check of a round observes suspended clients.
const OBSERVED: Duration = Duration::from_millis(500);

/// What was seen of a suspended client.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Since when the manager has reported that it is suspended.
    since: Option<Instant>,
    /// Its completed kernels, once none of those can run that it had submitted before.
    kernels: Option<u64>,
}

/// The suspended clients.
#[derive(Debug, Default)]
pub(super) struct Suspensions {
    suspended: BTreeMap<&'static str, Seen>,
    looked: Option<Instant>,
    /// The manager was disturbed in this round.
    is_unsettled: bool,
}

impl Suspensions {
    /// Suspends a client, or resumes one that is suspended. Returns whether it is suspended now.
    pub(super) fn toggle(&mut self, node: &OvercommittedNode, client: &'static str) -> anyhow::Result<bool> {
        let is_new = self.suspended.remove(client).is_none();
        node.set_suspended(client, is_new)?;
        if is_new {
            self.suspended.insert(client, Seen::default());
        }
        Ok(is_new)
    }

    /// The manager was killed or stopped. Memory may return while there is none, and needs grants to leave again. So what is seen of suspended
    /// clients counts only after the check at the end of the round that it has left.
    pub(super) fn manager_disturbed(&mut self) {
        self.is_unsettled = true;
        self.suspended.values_mut().for_each(|seen| *seen = Seen::default());
    }

    /// Reads the metrics and the ledger if it is time.
    pub(super) fn look(&mut self, node: &OvercommittedNode, findings: &mut Findings) -> anyhow::Result<()> {
        let is_observed = !self.suspended.is_empty() && !self.is_unsettled;
        if !is_observed || self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let metrics = node.metrics().unwrap_or_default();
        let ledger = node.gpu().ledger()?;
        for (client, seen) in &mut self.suspended {
            if OvercommittedNode::of_client(&metrics, "sluice_client_suspended", client) != Some(1.0) {
                *seen = Seen::default();
                continue;
            }
            let since = *seen.since.get_or_insert_with(Instant::now);
            let now = kernels(&ledger, client);
            if since.elapsed() < SUBMITTED {
                continue;
            }
            let before = *seen.kernels.get_or_insert(now);
            findings.check("suspended clients make no progress", now == before, || {
                format!("{client} has completed {now} kernels, {before} when it was suspended")
            });
        }
        Ok(())
    }

    /// Checks what holds for the suspended clients while nothing disturbs them.
    pub(super) fn check_settled(
        &mut self,
        node: &OvercommittedNode,
        findings: &mut Findings,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        let names: Vec<&str> = self.suspended.keys().copied().collect();
        // What never leaves stays, for example memory that was allocated during a capture: as much as the manager counts on the GPU.
        agree(
            "memory of suspended clients leaves the GPU",
            node,
            findings,
            interrupts,
            |metrics, ledger| {
                let differs = CLIENTS.iter().filter(|client| names.contains(&client.name)).filter_map(|client| {
                let of = |metric| OvercommittedNode::of_client(metrics, metric, client.name);
                let (suspended, resident) = (of("sluice_client_suspended"), of("sluice_memory_resident_bytes"));
                let (used, away) = (of("sluice_memory_used_bytes"), of("sluice_memory_swapped_bytes"));
                let fixed = used.map(|used| used - away.unwrap_or(0.0));
                let stays = memory(ledger, client.name);
                let is_away = !client.overcommits || resident == Some(0.0) && fixed == Some(stays as f64);
                (suspended != Some(1.0) || !is_away).then(|| {
                    format!(
                        "{}: suspended {suspended:?}, {resident:?} bytes resident, {fixed:?} fixed, simulator {stays}",
                        client.name
                    )
                })
            });
                differs.collect()
            },
        )?;
        self.is_unsettled = false;
        let until = Instant::now() + SUBMITTED + OBSERVED;
        while !names.is_empty() && Instant::now() < until {
            self.look(node, findings)?;
            interrupts.pause()?;
        }
        Ok(())
    }

    /// Resumes all clients.
    pub(super) fn resume_all(&mut self, node: &OvercommittedNode) -> anyhow::Result<()> {
        let clients = std::mem::take(&mut self.suspended);
        clients.keys().try_for_each(|client| node.set_suspended(client, false))
    }
}

/// Kernels of a client's program that have ended.
fn kernels(ledger: &Ledger, client: &str) -> u64 {
    let own = ledger.processes.iter().filter(|row| row.label == client);
    own.map(|row| row.kernels_completed.saturating_sub(row.hook_kernels())).sum()
}
