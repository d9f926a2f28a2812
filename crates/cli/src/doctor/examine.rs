//! The examination from its first question to its report.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use sluice_comm::attach::ContextHandles;
use sluice_load::gate::Outcome;
use sluice_nvrm::Driver;
use sluice_nvrm::outside::{Tenant, newest_client};
use sluice_nvrm::selftest::Effect;

use super::child::{Gates, Hold, Said};
use super::finding::{Finding, Report, Standing};
use super::helper::Busy;
use super::level::{self, Level, Proofs};
use super::machine;
use super::manager::Manager;
use super::place::Place;
use super::trials::{Controls, Trials, tried};

/// The whole examination ends by then.
const LIMIT: Duration = Duration::from_secs(18);
/// How long one program may take to get a context.
pub(super) const START: Duration = Duration::from_secs(10);
/// How long an announcement may take after the program is ready.
pub(super) const ANNOUNCE: Duration = Duration::from_secs(2);

const REPORT_IT: &str = "report it with the output of `sluice doctor --json` and the driver's version";
const AGAIN: &str = "run the doctor again when the machine is less busy";

/// Examines the machine.
pub(super) fn examine(simulated: bool, library: &Path) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let end = begin + LIMIT;
    let place = Place::new(simulated)?;
    let mut checks = vec![machine::nodes(place.simulator())];
    let said = ask(&place, end)?;
    checks.push(machine::library(&said));
    checks.push(machine::branch(&driver(&said, simulated)));
    checks.push(machine::compute_mode(&said));
    checks.push(machine::mig_mode(&said));
    let (mps, is_shared) = machine::mps(&said, simulated);
    checks.push(mps);
    checks.extend(machine::container());
    let level = if said.driver.is_err() {
        (Level::None, "The driver does not work".to_owned())
    } else {
        let mut proofs = Proofs { is_shared, ..unproven() };
        let gate = gate(&place, end);
        proofs.gate = gate.0;
        checks.extend(gate.1);
        checks.extend(busy(&place, library, end, &mut proofs));
        level::decide(&proofs)
    };
    Ok(Report::new(checks, level, said, begin.elapsed().as_secs_f64()))
}

/// What the driver says, asked by a process of its own.
pub(super) fn ask(place: &Place, end: Instant) -> anyhow::Result<Said> {
    let answer = place.helper("facts", &["facts"])?.answer(end.min(Instant::now() + START));
    Ok(answer
        .unwrap_or_else(|why| Said { driver: Err(format!("{why:#}")), nvml: Err("not asked".to_owned()) }))
}

/// Which driver is loaded. NVML is asked first: a container's /sys need not show the module.
fn driver(said: &Said, simulated: bool) -> Driver {
    match &said.nvml {
        Ok(nvml) => Driver::of_version(&nvml.driver),
        Err(_) if simulated => Driver::Unseen,
        Err(_) => Driver::loaded(),
    }
}

fn unproven() -> Proofs {
    let not_tried = || Effect::inconclusive("not tried");
    Proofs {
        attached: Err("not tried".to_owned()),
        holds: not_tried(),
        gate: Err("not tried".to_owned()),
        groups: Err("not tried".to_owned()),
        is_shared: false,
        stops: not_tried(),
        slices: not_tried(),
    }
}

/// Streams that wait for words.
fn gate(place: &Place, end: Instant) -> (Result<(), String>, Vec<Finding>) {
    let tried = place
        .helper("gate", &["gate"])
        .and_then(|mut helper| helper.answer::<Result<Gates, String>>(end.min(Instant::now() + START)));
    let gates = match tried.unwrap_or_else(|why| Err(format!("{why:#}"))) {
        Ok(gates) => gates,
        Err(why) => {
            let finding = Finding::of(
                "memory_ops",
                Standing::Broken,
                format!("no context: {why}"),
                "see driver_library and compute_mode",
            );
            return (Err(why), vec![finding]);
        }
    };
    let proven = match &gates.writable {
        Outcome::Works => Ok(()),
        failed => Err(format!("memory operations: {}", seen(failed))),
    };
    (proven, vec![of_gate("memory_ops", &gates.writable), of_gate("read_only_register", &gates.read_only)])
}

fn of_gate(check: &'static str, outcome: &Outcome) -> Finding {
    let next = match (check, outcome) {
        (_, Outcome::Works) => return Finding::ok(check, seen(outcome)),
        (_, Outcome::DoesNotWait | Outcome::NotReleased) => REPORT_IT,
        ("memory_ops", _) => {
            "update the driver: stream memory operations are on by default since 525. Until then submitted work cannot be held back on the GPU"
        }
        _ => "none needed: gate words then lie on pages of their own",
    };
    Finding::of(check, Standing::Degraded, seen(outcome), next)
}

fn seen(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Works => "a stream waited for a word and was released by the host's store".to_owned(),
        Outcome::Refused { why } => why.clone(),
        Outcome::DoesNotWait => "a stream that waits for a word went on without it".to_owned(),
        Outcome::NotReleased => "a stream that waits for a word stood on after the host's store".to_owned(),
    }
}

/// Everything that takes two busy programs under the hook.
fn busy(place: &Place, library: &Path, end: Instant, proofs: &mut Proofs) -> Vec<Finding> {
    let mut checks = Vec::new();
    let begun = begin(place, library, end);
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
            let next = "build or mount libsluice.so and name it with --library; it needs glibc 2.17 or newer and the directory of the manager's socket";
            checks.push(Finding::of("hook", Standing::Broken, format!("{why:#}"), next));
            proofs.attached = Err(format!("{why:#}"));
            return checks;
        }
    };
    proofs.holds = tried(trials.withheld(&manager));
    checks.push(of_effect("token", &proofs.holds, Standing::Broken, "check that the program's driver calls go through the hook: is libcuda linked statically, or SLUICE_DISABLE set?"));
    let pids = [trials.first.0.pid(), trials.second.0.pid()];
    let announced = pids.map(|pid| manager.groups(pid, end.min(Instant::now() + ANNOUNCE)));
    if announced.iter().any(Vec::is_empty) {
        let why = format!("the hook announces no channel groups: {}", last_line(&place.hook_log()));
        checks.push(Finding::of("channel_groups", Standing::Degraded, &why, "the library must be loaded before libcuda makes its first ioctl (LD_PRELOAD, /etc/ld.so.preload); a driver of another layout needs a newer Sluice"));
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
    checks.push(outside(pids[1], place.simulator().is_some(), known));
    let Controls { slices, stops, counts } = trials.controls(first, second);
    (proofs.slices, proofs.stops) = (slices, stops);
    let lost = "tenants take turns by token instead, and a latency-critical one waits for kernels that run";
    checks.push(of_effect("set_timeslice", &proofs.slices, Standing::Degraded, lost));
    checks.push(of_effect("disable_channels", &proofs.stops, Standing::Degraded, lost));
    checks.push(of_effect(
        "ctxsw_stats",
        &counts,
        Standing::Degraded,
        "turns work without; what they cost is not seen",
    ));
    checks.push(of_effect("process_lock", &tried(locked(place, &mut trials)), Standing::Degraded, LOCK));
    checks
}

/// Whether the groups of a program are found without its help; `known` is what it has announced.
fn outside(pid: i32, simulated: bool, mut known: Vec<ContextHandles>) -> Finding {
    let newest = if simulated { None } else { newest_client().ok() };
    let found = match Tenant::find(pid, simulated, newest) {
        Ok(tenant) => tenant.groups().cloned().collect(),
        Err(why) => {
            return Finding::of("outside", Standing::Degraded, why.to_string(), TRACE);
        }
    };
    let comparable = |groups: &mut Vec<ContextHandles>| {
        for group in groups.iter_mut() {
            group.descriptor = 0;
            group.channels.sort_unstable();
        }
        groups.sort_by_key(|group| (group.client, group.channel_group));
    };
    let mut found: Vec<ContextHandles> = found;
    comparable(&mut found);
    comparable(&mut known);
    if found == known {
        return Finding::ok(
            "outside",
            "the channel groups of a program are found without its help, and are those that it announces",
        );
    }
    let of = |groups: &[ContextHandles]| {
        let each = groups.iter().map(|group| {
            format!("{:#x}/{:#x} with {} channels", group.client, group.channel_group, group.channels.len())
        });
        each.collect::<Vec<_>>().join(", ")
    };
    let seen = format!("found {}; announced were {}", of(&found), of(&known));
    Finding::of("outside", Standing::Degraded, seen, REPORT_IT)
}

const TRACE: &str = "needs CAP_SYS_PTRACE and the host's pid namespace; without it a tenant that goes around the hook can only be held by the driver's lock";
const LOCK: &str = "needs driver 570 or newer, the host's pid namespace, CAP_SYS_PTRACE and CAP_DAC_OVERRIDE; without it a tenant that goes around the hook cannot be held";

/// Two busy programs under the library that have reached a manager of the doctor's; the first one gets no grant yet.
pub(super) fn begin(place: &Place, library: &Path, end: Instant) -> anyhow::Result<(Trials, Manager)> {
    if !library.is_file() {
        anyhow::bail!("{} is not there", library.display());
    }
    let manager = Manager::start(&place.manager_socket(), place.simulator().is_some())
        .context("cannot listen for the hook")?;
    let mut first: Busy = place.busy("doctor-first", library)?;
    let mut second: Busy = place.busy("doctor-second", library)?;
    manager.hold(first.0.pid());
    let until = end.min(Instant::now() + START);
    first.ready(until)?;
    second.ready(until)?;
    for pid in [first.0.pid(), second.0.pid()] {
        if !manager.has_attached(pid, end.min(Instant::now() + ANNOUNCE)) {
            anyhow::bail!("the library does not attach: {}", last_line(&place.hook_log()));
        }
    }
    Ok((Trials { first, second, end }, manager))
}

/// The first program is held by the driver's own lock.
fn locked(place: &Place, trials: &mut Trials) -> anyhow::Result<Effect> {
    let (helper, end) = (std::cell::RefCell::new(None), trials.end);
    let hold = |pid: i32| {
        let mut started = place.helper("hold", &["hold", &pid.to_string()])?;
        let answer = started.answer(end)?;
        *helper.borrow_mut() = Some(started);
        Ok(match answer {
            Hold::Held => Ok(()),
            Hold::Refused(why) => Err(why),
            Hold::Released => Err("released before it was held".to_owned()),
        })
    };
    let release = || match helper.borrow_mut().as_mut() {
        None => Ok(()),
        Some(helper) => {
            helper.tell("release")?;
            helper.answer::<Hold>(end).map(drop)
        }
    };
    trials.held(hold, release)
}

fn of_effect(check: &'static str, effect: &Effect, failed: Standing, next: &str) -> Finding {
    match effect {
        Effect::Proven => Finding::ok(check, effect.to_string()),
        Effect::Inconclusive { .. } => Finding::of(check, Standing::Inconclusive, effect.to_string(), AGAIN),
        Effect::NotUndone => Finding::of(check, failed, effect.to_string(), REPORT_IT),
        Effect::NoEffect | Effect::Refused { .. } => Finding::of(check, failed, effect.to_string(), next),
    }
}

fn last_line(log: &str) -> &str {
    log.lines().last().unwrap_or("its log is empty")
}
