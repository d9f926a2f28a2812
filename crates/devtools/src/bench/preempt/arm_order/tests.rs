use std::collections::BTreeSet;

use super::*;

const ROW: (u32, PreemptionLevel) = (1000, PreemptionLevel::Full);

#[test]
fn every_block_has_every_arm_once() {
    let order = ArmOrder::of(1, ROW, &[false, true]);
    for number in 0..10 {
        let names: BTreeSet<_> = order.block(number).into_iter().map(Arm::name).collect();
        assert_eq!((names.len(), order.block(number).len()), (6, 6), "block {number}");
    }
}

#[test]
fn an_arm_keeps_neither_its_place_nor_its_predecessor() {
    let order = ArmOrder::of(1, ROW, &[false, true]);
    let blocks: Vec<_> = (0..6).map(|number| order.block(number)).collect();
    for arm in order.block(0) {
        let places = blocks.iter().filter_map(|block| block.iter().position(|other| *other == arm));
        assert!(places.collect::<BTreeSet<_>>().len() >= 3, "{arm:?}: {blocks:?}");
        let before = |block: &Vec<Arm>| {
            let at = block.iter().position(|other| *other == arm)?;
            at.checked_sub(1).map(|at| block[at].name())
        };
        assert!(blocks.iter().filter_map(before).collect::<BTreeSet<_>>().len() >= 2, "{arm:?}");
    }
}

#[test]
fn the_same_seed_repeats_the_order_and_another_seed_changes_it() {
    let names = |seed| ArmOrder::of(seed, ROW, &[true]).names(3);
    assert_eq!(names(7), names(7));
    assert!((0..20).any(|seed| names(seed) != names(7)));
    assert_ne!(
        names(7),
        ArmOrder::of(7, (10, PreemptionLevel::Full), &[true]).names(3),
        "each row has its own"
    );
}
