//! Checks that need two busy programs under the hook.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use sluice_comm::attach::ContextHandles;
use sluice_nvrm::self_test::Effect;

use sluice_test_bed::Worker;

use super::busy_program::{BusyProgram, NoContext, answer};
use super::child::LockOutcome;
use super::discovery;
use super::enforcement_level::Proofs;
use super::examine::{ANNOUNCE, START};
use super::finding::{CheckStatus, Finding};
use super::manager::Manager;
use super::next_steps::{AGAIN, DRIVER, EARLY, LIBRARY, LOCK, LOST, REPORT_IT, THROUGH, UNSEEN};
use super::trials::{Controls, Trials, tried};
use super::workspace::Workspace;

/// Makes all checks, and records in `proofs` what was proven.
pub(super) fn examine(
    workspace: &Workspace,
    library: &Path,
    end: Instant,
    proofs: &mut Proofs,
) -> Vec<Finding> {
    let mut checks = Vec::new();
    let begun = begin(workspace, library, end);
    let (mut trials, manager) = match begun {
        Ok(begun) => {
            checks.push(Finding::ok(
                "hook",
                format!("{} is loaded and reaches its manager", library.display()),
            ));
            proofs.attached = Ok(());
            begun
        }
        Err(why) => {
            let next = if why.is::<NoContext>() { DRIVER } else { LIBRARY };
            checks.push(Finding::of("hook", CheckStatus::Broken, format!("{why:#}"), next));
            proofs.attached = Err(format!("{why:#}"));
            return checks;
        }
    };
    let pids = [trials.first.0.pid(), trials.second.0.pid()];
    proofs.waits = tried(trials.withheld(&manager));
    manager.release(pids[0]);
    checks.push(of_effect("token", &proofs.waits, CheckStatus::Broken, THROUGH));
    let announced = pids.map(|pid| manager.groups(pid, end.min(Instant::now() + ANNOUNCE)));
    if announced.iter().any(Vec::is_empty) {
        let why = format!("the hook announces no channel groups: {}", last_line(&workspace.hook_log()));
        checks.push(Finding::of("channel_groups", CheckStatus::Degraded, &why, EARLY));
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
    checks.push(discovery::examine(pids[1], workspace.simulator().is_some(), known));
    let Controls { slices, stops, counts } = trials.controls(first, second);
    (proofs.slices, proofs.stops) = (slices, stops);
    checks.push(of_effect("set_timeslice", &proofs.slices, CheckStatus::Degraded, LOST));
    checks.push(of_effect("disable_channels", &proofs.stops, CheckStatus::Degraded, LOST));
    checks.push(of_effect("ctxsw_stats", &counts, CheckStatus::Degraded, UNSEEN));
    checks.push(of_effect(
        "process_lock",
        &tried(locked(workspace, &mut trials)),
        CheckStatus::Degraded,
        LOCK,
    ));
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
    let mut first: BusyProgram = workspace.busy("doctor-first", library)?;
    let mut second: BusyProgram = workspace.busy("doctor-second", library)?;
    manager.release(second.0.pid());
    let until = end.min(Instant::now() + START);
    first.ready(until)?;
    second.ready(until)?;
    for pid in [first.0.pid(), second.0.pid()] {
        if !manager.has_attached(pid, end.min(Instant::now() + ANNOUNCE)) {
            bail!("the library does not attach: {}", last_line(&workspace.hook_log()));
        }
    }
    Ok((Trials { first, second, end }, manager))
}

/// Stops the first program by the driver's lock.
fn locked(workspace: &Workspace, trials: &mut Trials) -> anyhow::Result<Effect> {
    let end = trials.end;
    let lock = |pid: i32| {
        let mut helper = workspace.helper("lock", &["lock", &pid.to_string()])?;
        Ok(match answer(&mut helper, end)? {
            LockOutcome::Locked => Ok(helper),
            LockOutcome::Refused(why) => Err(why),
            LockOutcome::Released => Err("released before it was locked".to_owned()),
        })
    };
    let release = |mut helper: Worker| {
        helper.send("release")?;
        answer::<LockOutcome>(&mut helper, end).map(drop)
    };
    trials.locked(lock, release)
}

fn of_effect(check: &'static str, effect: &Effect, failed: CheckStatus, next: &str) -> Finding {
    match effect {
        Effect::Proven => Finding::ok(check, effect.to_string()),
        Effect::Inconclusive { .. } => {
            Finding::of(check, CheckStatus::Inconclusive, effect.to_string(), AGAIN)
        }
        Effect::NotUndone => Finding::of(check, failed, effect.to_string(), REPORT_IT),
        Effect::NoEffect | Effect::Refused { .. } => Finding::of(check, failed, effect.to_string(), next),
    }
}

fn last_line(log: &str) -> &str {
    log.lines().last().unwrap_or("its log is empty")
}
