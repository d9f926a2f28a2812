//! Launches are postponed while clients with an earlier deadline have urgent work.

use super::*;
use sluice_comm::page::grant::URGENT_NOW;

const US: u64 = 1_000;

/// A latency-critical process that has had eight bursts of `burst_ns`.
fn learned<'p>(fixture: &'p Fixture, thread: &ThreadState, burst_ns: u64) -> TestDevice<'p> {
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.link.critical.store(true, SeqCst);
    device.track();
    device.track();
    for _ in 0..8 {
        burst(&device, fixture, thread, burst_ns);
    }
    device
}

fn burst(device: &TestDevice<'_>, fixture: &Fixture, thread: &ThreadState, ns: u64) {
    assert!(launch(device, thread, 100));
    fixture.clock.advance(ns);
    wait_for(device, 100);
}

/// How long the next launch waits. The burst goes on.
fn wait_of_a_launch(device: &TestDevice<'_>, fixture: &Fixture, thread: &ThreadState) -> u64 {
    let before = fixture.clock.now_ns();
    assert!(launch(device, thread, 100));
    fixture.clock.now_ns() - before
}

/// What was reported about postponed launches.
fn postponed(device: &TestDevice<'_>) -> Vec<(bool, u64)> {
    lock(&device.link.postponed).clone()
}

#[test]
fn burst_waits_for_urgent_work_and_its_wait_is_reported() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    device.link.urgent.store(URGENT_NOW, SeqCst);
    device.link.urgent_until_ns.store(fixture.clock.now_ns() + 700 * US, SeqCst);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 700 * US);
    assert_eq!(postponed(&device), [(true, 0), (false, 700 * US)]);
    assert_eq!(device.link.sent().len(), 0, "the grant is neither returned nor requested");
}

#[test]
fn burst_begins_only_if_it_is_over_before_urgent_work_is_expected() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    // 1 ms and a context switch.
    let due = fixture.clock.now_ns() + 1_190 * US;
    device.link.urgent.store(due, SeqCst);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 0);
    fixture.clock.advance(MS);
    wait_for(&device, 100);
    let due = fixture.clock.now_ns() + 1_189 * US;
    device.link.urgent.store(due, SeqCst);
    device.link.urgent_until_ns.store(due + 300 * US, SeqCst);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 1_489 * US);
}

#[test]
fn burst_waits_at_most_5_ms_and_is_not_postponed_again() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    device.link.urgent.store(URGENT_NOW, SeqCst);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 5 * MS);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 0, "the bound holds for the whole burst");
    wait_for(&device, 100);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 5 * MS, "the next burst waits again");
}

#[test]
fn expected_work_that_does_not_come_is_waited_for_1_ms_even_if_the_manager_hangs() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    device.link.urgent.store(fixture.clock.now_ns() + 500 * US, SeqCst);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 1_500 * US);
    wait_for(&device, 100);
    device.link.urgent.store(URGENT_NOW, SeqCst);
    device.link.silent.store(true, SeqCst);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 0, "a silent manager withdraws nothing");
}

#[test]
fn burst_shorter_than_a_context_switch_is_not_postponed() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, 150 * US);
    device.link.urgent.store(URGENT_NOW, SeqCst);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 0);
    assert_eq!(postponed(&device), []);
}

#[test]
fn later_launches_of_a_long_burst_wait_once_urgent_work_is_due() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    // One burst in nine is long, as a prefill before tokens.
    burst(&device, &fixture, &thread, 6 * MS);
    let due = fixture.clock.now_ns() + 4 * MS;
    device.link.urgent.store(due, SeqCst);
    device.link.urgent_until_ns.store(due + MS, SeqCst);
    let wait = |_| {
        let wait = wait_of_a_launch(&device, &fixture, &thread);
        fixture.clock.advance(500 * US);
        wait
    };
    let waits: Vec<u64> = (0..10).map(wait).collect();
    // The eighth comes 3.5 ms after the first; 190 us before the work is due it would still pass.
    assert_eq!(waits, [0, 0, 0, 0, 0, 0, 0, 0, 1_000 * US, 0]);
}

#[test]
fn launches_take_the_fast_path_again_when_the_burst_ends_before_urgent_work() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    let is_fast = || device.try_launch(stream(100), &thread).is_ok();
    device.link.urgent.store(fixture.clock.now_ns() + 4 * MS, SeqCst);
    wait_of_a_launch(&device, &fixture, &thread);
    assert!(is_fast());
    wait_for(&device, 100);
    device.link.urgent.store(fixture.clock.now_ns() + 1_190 * US, SeqCst);
    wait_of_a_launch(&device, &fixture, &thread);
    assert!(is_fast(), "the longest burst so far is over in time");
    fixture.clock.advance(6 * MS);
    wait_for(&device, 100);
    device.link.urgent.store(fixture.clock.now_ns() + 4 * MS, SeqCst);
    wait_of_a_launch(&device, &fixture, &thread);
    assert!(!is_fast(), "each launch of the burst is checked");
}

#[test]
fn best_effort_process_under_an_unlimited_grant_is_not_postponed() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    device.link.critical.store(false, SeqCst);
    fixture.clock.advance(10 * MS);
    device.track();
    device.link.urgent.store(URGENT_NOW, SeqCst);
    assert_eq!(wait_of_a_launch(&device, &fixture, &thread), 0);
}

#[test]
fn periodic_requests_are_forecast_with_their_duration() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    let mut began = 0;
    for _ in 0..20 {
        fixture.clock.advance(9 * MS);
        began = fixture.clock.now_ns();
        burst(&device, &fixture, &thread, MS);
    }
    let forecast = lock(&device.link.forecast).expect("a forecast");
    assert_eq!(forecast.service_ns, MS);
    // The smallest margin is 20 us.
    assert!((began + 9_970 * US..began + 10 * MS).contains(&forecast.expected_ns), "{forecast:?} {began}");
}

#[test]
fn bursts_with_short_gaps_are_one_request() {
    let (fixture, thread) = (Fixture::new(), ThreadState::empty());
    let device = learned(&fixture, &thread, MS);
    for _ in 0..10 {
        fixture.clock.advance(200 * MS);
        for _ in 0..20 {
            burst(&device, &fixture, &thread, MS);
            fixture.clock.advance(50 * US);
        }
    }
    let forecast = lock(&device.link.forecast).expect("a forecast");
    assert_eq!(forecast.service_ns, 20 * MS + 19 * 50 * US);
    assert_eq!(forecast.expected_ns, 0, "too few requests for a rate");
}
