//! A time-stamp counter that is set while a grant is valid.

use super::*;

#[test]
fn grant_ends_by_the_clock_after_the_counter_was_set_back() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.set_ticks_back(900_000_000);
    fixture.clock.advance(103 * MS);
    assert!(device.try_launch(stream(100), &thread).is_ok(), "by the counter the grant has a second left");
    device.track();
    assert!(device.try_launch(stream(100), &thread).is_err());
    device.track();
    assert_eq!(device.link.sent().len(), 2, "the grant was returned");
}

#[test]
fn grant_lasts_until_its_deadline_after_the_counter_was_set_forward() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.set_ticks_back(-900_000_000);
    assert!(device.try_launch(stream(100), &thread).is_err());
    assert!(is_governed(&device.launch(stream(100), &thread)));
    assert_eq!(device.link.sent().len(), 1, "the grant goes on");
    fixture.clock.advance(100 * MS);
    assert!(device.try_launch(stream(100), &thread).is_err());
}

#[test]
fn small_drift_between_counter_and_clock_changes_nothing() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.set_ticks_back(1_000_000);
    fixture.clock.advance(100 * MS);
    device.track();
    assert!(device.try_launch(stream(100), &thread).is_ok(), "the counter decides");
}
