//! What must hold where clients have more memory together than the GPU.

use std::time::{Duration, Instant};

use sluice_sim::ledger::Ledger;
use sluice_test_bed::{Interrupts, Metrics};

use super::super::disturbances::Targets;
use super::super::report::Findings;
use super::super::tenant::Tenant;
use super::super::tenant_node::TenantNode;
use super::super::tenants::Tenants;
use super::super::witness::{memory, memory_of_running};
use super::host_files::open_files;
use super::node::{CAPACITY, CLIENTS, OvercommittedNode};

/// How long figures may take until they agree, and a tenant to end.
const AGREE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client that is not suspended may make no progress: three clients take turns, and a quantum is nine times as long as the moves
/// before it took. On a busy machine a move in small pieces took 1.5 s.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two readings.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The witness that all memory fits, in a round.
pub(super) struct CapacityWitness {
    is_checked: bool,
    looked: Instant,
    was_above: bool,
}

impl CapacityWitness {
    pub(super) fn begin(targets: Targets) -> Self {
        // Without a manager memory returns as soon as the GPU has room for it.
        Self { is_checked: targets == Targets::Tenants, looked: Instant::now(), was_above: false }
    }

    /// Reads the ledger if it is time.
    pub(super) fn look(&mut self, node: &OvercommittedNode, findings: &mut Findings) -> anyhow::Result<()> {
        if !self.is_checked || self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        let ledger = node.gpu().ledger()?;
        let used: u64 = CLIENTS.iter().map(|client| memory_of_running(&ledger, client.name)).sum();
        let is_above = used > CAPACITY;
        findings.check(
            "clients have no more memory together than --overcommit-memory for two readings",
            !(is_above && self.was_above),
            || format!("{used} of {CAPACITY} bytes"),
        );
        self.was_above = is_above;
        Ok(())
    }
}

/// Checks that every process makes progress, after all clients were resumed.
pub(super) fn progress(
    node: &OvercommittedNode,
    tenants: &mut Tenants,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    let completed = |ledger: &Ledger, tenant: &Tenant| {
        let row = ledger.by_pid(tenant.process.pid());
        row.map_or(0, |row| row.kernels_completed.saturating_sub(row.hook_kernels()))
    };
    let ledger = node.gpu().ledger()?;
    let before: Vec<u64> = tenants.all.iter().map(|tenant| completed(&ledger, tenant)).collect();
    let deadline = Instant::now() + PROGRESS_TIMEOUT;
    loop {
        tenants.poll(node, findings)?;
        let ledger = node.gpu().ledger()?;
        let stands = |(tenant, before): (&Tenant, &u64)| {
            (completed(&ledger, tenant) <= *before)
                .then(|| format!("{} stands at {before} kernels", tenant.process.name()))
        };
        let found: Vec<String> = tenants.all.iter().zip(&before).filter_map(stands).collect();
        if found.is_empty() || Instant::now() >= deadline {
            let statement = "every client that is not suspended makes progress within 60 s";
            findings.check(statement, found.is_empty(), || found.join("; "));
            return Ok(());
        }
        interrupts.pause()?;
    }
}

/// Makes the tenants quiet, with their memory and without. Each compares all of it.
pub(super) fn quiet(
    node: &mut OvercommittedNode,
    tenants: &mut Tenants,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    for frees in [false, true] {
        tenants.quiet(frees, findings, interrupts)?;
        node.check_running()?;
        compare_memory(node, findings, interrupts)?;
        compare_host_memory(node, findings, interrupts)?;
    }
    Ok(())
}

/// Compares what the manager counts on the GPU with the simulator's ledger.
fn compare_memory(
    node: &OvercommittedNode,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    let statement = "the manager's memory ledger without what is on the host is the simulator's";
    agree(statement, node, findings, interrupts, |metrics, ledger| {
        let differs = CLIENTS.iter().filter_map(|client| {
            let of = |metric| OvercommittedNode::of_client(metrics, metric, client.name);
            let truth = memory(ledger, client.name) as f64;
            let (used, away) = (of("sluice_memory_used_bytes"), of("sluice_memory_swapped_bytes"));
            let here = used.map(|used| used - away.unwrap_or(0.0));
            let processes = of("sluice_processes");
            (here != Some(truth) || processes != Some(client.processes as f64)).then(|| {
                format!(
                    "{}: manager {used:?} without {away:?}, simulator {truth}, {processes:?} processes",
                    client.name
                )
            })
        });
        differs.collect()
    })
}

/// Checks that the manager keeps no host memory of a process that has ended: it has one file for each that runs.
fn compare_host_memory(
    node: &OvercommittedNode,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    let statement = "the manager has host memory of as many processes as run";
    agree(statement, node, findings, interrupts, |_, _| {
        let files = open_files(node.manager_pid().unwrap_or(0));
        let own = CLIENTS.iter().filter(|client| client.overcommits);
        let running: usize = own.map(|client| client.processes).sum();
        (files.len() != running)
            .then(|| format!("{running} processes, files {files:?}"))
            .into_iter()
            .collect()
    })
}

/// Ends the tenants and the manager, and checks that nothing is left of them.
pub(super) fn end(
    node: &mut OvercommittedNode,
    tenants: &mut Tenants,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    for tenant in tenants.all.drain(..) {
        let ended = tenant.end(AGREE_TIMEOUT);
        findings.check("tenants end in order", ended.is_ok(), || message(ended));
    }
    agree("no memory is left of ended processes", node, findings, interrupts, |metrics, ledger| {
        let charged = CLIENTS.iter().filter_map(|client| {
            let used = OvercommittedNode::of_client(metrics, "sluice_memory_used_bytes", client.name);
            (used != Some(0.0)).then(|| format!("{}: {used:?} bytes", client.name))
        });
        let mut left: Vec<String> = charged.collect();
        left.extend(
            (ledger.gpu.memory_used > 0).then(|| format!("{} bytes on the GPU", ledger.gpu.memory_used)),
        );
        let files = open_files(node.manager_pid().unwrap_or(0));
        left.extend((!files.is_empty()).then(|| format!("files on the host: {files:?}")));
        left
    })?;
    let (left, returned) = node.moves();
    findings.check("memory has left the GPU and returned", left > 0 && returned > 0, || {
        format!("it left {left} times and returned {returned} times")
    });
    findings.figures.moves += (left + returned) as u64;
    let ended = node.end_manager();
    findings.check("daemons end in order", ended.is_ok(), || message(ended));
    let files = node.leftovers();
    findings.check("no socket and no temporary file is left", files.is_empty(), || format!("{files:?}"));
    Ok(())
}

fn message(outcome: anyhow::Result<()>) -> String {
    outcome.err().map_or_else(String::new, |why| format!("{why:#}"))
}

/// Checks that a comparison finds no difference soon.
pub(super) fn agree(
    statement: &'static str,
    node: &OvercommittedNode,
    findings: &mut Findings,
    interrupts: &Interrupts,
    differences: impl Fn(&Metrics, &Ledger) -> Vec<String>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + AGREE_TIMEOUT;
    loop {
        let found = differences(&node.metrics().unwrap_or_default(), &node.gpu().ledger()?);
        if found.is_empty() || Instant::now() >= deadline {
            findings.check(statement, found.is_empty(), || found.join("; "));
            return Ok(());
        }
        interrupts.pause()?;
    }
}
