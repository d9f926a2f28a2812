//! The examination from its first question to its report.

use std::path::Path;
use std::time::{Duration, Instant};

use sluice_load::stream_gate_test::StreamGateResult;
use sluice_nvrm::DriverVersion;
use sluice_nvrm::self_test::Effect;

use super::busy_program::answer;
use super::child::{Gates, Reported};
use super::container;
use super::enforcement_level::{self, EnforcementLevel, Proofs};
use super::finding::{CheckStatus, Finding, Report};
use super::machine;
use super::mps;
use super::next_steps::{AGAIN, DRIVER, MEMORY_OPS, OWN_PAGES, REPORT_IT};
use super::program_checks;
use super::workspace::Workspace;

/// Time limit of the whole examination.
const LIMIT: Duration = Duration::from_secs(18);
/// How long a program may take to get a context.
pub(super) const START: Duration = Duration::from_secs(10);
/// How long an announcement may take after the program is ready.
pub(super) const ANNOUNCE: Duration = Duration::from_secs(2);

/// Examines the machine.
pub(super) fn examine(simulated: bool, library: &Path) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let end = begin + LIMIT;
    let workspace = Workspace::new(simulated)?;
    let mut checks = vec![machine::nodes(workspace.simulator())];
    let reported = ask(&workspace, end)?;
    checks.push(machine::library(&reported));
    checks.push(machine::branch(&driver(&reported, simulated)));
    checks.push(machine::compute_mode(&reported));
    checks.push(machine::mig_mode(&reported));
    let (mps, is_shared) = mps::examine(&reported, simulated);
    checks.push(mps);
    checks.extend(container::examine());
    let level = if reported.driver.is_err() {
        (EnforcementLevel::None, "The driver does not work".to_owned())
    } else {
        let mut proofs = Proofs { is_shared, ..unproven() };
        let gate = gate(&workspace, end);
        proofs.gate = gate.0;
        checks.extend(gate.1);
        checks.extend(program_checks::examine(&workspace, library, end, &mut proofs));
        enforcement_level::decide(&proofs)
    };
    Ok(Report::new(checks, level, reported, begin.elapsed().as_secs_f64()))
}

/// Asks the driver and NVML, in a process of its own.
pub(super) fn ask(workspace: &Workspace, end: Instant) -> anyhow::Result<Reported> {
    let mut helper = workspace.helper("facts", &["facts"])?;
    Ok(answer(&mut helper, end.min(Instant::now() + START)).unwrap_or_else(|why| Reported {
        driver: Err(format!("{why:#}")),
        nvml: Err("not asked".to_owned()),
    }))
}

/// The loaded driver. NVML is asked first, because a container's /sys need not show the module.
fn driver(reported: &Reported, simulated: bool) -> DriverVersion {
    match &reported.nvml {
        Ok(nvml) => DriverVersion::of_version(&nvml.driver),
        Err(_) if simulated => DriverVersion::NotVisible,
        Err(_) => DriverVersion::loaded(),
    }
}

fn unproven() -> Proofs {
    let not_tried = || Effect::inconclusive("not tried");
    Proofs {
        attached: Err("not tried".to_owned()),
        waits: not_tried(),
        gate: Err("not tried".to_owned()),
        groups: Err("not tried".to_owned()),
        is_shared: false,
        stops: not_tried(),
        slices: not_tried(),
    }
}

/// Tests stream gates.
fn gate(workspace: &Workspace, end: Instant) -> (Result<(), String>, Vec<Finding>) {
    let tried = workspace.helper("gate", &["gate"]);
    of_gates(tried.and_then(|mut helper| answer(&mut helper, end.min(Instant::now() + START))))
}

/// The findings of the stream gate tests, or of a test without a context or an answer.
fn of_gates(tried: anyhow::Result<Result<Gates, String>>) -> (Result<(), String>, Vec<Finding>) {
    let untried = |why: String, finding| (Err(why), vec![finding]);
    let gates = match tried {
        Ok(Ok(gates)) => gates,
        Ok(Err(why)) => {
            let found = format!("no context: {why}");
            return untried(why, Finding::of("memory_ops", CheckStatus::Broken, found, DRIVER));
        }
        Err(why) => {
            let found = Effect::inconclusive(format!("{why:#}")).to_string();
            let finding = Finding::of("memory_ops", CheckStatus::Inconclusive, &found, AGAIN);
            return untried(format!("memory operations: {found}"), finding);
        }
    };
    let proven = match &gates.writable {
        StreamGateResult::Works => Ok(()),
        failed => Err(format!("memory operations: {}", describe(failed))),
    };
    let read_only = gates.read_only.as_ref().map_or_else(
        || Finding::skipped("read_only_register", "the stream of the test before is still stuck"),
        |outcome| of_gate("read_only_register", outcome),
    );
    (proven, vec![of_gate("memory_ops", &gates.writable), read_only])
}

fn of_gate(check: &'static str, outcome: &StreamGateResult) -> Finding {
    let next = match (check, outcome) {
        (_, StreamGateResult::Works) => return Finding::ok(check, describe(outcome)),
        (_, StreamGateResult::DoesNotWait | StreamGateResult::NotReleased) => REPORT_IT,
        ("memory_ops", _) => MEMORY_OPS,
        _ => OWN_PAGES,
    };
    Finding::of(check, CheckStatus::Degraded, describe(outcome), next)
}

fn describe(outcome: &StreamGateResult) -> String {
    match outcome {
        StreamGateResult::Works => {
            "a stream waited for a word and was released by the host's store".to_owned()
        }
        StreamGateResult::Refused { why } => why.clone(),
        StreamGateResult::DoesNotWait => "a stream that waits for a word went on without it".to_owned(),
        StreamGateResult::NotReleased => {
            "a stream that waits for a word did not resume after the host's store".to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
