//! Bounds that hold whatever the manager shows.

use super::*;
use proptest::prelude::*;

fn urgent() -> impl Strategy<Value = UrgentWork> {
    prop_oneof![Just(UrgentWork::None), Just(UrgentWork::Now), (0u64..40_000_000).prop_map(UrgentWork::At)]
}

proptest! {
    #[test]
    fn no_burst_is_postponed_longer_than_the_bound(
        bursts in prop::collection::vec((0u64..20_000_000, prop::collection::vec(urgent(), 1..20)), 1..20)
    ) {
        let mut admission = BurstAdmission::default();
        let mut now = 0;
        for (lasts, shown) in bursts {
            let mut postponed = 0;
            for work in shown {
                if let Some(ns) = admission.postpone(now, work) {
                    prop_assert!(ns > 0);
                    now += ns;
                    postponed += ns;
                    admission.was_postponed(ns);
                }
            }
            prop_assert!(postponed <= MAX_POSTPONED_NS, "{postponed}");
            admission.burst_began(now);
            admission.launched(now);
            now += lasts;
            admission.burst_ended(now);
        }
    }
}

#[test]
fn median_and_maximum_are_of_the_last_64() {
    let mut durations = RecentDurations::default();
    assert_eq!((durations.median(), durations.longest()), (None, None));
    (1..=3).for_each(|ns| durations.add(ns));
    assert_eq!((durations.median(), durations.longest()), (None, Some(3)));
    durations.add(4);
    assert_eq!(durations.median(), Some(3));
    (0..68).for_each(|_| durations.add(10));
    assert_eq!((durations.median(), durations.longest()), (Some(10), Some(10)));
    durations.add(50);
    assert_eq!(durations.longest(), Some(50), "a new maximum counts at once");
}
