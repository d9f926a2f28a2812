use super::*;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Wake-ups without activity that are accepted at once.
const BURST: u64 = 10_000;

#[test]
fn rare_wakeups_without_activity_are_accepted_for_ever() {
    let mut wakeups = Wakeups::default();
    // One in ten seconds, for ten weeks.
    assert!((0..604_800).all(|nth| wakeups.accept(Wakeup::WithoutActivity, S + nth * 10 * S)));
    // And the whole burst after that.
    let now = 7_000_000 * S;
    assert!((0..BURST).all(|_| wakeups.accept(Wakeup::WithoutActivity, now)));
    assert!(!wakeups.accept(Wakeup::WithoutActivity, now));
    assert!(!wakeups.accept(Wakeup::WithoutActivity, now), "a new eventfd does not refill the limiter");
}

#[test]
fn wakeups_without_activity_above_the_rate_are_detected() {
    for per_second in [1_100, 2_000, 100_000] {
        let mut wakeups = Wakeups::default();
        let mut times = (0..1_000_000).map(|nth| S + nth * S / per_second);
        let found = times.find(|now| !wakeups.accept(Wakeup::WithoutActivity, *now)).unwrap();
        let count = (found - S) * per_second / S + 1;
        assert!(count <= BURST + (found - S) / MS + 2, "{count} at {per_second} a second");
    }
    let mut wakeups = Wakeups::default();
    assert!((0..100_000).all(|nth| wakeups.accept(Wakeup::WithoutActivity, S + nth * MS)));
}

#[test]
fn ten_thousand_wakeups_with_activity_a_second_are_accepted_and_twice_as_many_are_not() {
    let mut wakeups = Wakeups::default();
    assert!((0..1_000_000).all(|nth| wakeups.accept(Wakeup::WithActivity, S + nth * MS / 10)));
    let mut wakeups = Wakeups::default();
    assert!((0..1_000_000).any(|nth| !wakeups.accept(Wakeup::WithActivity, S + nth * MS / 20)));
}

#[test]
fn process_with_five_thousand_requests_a_second_may_wake_the_manager_without_activity_now_and_then() {
    let mut wakeups = Wakeups::default();
    let wakeup = |nth| if nth % 10 == 0 { Wakeup::WithoutActivity } else { Wakeup::WithActivity };
    assert!((0..1_000_000).all(|nth| wakeups.accept(wakeup(nth), S + nth * S / 5_000)));
}
