//! Evaluation of kernel counts by the self-test.

use sluice_nvrm::DriverVersion;
use sluice_nvrm::abi::CtxswStats;
use sluice_nvrm::self_test::{
    Effect, SelfTestResult, SelfTestSubject, UsableControls, disable_effect, enable_effect,
    switch_count_effect, time_slice_effect,
};

fn is_inconclusive(effect: &Effect) -> bool {
    effect.is_inconclusive()
}

#[test]
fn shares_that_follow_the_slices_in_both_orders_prove_them() {
    assert_eq!(time_slice_effect([160, 640], [641, 159]), Effect::Proven);
    assert_eq!(time_slice_effect([200, 600], [640, 160]), Effect::Proven, "a quarter is near a fifth");
}

#[test]
fn shares_that_do_not_change_show_no_effect() {
    assert_eq!(time_slice_effect([400, 400], [400, 400]), Effect::NoEffect);
    // One program is slower than the other with either slice.
    assert_eq!(time_slice_effect([200, 600], [210, 590]), Effect::NoEffect);
    assert_eq!(time_slice_effect([600, 200], [560, 240]), Effect::NoEffect);
}

#[test]
fn shares_between_the_bounds_are_inconclusive() {
    assert!(is_inconclusive(&time_slice_effect([320, 480], [480, 320])), "changed, but far from 1 : 4");
    assert!(is_inconclusive(&time_slice_effect([640, 160], [160, 640])), "the wrong way round");
    assert!(is_inconclusive(&time_slice_effect([10, 40], [400, 100])), "too few");
    assert!(is_inconclusive(&time_slice_effect([0, 0], [0, 0])));
    assert!(is_inconclusive(&time_slice_effect([u64::MAX, 1], [1, 1])));
}

#[test]
fn program_that_completes_nothing_beside_a_running_one_is_disabled() {
    assert_eq!(disable_effect(0, 300), Effect::Proven);
    assert_eq!(disable_effect(2, 300), Effect::Proven, "kernels that were in flight");
    assert_eq!(disable_effect(290, 300), Effect::NoEffect);
    assert!(is_inconclusive(&disable_effect(40, 300)));
    assert!(is_inconclusive(&disable_effect(0, 3)), "the other program hardly ran");
}

#[test]
fn program_that_does_not_continue_after_enabling_is_not_undone() {
    assert_eq!(enable_effect(Effect::Proven, 48, 48), Effect::Proven);
    assert_eq!(enable_effect(Effect::Proven, 0, 48), Effect::NotUndone);
    assert_eq!(enable_effect(Effect::NoEffect, 0, 48), Effect::NoEffect);
    // These kernels may have been in flight.
    assert!(enable_effect(Effect::Proven, 24, 48).is_inconclusive());
}

#[test]
fn increasing_switch_counts_prove_them() {
    let at = |saves| CtxswStats { saves, ..CtxswStats::default() };
    assert_eq!(switch_count_effect(at(7), at(90)), Effect::Proven);
    assert_eq!(switch_count_effect(at(7), at(7)), Effect::NoEffect);
    assert_eq!(switch_count_effect(at(u32::MAX), at(3)), Effect::Proven, "the count wraps");
}

#[test]
fn result_applies_only_to_its_boot_driver_and_gpu() {
    let result = self_test_result(Effect::Proven, Effect::NoEffect);
    let unknown = DriverVersion::Unknown("600.1".into());
    assert!(result.applies_to(&unknown, Some("GPU-1"), "b"));
    assert!(result.applies_to(&DriverVersion::NotVisible, None, "b"), "an invisible version is accepted");
    assert!(!result.applies_to(&DriverVersion::Compared("580.1".into()), Some("GPU-1"), "b"));
    assert!(!result.applies_to(&unknown, Some("GPU-2"), "b"));
    assert!(!result.applies_to(&unknown, Some("GPU-1"), "c"));
    let unsure = SelfTestResult { stops: Effect::inconclusive("few"), ..result };
    assert!(!unsure.applies_to(&unknown, Some("GPU-1"), "b"), "the test decided nothing");
}

fn self_test_result(stops: Effect, slices: Effect) -> SelfTestResult {
    let about = SelfTestSubject { driver: "600.1".into(), gpu: "GPU-1".into(), boot: "b".into() };
    SelfTestResult { about, slices, stops, counts: Effect::Proven }
}

#[test]
fn quanta_need_the_disabling_control_and_slices_alone_are_not_enough() {
    let refused = || Effect::refused("0x56");
    assert_eq!(self_test_result(Effect::Proven, Effect::Proven).usable_controls(), UsableControls::All);
    assert_eq!(self_test_result(Effect::Proven, refused()).usable_controls(), UsableControls::DisableOnly);
    assert_eq!(
        self_test_result(Effect::NoEffect, Effect::Proven).usable_controls(),
        UsableControls::NoControls
    );
    assert_eq!(
        self_test_result(Effect::NotUndone, Effect::Proven).usable_controls(),
        UsableControls::NoControls
    );
    assert_eq!(
        self_test_result(Effect::inconclusive("few"), Effect::Proven).usable_controls(),
        UsableControls::NoControls
    );
}

#[test]
fn result_is_about_exactly_one_driver_gpu_and_boot() {
    let result = self_test_result(Effect::Proven, Effect::Proven);
    let same = result.about.clone();
    assert!(result.is_for(&same));
    for other in [
        SelfTestSubject { driver: "600.2".into(), ..same.clone() },
        SelfTestSubject { gpu: "GPU-2".into(), ..same.clone() },
        SelfTestSubject { boot: "c".into(), ..same.clone() },
    ] {
        assert!(!result.is_for(&other), "{other:?}");
    }
    let nowhere = SelfTestSubject { boot: String::new(), ..same };
    let unknown = SelfTestResult { about: nowhere.clone(), ..result };
    assert!(!unknown.is_for(&nowhere), "unknown boot ids do not match");
}
