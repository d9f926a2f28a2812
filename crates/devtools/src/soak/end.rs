//! The end of the soak: processes end one after the other, and nothing is left of them.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sluice_test_bed::Interrupts;

use super::census::{processes_of, usage};
use super::checks::{agree, daemons, has_grown};
use super::clients::CLIENTS;
use super::node::SoakNode;
use super::report::Findings;
use super::tenant_node::TenantNode;
use super::tenants::Tenants;

/// How long a tenant may take to end, and until what it had is free.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Growth of a daemon between the first and the last quiet state of the process that was observed, and over its idle state.
const RSS_GROWTH_KIB: u64 = 4 << 10;
const OTHER_GROWTH: usize = 3;
/// Tenants that outlive the daemons.
const OUTLIVING: usize = 4;

/// Ends everything but the simulator.
pub(super) fn end(
    node: &mut SoakNode,
    mut tenants: Tenants,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    findings.begin("end");
    compare_usage(findings);
    while tenants.all.len() > OUTLIVING {
        let tenant = tenants.all.remove(0);
        end_tenant(tenant, findings);
    }
    let ended =
        CLIENTS.iter().filter(|client| !tenants.all.iter().any(|one| one.client_name() == client.name));
    agree(
        "nothing stays charged to clients whose processes have ended",
        node,
        findings,
        interrupts,
        |node, metrics| {
            let charged = ended.clone().filter_map(|client| {
                let of = |metric| node.of_client(metrics, metric, client.name);
                let found = (of("sluice_memory_used_bytes"), of("sluice_processes"));
                (found != (Some(0.0), Some(0.0))).then(|| format!("{}: {found:?}", client.name))
            });
            Ok(charged.collect())
        },
    )?;
    for (daemon, pid) in daemons(node) {
        let (idle, now) = (findings.figures.idle.get(daemon).copied().unwrap_or_default(), usage(pid));
        // Each attached process has at most eight descriptors in a daemon.
        let most = idle.descriptors + 8 * tenants.all.len() + OTHER_GROWTH;
        findings.check("descriptors of ended processes are closed", now.descriptors <= most, || {
            format!("{daemon} has {} descriptors, {} when idle", now.descriptors, idle.descriptors)
        });
    }
    // The agent's escrow ends with it: each hook enables its own channel groups.
    node.kill_all_daemons();
    until("every channel group is enabled after a kill of all daemons", findings, interrupts, || {
        disabled(node)
    })?;
    node.start_missing(interrupts)?;
    node.wait_until_serving(interrupts)?;
    // A stopped process cannot enable its channel groups; the manager or the agent does.
    if let Some(tenant) = tenants.all.first() {
        tenant.signal(Signal::SIGSTOP);
    }
    let ended = node.end_daemons();
    findings.check("daemons end in order", ended.is_ok(), || message(ended));
    until("every channel group is enabled without a manager", findings, interrupts, || disabled(node))?;
    tenants.resume_all();
    for tenant in tenants.all {
        end_tenant(tenant, findings);
    }
    until("the GPU has no process, memory or channel group left", findings, interrupts, || {
        let ledger = node.gpu().ledger()?;
        let alive = ledger.processes.iter().filter(|row| !row.ended && row.label != "agent");
        let mut left: Vec<String> = alive.map(|row| format!("process {} {}", row.pid, row.label)).collect();
        left.extend((ledger.gpu.memory_used > 0).then(|| format!("{} bytes", ledger.gpu.memory_used)));
        left.extend((!ledger.groups.is_empty()).then(|| format!("{} channel groups", ledger.groups.len())));
        Ok(left)
    })?;
    until("no process of the soak is left", findings, interrupts, || {
        let left = processes_of(&node.folder()).into_iter().filter(|one| !one.command.contains(" sim "));
        Ok(left.map(|one| format!("{} {} ({})", one.pid, one.command, one.state)).collect())
    })?;
    let left = node.leftovers();
    findings.check("no socket and no temporary file is left", left.is_empty(), || format!("{left:?}"));
    Ok(())
}

/// The channel groups that cannot run.
fn disabled(node: &SoakNode) -> anyhow::Result<Vec<String>> {
    let ledger = node.gpu().ledger()?;
    let disabled = ledger.groups.iter().filter(|group| !group.is_enabled);
    Ok(disabled.map(|group| format!("group {} of process {}", group.group, group.pid)).collect())
}

/// Compares the first quiet state of the daemons that ran to the end, after their warm-up, with the last one.
fn compare_usage(findings: &mut Findings) {
    for (daemon, observed) in findings.figures.observed.clone() {
        let Some((first, last)) = observed.get(1).zip(observed.last()) else { continue };
        let has_grown = has_grown(*first, *last, RSS_GROWTH_KIB, OTHER_GROWTH);
        findings.check("daemons do not grow", !has_grown, || format!("{daemon}: {first:?}, then {last:?}"));
    }
}

fn end_tenant(tenant: super::tenant::Tenant, findings: &mut Findings) {
    let ended = tenant.end(END_TIMEOUT);
    findings.check("tenants end in order", ended.is_ok(), || message(ended));
}

fn message(outcome: anyhow::Result<()>) -> String {
    outcome.err().map_or_else(String::new, |why| format!("{why:#}"))
}

/// Checks that nothing is found soon.
fn until(
    statement: &'static str,
    findings: &mut Findings,
    interrupts: &Interrupts,
    mut find: impl FnMut() -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let found = find()?;
        if found.is_empty() || Instant::now() >= deadline {
            findings.check(statement, found.is_empty(), || found.join("; "));
            return Ok(());
        }
        interrupts.pause()?;
    }
}
