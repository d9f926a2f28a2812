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

fn all() -> Proofs {
    Proofs {
        attached: Ok(()),
        waits: Effect::Proven,
        gate: Ok(()),
        groups: Ok(()),
        is_shared: false,
        stops: Effect::Proven,
        slices: Effect::Proven,
    }
}

#[track_caller]
fn falls_to(level: EnforcementLevel, because: &str, proofs: &Proofs) {
    let (found, why) = decide(proofs);
    assert_eq!(found, level, "{why}");
    assert!(why.contains(because), "{why}");
}

#[test]
fn each_unproven_effect_lowers_the_level() {
    falls_to(EnforcementLevel::Full, "sliced", &all());
    falls_to(EnforcementLevel::Full, "nothing comes of it", &Proofs { slices: Effect::NoEffect, ..all() });
    falls_to(EnforcementLevel::Device, "nothing comes of it", &Proofs { stops: Effect::NoEffect, ..all() });
    falls_to(EnforcementLevel::Device, "cannot be undone", &Proofs { stops: Effect::NotUndone, ..all() });
    falls_to(EnforcementLevel::Device, "MPS", &Proofs { is_shared: true, ..all() });
    falls_to(EnforcementLevel::Device, "not seen", &Proofs { groups: Err("not seen".into()), ..all() });
    let without = Proofs { stops: Effect::refused("0x56"), gate: Err("801".into()), ..all() };
    falls_to(EnforcementLevel::Host, "0x56", &without);
    falls_to(EnforcementLevel::Host, "801", &without);
    falls_to(EnforcementLevel::Token, "nothing comes", &Proofs { waits: Effect::NoEffect, ..all() });
    falls_to(EnforcementLevel::None, "no library", &Proofs { attached: Err("no library".into()), ..all() });
}

#[test]
fn memory_operations_alone_do_not_lower_the_level() {
    falls_to(EnforcementLevel::Full, "sliced", &Proofs { gate: Err("801".into()), ..all() });
}
