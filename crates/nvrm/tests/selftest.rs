//! What counts of kernels say about a driver's controls.

use sluice_nvrm::Driver;
use sluice_nvrm::abi::CtxswStats;
use sluice_nvrm::selftest::{About, Allows, Effect, Verdict, goes_on, slices, stands, switches};

fn is_inconclusive(effect: &Effect) -> bool {
    effect.is_inconclusive()
}

#[test]
fn shares_that_follow_their_slices_both_ways_round_are_proof() {
    assert_eq!(slices([160, 640], [641, 159]), Effect::Proven);
    assert_eq!(slices([200, 600], [640, 160]), Effect::Proven, "a quarter is near a fifth");
}

#[test]
fn shares_that_do_not_move_are_a_driver_that_only_says_yes() {
    assert_eq!(slices([400, 400], [400, 400]), Effect::NoEffect);
    // One program is slower than the other, whatever is set.
    assert_eq!(slices([200, 600], [210, 590]), Effect::NoEffect);
    assert_eq!(slices([600, 200], [560, 240]), Effect::NoEffect);
}

#[test]
fn what_lies_between_is_not_guessed_at() {
    assert!(is_inconclusive(&slices([320, 480], [480, 320])), "moved, but far from 1 : 4");
    assert!(is_inconclusive(&slices([640, 160], [160, 640])), "the wrong way round");
    assert!(is_inconclusive(&slices([10, 40], [400, 100])), "too few");
    assert!(is_inconclusive(&slices([0, 0], [0, 0])));
    assert!(is_inconclusive(&slices([u64::MAX, 1], [1, 1])));
}

#[test]
fn who_stands_while_another_runs_was_stopped() {
    assert_eq!(stands(0, 300), Effect::Proven);
    assert_eq!(stands(2, 300), Effect::Proven, "the end of one under way");
    assert_eq!(stands(290, 300), Effect::NoEffect);
    assert!(is_inconclusive(&stands(40, 300)));
    assert!(is_inconclusive(&stands(0, 3)), "a GPU on which nobody runs proves nothing");
}

#[test]
fn who_stays_down_after_it_was_let_go_is_told_apart() {
    assert_eq!(goes_on(Effect::Proven, 48, 48), Effect::Proven);
    assert_eq!(goes_on(Effect::Proven, 0, 48), Effect::NotUndone);
    assert_eq!(goes_on(Effect::NoEffect, 0, 48), Effect::NoEffect);
    // What was in flight may have ended before.
    assert!(goes_on(Effect::Proven, 24, 48).is_inconclusive());
}

#[test]
fn switches_are_counted_or_not() {
    let at = |saves| CtxswStats { saves, ..CtxswStats::default() };
    assert_eq!(switches(at(7), at(90)), Effect::Proven);
    assert_eq!(switches(at(7), at(7)), Effect::NoEffect);
    assert_eq!(switches(at(u32::MAX), at(3)), Effect::Proven, "the count wraps");
}

#[test]
fn a_manager_believes_a_verdict_of_its_own_boot_driver_and_gpu_only() {
    let verdict = verdict(Effect::Proven, Effect::NoEffect);
    let unknown = Driver::Unknown("600.1".into());
    assert!(verdict.holds_for(&unknown, Some("GPU-1"), "b"));
    assert!(verdict.holds_for(&Driver::Unseen, None, "b"), "what cannot be seen is not contradicted");
    assert!(!verdict.holds_for(&Driver::Compared("580.1".into()), Some("GPU-1"), "b"));
    assert!(!verdict.holds_for(&unknown, Some("GPU-2"), "b"));
    assert!(!verdict.holds_for(&unknown, Some("GPU-1"), "c"));
    let unsure = Verdict { stops: Effect::inconclusive("few"), ..verdict };
    assert!(!unsure.holds_for(&unknown, Some("GPU-1"), "b"), "nothing was found out");
}

fn verdict(stops: Effect, slices: Effect) -> Verdict {
    let about = About { driver: "600.1".into(), gpu: "GPU-1".into(), boot: "b".into() };
    Verdict { about, slices, stops, counts: Effect::Proven }
}

#[test]
fn stops_carry_turns_and_slices_alone_carry_nothing() {
    let refused = || Effect::refused("0x56");
    assert_eq!(verdict(Effect::Proven, Effect::Proven).allows(), Allows::Everything);
    assert_eq!(verdict(Effect::Proven, refused()).allows(), Allows::Stops);
    assert_eq!(verdict(Effect::NoEffect, Effect::Proven).allows(), Allows::Nothing);
    assert_eq!(verdict(Effect::NotUndone, Effect::Proven).allows(), Allows::Nothing);
    assert_eq!(verdict(Effect::inconclusive("few"), Effect::Proven).allows(), Allows::Nothing);
}

#[test]
fn a_verdict_is_about_one_driver_one_gpu_and_one_boot() {
    let verdict = verdict(Effect::Proven, Effect::Proven);
    let same = verdict.about.clone();
    assert!(verdict.is_about(&same));
    for other in [
        About { driver: "600.2".into(), ..same.clone() },
        About { gpu: "GPU-2".into(), ..same.clone() },
        About { boot: "c".into(), ..same.clone() },
    ] {
        assert!(!verdict.is_about(&other), "{other:?}");
    }
    let nowhere = About { boot: String::new(), ..same };
    let unknown = Verdict { about: nowhere.clone(), ..verdict };
    assert!(!unknown.is_about(&nowhere), "two boots that cannot be told are not the same");
}
