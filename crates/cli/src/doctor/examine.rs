//! The examination from its first question to its report.

use std::path::Path;
use std::time::{Duration, Instant};

use sluice_load::gate::Outcome;
use sluice_nvrm::Driver;
use sluice_nvrm::selftest::Effect;

use super::busy;
use super::child::{Gates, Said};
use super::container;
use super::finding::{Finding, Report, Standing};
use super::level::{self, Level, Proofs};
use super::machine;
use super::mps;
use super::next::{AGAIN, DRIVER, MEMORY_OPS, OWN_PAGES, REPORT_IT};
use super::place::Place;

/// The whole examination ends by then.
const LIMIT: Duration = Duration::from_secs(18);
/// How long one program may take to get a context.
pub(super) const START: Duration = Duration::from_secs(10);
/// How long an announcement may take after the program is ready.
pub(super) const ANNOUNCE: Duration = Duration::from_secs(2);

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
    let (mps, is_shared) = mps::examine(&said, simulated);
    checks.push(mps);
    checks.extend(container::examine());
    let level = if said.driver.is_err() {
        (Level::None, "The driver does not work".to_owned())
    } else {
        let mut proofs = Proofs { is_shared, ..unproven() };
        let gate = gate(&place, end);
        proofs.gate = gate.0;
        checks.extend(gate.1);
        checks.extend(busy::examine(&place, library, end, &mut proofs));
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
    let tried = place.helper("gate", &["gate"]);
    of_gates(tried.and_then(|mut helper| helper.answer(end.min(Instant::now() + START))))
}

/// What the trials showed; or what kept them from a context, or from an answer.
fn of_gates(tried: anyhow::Result<Result<Gates, String>>) -> (Result<(), String>, Vec<Finding>) {
    let untried = |why: String, finding| (Err(why), vec![finding]);
    let gates = match tried {
        Ok(Ok(gates)) => gates,
        Ok(Err(why)) => {
            let found = format!("no context: {why}");
            return untried(why, Finding::of("memory_ops", Standing::Broken, found, DRIVER));
        }
        Err(why) => {
            let found = Effect::inconclusive(format!("{why:#}")).to_string();
            let finding = Finding::of("memory_ops", Standing::Inconclusive, &found, AGAIN);
            return untried(format!("memory operations: {found}"), finding);
        }
    };
    let proven = match &gates.writable {
        Outcome::Works => Ok(()),
        failed => Err(format!("memory operations: {}", seen(failed))),
    };
    let read_only = gates.read_only.as_ref().map_or_else(
        || Finding::skipped("read_only_register", "a stream stands on from the trial before"),
        |outcome| of_gate("read_only_register", outcome),
    );
    (proven, vec![of_gate("memory_ops", &gates.writable), read_only])
}

fn of_gate(check: &'static str, outcome: &Outcome) -> Finding {
    let next = match (check, outcome) {
        (_, Outcome::Works) => return Finding::ok(check, seen(outcome)),
        (_, Outcome::DoesNotWait | Outcome::NotReleased) => REPORT_IT,
        ("memory_ops", _) => MEMORY_OPS,
        _ => OWN_PAGES,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn shows(tried: anyhow::Result<Result<Gates, String>>, findings: &[(Standing, &str)]) {
        let (proven, found) = of_gates(tried);
        assert!(proven.is_err());
        assert_eq!(found.len(), findings.len(), "{found:?}");
        for (found, (standing, says)) in found.iter().zip(findings) {
            assert_eq!(found.standing, *standing, "{found:?}");
            assert!(found.found.contains(says), "{found:?}");
        }
    }

    #[test]
    fn a_trial_that_does_not_answer_is_not_taken_for_a_driver_that_refuses() {
        shows(Err(anyhow::anyhow!("gate does not answer")), &[(Standing::Inconclusive, "does not answer")]);
        shows(Ok(Err("cuCtxCreate: 46".into())), &[(Standing::Broken, "no context: cuCtxCreate: 46")]);
    }

    #[test]
    fn a_stream_that_stands_for_good_is_reported_as_one() {
        let gates = Gates { writable: Outcome::NotReleased, read_only: None };
        shows(Ok(Ok(gates)), &[(Standing::Degraded, "stood on"), (Standing::Skipped, "stands on")]);
    }
}
