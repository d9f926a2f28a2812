use super::*;
use proptest::prelude::*;

const WINDOW: u64 = 10_000_000_000;

#[test]
fn amount_leaves_the_window_gradually() {
    let mut sum = SlidingSum::new(WINDOW);
    sum.add(0, 1_000_000_000, 500_000_000);
    assert_eq!(sum.total(1_000_000_000), 500_000_000);
    assert_eq!(sum.total(WINDOW), 500_000_000);
    assert_eq!(sum.total(WINDOW + 500_000_000), 250_000_000);
    assert_eq!(sum.total(WINDOW + 550_000_000), 225_000_000);
    assert_eq!(sum.total(WINDOW + 1_000_000_000), 0);
    assert_eq!(sum.total(100 * WINDOW), 0);
}

proptest! {
    #[test]
    fn sum_inside_the_window_is_exact(
        parts in prop::collection::vec((0u64..50_000_000, 0u64..100_000_000), 1..60)
    ) {
        let mut sum = SlidingSum::new(WINDOW);
        let (mut now, mut expected) = (5_000_000_000u64, 0);
        for (span, amount) in parts {
            sum.add(now, now + span, amount);
            now += span;
            expected += amount;
        }
        prop_assert_eq!(sum.total(now), expected);
        prop_assert_eq!(sum.total(now + 2 * WINDOW), 0);
    }

    #[test]
    fn always_busy_fills_exactly_the_window(step in 1_000_000u64..300_000_000, steps in 300u64..500) {
        let mut sum = SlidingSum::new(WINDOW);
        let mut now = 0;
        for _ in 0..steps {
            sum.add(now, now + step, step);
            now += step;
        }
        let total = sum.total(now);
        let expected = now.min(WINDOW);
        prop_assert!(total.abs_diff(expected) <= steps, "{} of {}", total, expected);
    }
}
