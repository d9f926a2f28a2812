use super::*;

fn no_facts() -> Reported {
    Reported { driver: Err(String::new()), nvml: Err(String::new()) }
}

fn overall(statuses: &[CheckStatus]) -> CheckStatus {
    let checks = statuses.iter().map(|status| Finding::of("x", *status, "", "")).collect();
    Report::new(checks, (EnforcementLevel::None, String::new()), no_facts(), 0.0).overall
}

#[test]
fn the_worst_finding_decides_and_an_inconclusive_one_is_degraded() {
    use CheckStatus::{Broken, Degraded, Inconclusive, Ok, Skipped};
    assert_eq!(overall(&[Ok, Skipped, Ok]), Ok);
    assert_eq!(overall(&[Ok, Inconclusive]), Degraded);
    assert_eq!(overall(&[Degraded, Ok]), Degraded);
    assert_eq!(overall(&[Degraded, Broken, Inconclusive]), Broken);
}

#[test]
fn a_finding_with_a_next_step_shows_it() {
    let finding = Finding::of("mig_mode", CheckStatus::Broken, "MIG is on", "nvidia-smi -mig 0");
    let text =
        Report::new(vec![finding], (EnforcementLevel::None, "nothing".into()), no_facts(), 1.0).to_string();
    assert!(text.contains("MIG is on") && text.contains("-> nvidia-smi -mig 0"), "{text}");
}
