//! Idle holders: when the token is returned, and when the driver is queried.

use super::*;

#[test]
fn unused_grant_is_returned_at_its_deadline() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(10 * MS);
    wait_for(&device, 100);
    fixture.clock.advance(200 * MS);
    device.track();
    device.track();
    let sent = device.link.sent();
    assert_eq!(
        used(&device, 1),
        (10.0, 0.0),
        "the idle part of the grant is not charged, nor the late wake-up"
    );
    assert_eq!(sent[1].1, None);
    assert_eq!(lock(&device.driver.marked).len(), 2, "begin and end of the burst, and nothing at the drain");
}

#[test]
fn idle_holder_returns_the_token_when_other_clients_wait() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(MS);
    wait_for(&device, 100);
    fixture.clock.advance(10 * MS);
    device.track();
    assert_eq!(device.link.sent().len(), 1, "no other client waits");
    device.link.contended.store(true, SeqCst);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (1.0, 0.0));
    assert!(device.try_launch(stream(100), &thread).is_err(), "a returned grant is not used");
}

#[test]
fn holder_keeps_the_token_below_the_idle_time() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    fixture.clock.advance(MS);
    wait_for(&device, 100);
    fixture.clock.advance(fixture.settings.idle_ns - 1);
    device.track();
    device.track();
    assert_eq!(device.link.sent().len(), 1);
    fixture.clock.advance(1);
    device.track();
    device.track();
    assert_eq!(device.link.sent().len(), 2);
}

#[test]
fn program_with_long_windows_returns_the_token_at_once() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    for _ in 0..4 {
        launch(&device, &thread, 100);
        fixture.clock.advance(MS);
        wait_for(&device, 100);
        fixture.clock.advance(9 * MS);
    }
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    wait_for(&device, 100);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (4.0, 0.0));
}

#[test]
fn idleness_without_waits_is_found_by_querying_the_driver() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    fixture.clock.advance(MS);
    device.track();
    fixture.clock.advance(MS);
    device.track();
    assert_eq!(device.link.sent().len(), 1, "the stream has work");
    fixture.clock.advance(5 * MS);
    lock(&device.driver.busy).clear();
    device.track();
    fixture.clock.advance(MS);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (7.0, 0.0));
}

#[test]
fn driver_is_not_queried_while_launches_go_on() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.link.contended.store(true, SeqCst);
    for _ in 0..10 {
        launch(&device, &thread, 100);
        fixture.clock.advance(MS);
        device.track();
    }
    assert_eq!(device.driver.queries.load(SeqCst), 0);
}
