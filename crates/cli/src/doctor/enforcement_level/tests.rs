use super::*;

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
