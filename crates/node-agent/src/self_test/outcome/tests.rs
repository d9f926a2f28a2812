use super::*;
use sluice_nvrm::self_test::{Effect, SelfTestSubject};

fn of(stops: Effect, slices: Effect) -> Outcome {
    let about = SelfTestSubject::now("1", "GPU-1");
    Outcome::of(&SelfTestResult { about, slices, stops, counts: Effect::Proven })
}

#[test]
fn unproven_effects_differ_from_inconclusive_ones() {
    let unclear = || Effect::inconclusive("few");
    let cases = [
        (of(Effect::Proven, Effect::Proven), "proven", false),
        (of(Effect::Proven, Effect::NoEffect), "stops-only", true),
        (of(Effect::Proven, unclear()), "inconclusive", false),
        (of(unclear(), Effect::Proven), "inconclusive", false),
        (of(Effect::NoEffect, Effect::Proven), "no-effect", true),
        (of(Effect::NotUndone, Effect::NoEffect), "no-effect", true),
    ];
    for (outcome, name, warns) in cases {
        assert_eq!((outcome.name(), outcome.warning().is_some()), (name, warns), "{outcome:?}");
        let page = serde_json::to_value(&outcome).unwrap();
        assert_eq!(page["outcome"], name, "the page and the metrics use the same word");
    }
}
