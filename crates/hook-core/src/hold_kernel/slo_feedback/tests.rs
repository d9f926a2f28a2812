use super::*;
use proptest::prelude::*;

/// The weights after each of `requests` of which one in `each` misses the goal.
fn weights(feedback: &mut SloFeedback, requests: u32, each: u32) -> Vec<u32> {
    let one = |at: u32| {
        feedback.learn(at % each == each - 1);
        feedback.weight()
    };
    (0..requests).map(one).collect()
}

#[test]
fn weight_rises_while_more_than_one_request_in_a_hundred_misses_the_goal_and_falls_again() {
    let mut feedback = SloFeedback::default();
    assert_eq!(weights(&mut feedback, 10_000, 101).last(), Some(&USUAL_WEIGHT));
    let rising = weights(&mut feedback, 400, 10);
    assert!(rising.is_sorted(), "{rising:?}");
    assert_eq!(rising.last(), Some(&(2 * USUAL_WEIGHT)));
    let falling = weights(&mut feedback, 1_200, u32::MAX);
    assert!(falling.is_sorted_by(|a, b| a >= b) && falling.last() == Some(&USUAL_WEIGHT), "{falling:?}");
}

#[test]
fn a_goal_that_was_missed_for_an_hour_is_forgotten_as_fast_as_one_missed_for_a_second() {
    let falls_after = |missed: u32| {
        let mut feedback = SloFeedback::default();
        weights(&mut feedback, missed, 1);
        weights(&mut feedback, 2_000, u32::MAX).iter().position(|weight| *weight == USUAL_WEIGHT)
    };
    assert_eq!(falls_after(1_000_000), falls_after(300));
    assert_eq!(falls_after(300), Some(399));
}

proptest! {
    #[test]
    fn weight_is_bounded_and_each_request_changes_it_by_one_doubling_at_most(
        missed in prop::collection::vec(any::<bool>(), 0..3_000),
    ) {
        let mut feedback = SloFeedback::default();
        for missed in missed {
            let before = feedback.weight();
            feedback.learn(missed);
            let weight = feedback.weight();
            prop_assert!([2, 4].contains(&weight));
            let next = if missed { before * 2 } else { before / 2 };
            prop_assert!(weight == before || weight == next);
        }
    }
}
