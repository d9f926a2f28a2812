//! Checks that need two busy programs under the hook.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use sluice_comm::attach::ContextHandles;
use sluice_nvrm::discovery::{DiscoveredProcess, newest_client};
use sluice_nvrm::self_test::Effect;

use super::finding::CheckStatus::{self, Broken, Degraded, Inconclusive};
use super::finding::{Finding, Proofs};
use super::manager::Manager;
use super::next_steps::{
    AGAIN, DRIVER, EARLY, LIBRARY, LOCK, LOST, REPORT_IT, THROUGH, TRACE, UNMEASURED, UNSEEN,
};
use super::trials::{Controls, Trials, tried};
use super::workspace::{NoContext, Workspace, answer};
use super::{ANNOUNCE, START};

/// Name of the check of NVML's report of the memory of processes.
const PROCESS_MEMORY: &str = "process_memory";

/// Makes all checks, and records in `proofs` what was proven.
pub(super) fn examine(
    workspace: &Workspace,
    library: &Path,
    end: Instant,
    proofs: &mut Proofs,
) -> Vec<Finding> {
    let mut checks = Vec::new();
    let (mut trials, manager) = match begin(workspace, library, end) {
        Ok(begun) => begun,
        Err(why) => {
            let next = if why.is::<NoContext>() { DRIVER } else { LIBRARY };
            checks.push(Finding::of("hook", Broken, format!("{why:#}"), next));
            proofs.attached = Err(format!("{why:#}"));
            return checks;
        }
    };
    checks.push(Finding::ok("hook", format!("{} is loaded and reaches its manager", library.display())));
    proofs.attached = Ok(());
    let pids = [trials.first.pid(), trials.second.pid()];
    checks.push(process_memory(workspace, pids[0], end));
    proofs.waits = tried(trials.withheld(&manager));
    manager.release(pids[0]);
    checks.push(of_effect("token", &proofs.waits, Broken, THROUGH));
    let announced = pids.map(|pid| manager.groups(pid, end.min(Instant::now() + ANNOUNCE)));
    if announced.iter().any(Vec::is_empty) {
        let why = format!("the hook announces no channel groups: {}", last_line(&workspace.hook_log()));
        checks.push(Finding::of("channel_groups", Degraded, &why, EARLY));
        proofs.groups = Err(why);
        return checks;
    }
    proofs.groups = Ok(());
    let [first, second] = announced;
    let count = first.iter().map(|group| group.handles.channels.len()).sum::<usize>();
    checks.push(Finding::ok(
        "channel_groups",
        format!("{} with {count} channels in a program of one context", first.len()),
    ));
    let known: Vec<ContextHandles> = second.iter().map(|group| group.handles.clone()).collect();
    checks.push(discovery(pids[1], workspace.simulator().is_some(), known));
    let Controls { slices, stops, counts } = trials.controls(first, second);
    (proofs.slices, proofs.stops) = (slices, stops);
    checks.push(of_effect("set_timeslice", &proofs.slices, Degraded, LOST));
    checks.push(of_effect("disable_channels", &proofs.stops, Degraded, LOST));
    checks.push(of_effect("ctxsw_stats", &counts, Degraded, UNSEEN));
    checks.push(of_effect("process_lock", &tried(trials.lock(workspace)), Degraded, LOCK));
    checks
}

/// Two busy programs under the library that have attached to the doctor's manager. The first one has no grant yet.
pub(super) fn begin(
    workspace: &Workspace,
    library: &Path,
    end: Instant,
) -> anyhow::Result<(Trials, Manager)> {
    if !library.is_file() {
        bail!("{} is not there", library.display());
    }
    let manager = Manager::start(&workspace.manager_socket(), workspace.simulator().is_some())
        .context("cannot listen for the hook")?;
    let mut first = workspace.busy("doctor-first", library)?;
    let mut second = workspace.busy("doctor-second", library)?;
    manager.release(second.pid());
    let until = end.min(Instant::now() + START);
    first.ready(until)?;
    second.ready(until)?;
    for pid in [first.pid(), second.pid()] {
        if !manager.has_attached(pid, end.min(Instant::now() + ANNOUNCE)) {
            bail!("the library does not attach: {}", last_line(&workspace.hook_log()));
        }
    }
    Ok((Trials { first, second, end }, manager))
}

/// The memory that NVML reports for a program with one context: a memory limit has to be above it.
fn process_memory(workspace: &Workspace, pid: i32, end: Instant) -> Finding {
    let helper = workspace.helper("memory", &["memory", &pid.to_string()]);
    let tried: anyhow::Result<Result<u64, String>> =
        helper.and_then(|mut helper| answer(&mut helper, end.min(Instant::now() + START)));
    match tried.unwrap_or_else(|why| Err(format!("{why:#}"))) {
        Ok(bytes) => Finding::ok(
            PROCESS_MEMORY,
            format!(
                "a program with one context takes {} MiB: memory limits have to be above it",
                bytes >> 20
            ),
        ),
        Err(why) => Finding::of(PROCESS_MEMORY, Degraded, why, UNMEASURED),
    }
}

/// Compares the channel groups found in the program with `known`, its announced ones.
fn discovery(pid: i32, simulated: bool, mut known: Vec<ContextHandles>) -> Finding {
    let newest = if simulated { None } else { newest_client().ok() };
    let mut found: Vec<ContextHandles> = match DiscoveredProcess::find(pid, simulated, newest) {
        Ok(process) => process.groups().cloned().collect(),
        Err(why) => return Finding::of("outside", Degraded, why.to_string(), TRACE),
    };
    let comparable = |groups: &mut Vec<ContextHandles>| {
        for group in groups.iter_mut() {
            group.descriptor = 0;
            group.channels.sort_unstable();
        }
        groups.sort_by_key(|group| (group.client, group.channel_group));
    };
    comparable(&mut found);
    comparable(&mut known);
    if found == known {
        return Finding::ok(
            "outside",
            "the channel groups of a program are found without its help and equal those that it announces",
        );
    }
    let of = |groups: &[ContextHandles]| {
        let each = groups.iter().map(|group| {
            format!("{:#x}/{:#x} with {} channels", group.client, group.channel_group, group.channels.len())
        });
        each.collect::<Vec<_>>().join(", ")
    };
    let observed = format!("found {}; announced were {}", of(&found), of(&known));
    Finding::of("outside", Degraded, observed, REPORT_IT)
}

fn of_effect(check: &'static str, effect: &Effect, failed: CheckStatus, next: &str) -> Finding {
    match effect {
        Effect::Proven => Finding::ok(check, effect.to_string()),
        Effect::Inconclusive { .. } => Finding::of(check, Inconclusive, effect.to_string(), AGAIN),
        Effect::NotUndone => Finding::of(check, failed, effect.to_string(), REPORT_IT),
        Effect::NoEffect | Effect::Refused { .. } => Finding::of(check, failed, effect.to_string(), next),
    }
}

fn last_line(log: &str) -> &str {
    log.lines().last().unwrap_or("its log is empty")
}
