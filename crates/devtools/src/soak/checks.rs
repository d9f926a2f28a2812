//! What must hold while all tenants are quiet.

use std::time::{Duration, Instant};

use sluice_test_bed::{Interrupts, Metrics};

use super::census::{Usage, processes_of, usage};
use super::clients::CLIENTS;
use super::node::SoakNode;
use super::report::Findings;
use super::tenant_node::TenantNode;
use super::tenants::Tenants;
use super::witness::memory;

/// How long figures may take until they agree: reports of processes travel to the manager, which exports them.
const AGREE_TIMEOUT: Duration = Duration::from_secs(20);

/// Records what daemons use while no process is attached.
pub(super) fn remember_idle(node: &SoakNode, findings: &mut Findings) -> anyhow::Result<()> {
    for (daemon, pid) in daemons(node) {
        findings.figures.idle.insert(daemon, usage(pid));
    }
    Ok(())
}

/// The daemons of which the use is compared.
pub(super) fn daemons(node: &SoakNode) -> Vec<(&'static str, i32)> {
    let daemons = [("pod-manager", node.manager_pid()), ("node-agent", node.agent_pid())];
    daemons.into_iter().filter_map(|(name, pid)| Some((name, pid?))).collect()
}

/// Makes the tenants quiet, with their memory and without, and checks everything.
pub(super) fn quiet(
    node: &mut SoakNode,
    tenants: &mut Tenants,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    let before: Vec<u64> = tenants.all.iter().map(|tenant| tenant.counts.verified).collect();
    tenants.quiet(false, findings, interrupts)?;
    for (tenant, before) in tenants.all.iter().zip(before).filter(|(tenant, _)| !tenant.is_disturbed) {
        let verified = tenant.counts.verified;
        findings.check("work of every undisturbed process goes on", verified > before, || {
            format!("{} stands at {verified} kernels", tenant.process.name())
        });
    }
    node.check_running()?;
    // The second answers come when all processes of a client are quiet.
    tenants.quiet(false, findings, interrupts)?;
    compare_memory(node, tenants, false, findings, interrupts)?;
    tenants.quiet(true, findings, interrupts)?;
    tenants.quiet(true, findings, interrupts)?;
    compare_memory(node, tenants, true, findings, interrupts)?;
    nothing_is_stopped(node, findings);
    for (daemon, pid) in daemons(node) {
        let observed = findings.figures.observed.entry(daemon).or_default();
        observed.retain(|usage| usage.pid == pid);
        observed.push(usage(pid));
    }
    for tenant in &mut tenants.all {
        tenant.compare_usage(findings);
    }
    Ok(())
}

/// Compares the manager's ledger and the answers to the tenants with the simulator's ledger. `frees` is that of the last quiet state.
fn compare_memory(
    node: &SoakNode,
    tenants: &mut Tenants,
    frees: bool,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    agree("the manager's memory ledger is the simulator's", node, findings, interrupts, |node, metrics| {
        let ledger = node.gpu().ledger()?;
        let differs = CLIENTS.iter().filter_map(|client| {
            let truth = memory(&ledger, client.name);
            let reported = node.of_client(metrics, "sluice_memory_used_bytes", client.name);
            (reported != Some(truth as f64))
                .then(|| format!("{}: manager {reported:?}, simulator {truth}", client.name))
        });
        Ok(differs.collect())
    })?;
    agree("the manager counts the processes that run", node, findings, interrupts, |node, metrics| {
        let differs = CLIENTS.iter().filter_map(|client| {
            let reported = node.of_client(metrics, "sluice_processes", client.name);
            (reported != Some(client.processes as f64)).then(|| format!("{}: {reported:?}", client.name))
        });
        Ok(differs.collect())
    })?;
    compare_answers(node, tenants, frees, findings, interrupts)
}

/// Compares what `cuMemGetInfo` shows to the tenants with the simulator's ledger. A process that has lost the manager, or for which the
/// manager is late by 200 ms, knows its own memory alone (docs/design/memory.md). Therefore the tenants are asked until all answers agree.
fn compare_answers(
    node: &SoakNode,
    tenants: &mut Tenants,
    frees: bool,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + AGREE_TIMEOUT;
    loop {
        let found = wrong_answers(node, tenants)?;
        if found.is_empty() || Instant::now() >= deadline {
            let statement = "cuMemGetInfo shows the limit and what is left of it";
            findings.check(statement, found.is_empty(), || found.join("; "));
            return Ok(());
        }
        interrupts.pause()?;
        tenants.quiet(frees, findings, interrupts)?;
    }
}

/// The last answers that differ from the simulator's ledger.
fn wrong_answers(node: &SoakNode, tenants: &Tenants) -> anyhow::Result<Vec<String>> {
    let ledger = node.gpu().ledger()?;
    let differs = tenants.all.iter().filter_map(|tenant| {
        let (limit, used) = (tenant.definition.memory_bytes(), memory(&ledger, tenant.client_name()));
        let (free, total) = (tenant.counts.free, tenant.counts.total);
        let is_true = total == limit && free == limit.saturating_sub(used);
        (!is_true)
            .then(|| format!("{}: {free} of {total} free; limit {limit}, used {used}", tenant.process.name()))
    });
    Ok(differs.collect())
}

/// Checks that a comparison finds no difference soon.
pub(super) fn agree(
    statement: &'static str,
    node: &SoakNode,
    findings: &mut Findings,
    interrupts: &Interrupts,
    mut differences: impl FnMut(&SoakNode, &Metrics) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + AGREE_TIMEOUT;
    loop {
        let found = differences(node, &node.metrics().unwrap_or_default())?;
        if found.is_empty() || Instant::now() >= deadline {
            findings.check(statement, found.is_empty(), || found.join("; "));
            return Ok(());
        }
        interrupts.pause()?;
    }
}

/// No process of the soak is stopped.
pub(super) fn nothing_is_stopped(node: &SoakNode, findings: &mut Findings) {
    let stopped: Vec<String> = processes_of(&node.folder())
        .into_iter()
        .filter(|process| matches!(process.state, 'T' | 't'))
        .map(|process| format!("{} {}", process.pid, process.command))
        .collect();
    findings.check("no process is left stopped", stopped.is_empty(), || stopped.join("; "));
}

/// Whether a later reading of a process shows growth that is no noise.
pub(super) fn has_grown(first: Usage, last: Usage, rss_kib: u64, others: usize) -> bool {
    last.rss_kib > first.rss_kib + rss_kib
        || last.descriptors > first.descriptors + others
        || last.threads > first.threads + others
}
