//! Release sequences with a driver that refuses controls, and with a sequence that ends early.

use crate::channel_groups::{ControlOp, KnownSetting, ReleaseSequence, Setting, TINY_SLICE_US};
use proptest::prelude::*;
use std::collections::BTreeSet;

const STOPPED: KnownSetting = KnownSetting { enabled: Some(false), slice_us: Some(1) };

/// Makes every control of the sequence; those for which `refused` returns true fail.
fn release(
    groups: &[KnownSetting],
    refused: impl Fn(usize, ControlOp) -> bool,
) -> (Vec<(usize, ControlOp)>, Vec<usize>) {
    let mut release = ReleaseSequence::new(groups.iter().copied().enumerate());
    let mut made = Vec::new();
    while let Some((group, op)) = release.begin() {
        made.push((group, op));
        release.done(!refused(group, op));
    }
    let free = release.free().collect();
    (made, free)
}

fn slice(group: usize) -> (usize, ControlOp) {
    (group, ControlOp::SetSlice(2048))
}

fn start(group: usize) -> (usize, ControlOp) {
    (group, ControlOp::Enable)
}

#[test]
fn each_group_is_released_before_the_next_one_and_enabled_groups_come_last() {
    let runs = KnownSetting { enabled: Some(true), slice_us: Some(1) };
    let (made, free) = release(&[runs, STOPPED, STOPPED], |_, _| false);
    assert_eq!(made, [slice(1), start(1), slice(2), start(2), slice(0)]);
    assert_eq!(free, [1, 2, 0]);
}

#[test]
fn group_with_a_safe_slice_is_enabled_though_its_slice_cannot_be_reset() {
    let disabled = KnownSetting { enabled: Some(false), slice_us: Some(5000) };
    let (made, free) = release(&[disabled, disabled], |_, op| op != ControlOp::Enable);
    assert_eq!(made, [start(0), slice(0), start(1), slice(1), slice(0), slice(1)]);
    assert_eq!(free, [0_usize; 0]);
}

#[test]
fn one_group_that_keeps_a_tiny_slice_is_enabled_after_all_others() {
    let (made, free) = release(&[STOPPED; 3], |group, op| group < 2 && op != ControlOp::Enable);
    assert_eq!(made, [slice(0), slice(1), slice(2), start(2), slice(0), slice(1), start(0)]);
    assert_eq!(free, [2]);
}

#[test]
fn no_group_is_enabled_with_a_tiny_slice_beside_another_that_may_have_one() {
    for enabled in [Some(true), None] {
        let other = KnownSetting { enabled, slice_us: None };
        let (made, _) = release(&[STOPPED, other], |_, op| op != ControlOp::Enable);
        assert!(!made.contains(&start(0)), "{made:?}");
    }
    let (made, _) = release(&[KnownSetting::default()], |_, op| op != ControlOp::Enable);
    assert_eq!(made.last(), Some(&start(0)), "a single group may keep a tiny slice");
}

#[test]
fn no_control_is_made_for_a_free_group() {
    let free = KnownSetting { enabled: Some(true), slice_us: Some(2048) };
    assert_eq!(release(&[free], |_, _| false), (vec![], vec![0]));
}

prop_compose! {
    /// The actual and the known setting of a group.
    fn any_group()(
        enabled in any::<bool>(), tiny in any::<bool>(), knows_run in any::<bool>(), knows_slice in any::<bool>(),
        fails in 0..4u8, effective in any::<bool>(),
    ) -> (Setting, KnownSetting, u8, bool) {
        let setting = Setting { enabled, slice_us: if tiny { 1 } else { 5000 } };
        let known = KnownSetting {
            enabled: knows_run.then_some(setting.enabled),
            slice_us: knows_slice.then_some(setting.slice_us),
        };
        (setting, known, fails, effective)
    }
}

proptest! {
    /// For any failures and any end of time, no two groups are enabled with tiny slices. A group that is still disabled
    /// at the end could not be enabled, or may have a tiny slice while another such group may be enabled.
    #[test]
    fn no_group_stays_disabled_and_no_two_are_enabled_with_tiny_slices(
        mut groups in proptest::collection::vec(any_group(), 1..6),
    ) {
        // The scheduler keeps this invariant.
        let mut tiny = 0;
        for (setting, known, ..) in &mut groups {
            tiny += usize::from(setting.enabled && setting.slice_us < TINY_SLICE_US);
            if tiny > 1 && setting.enabled && setting.slice_us < TINY_SLICE_US {
                setting.enabled = false;
                known.enabled = known.enabled.map(|_| false);
            }
        }
        let mut release = ReleaseSequence::new(groups.iter().map(|(_, known, ..)| *known).enumerate());
        let mut controls = 0;
        while let Some((group, op)) = release.begin() {
            controls += 1;
            let (setting, _, fails, effective) = &mut groups[group];
            let failed = if op == ControlOp::Enable { *fails & 1 != 0 } else { *fails & 2 != 0 };
            if !failed || *effective {
                match op {
                    ControlOp::SetSlice(us) => setting.slice_us = us,
                    ControlOp::Enable => setting.enabled = true,
                    ControlOp::Disable => prop_assert!(false, "the sequence disables no group"),
                }
            }
            release.done(!failed);
            let running = groups.iter().filter(|(s, ..)| s.enabled && s.slice_us < TINY_SLICE_US).count();
            prop_assert!(running <= 1, "{groups:?}");
        }
        prop_assert!(controls <= 4 * groups.len());
        let free: BTreeSet<usize> = release.free().collect();
        for (index, (setting, known, fails, _)) in groups.iter().enumerate() {
            prop_assert!(!free.contains(&index) || *setting == Setting::FREE);
            prop_assert!(*fails != 0 || free.contains(&index), "{index} of {groups:?}");
            let harmless = known.slice_us.is_some_and(|us| us >= TINY_SLICE_US);
            prop_assert!(*fails & 1 != 0 || !harmless || setting.enabled, "{index} of {groups:?}");
        }
        let may_stay_tiny = |(setting, known, fails, _): &(Setting, KnownSetting, u8, bool)| {
            let may_run = setting.enabled || known.enabled != Some(false) || *fails & 1 != 0;
            *fails & 2 != 0 && may_run && known.slice_us.is_none_or(|us| us < TINY_SLICE_US)
        };
        let startable = |(s, _, fails, _): &(Setting, KnownSetting, u8, bool)| !s.enabled && *fails & 1 == 0;
        if !groups.iter().any(may_stay_tiny) {
            prop_assert!(!groups.iter().any(startable), "{groups:?}");
        }
    }
}
