//! Measured GPU time: which bursts events measure, and what is charged.

use super::*;

#[test]
fn only_the_busy_time_of_several_bursts_is_charged() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    for _ in 0..3 {
        launch(&device, &thread, 100);
        fixture.clock.advance(2 * MS);
        wait_for(&device, 100);
        fixture.clock.advance(5 * MS);
    }
    fixture.clock.advance(100 * MS);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (6.0, 0.0));
}

#[test]
fn events_measure_a_grant_that_was_one_burst() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    device.driver.drain_ns.store(7 * MS, SeqCst);
    device.driver.elapsed_ns.store(104 * MS, SeqCst);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (104.0, 4.0), "GPU time, not the time at which the tracker woke up");
    assert_eq!(device.driver.live_marks.load(SeqCst), 0, "every event is returned");
}

#[test]
fn delay_of_the_host_at_the_end_of_a_burst_is_not_charged() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.driver.elapsed_ns.store(4 * MS, SeqCst);
    // Bursts of 4 ms on the GPU whose end the host notices after 5 ms. Most of them are not measured.
    for _ in 0..15 {
        launch(&device, &thread, 100);
        fixture.clock.advance(5 * MS);
        wait_for(&device, 100);
    }
    fixture.clock.advance(100 * MS);
    device.track();
    device.track();
    let (used_ms, _) = used(&device, 1);
    assert!((60.0..63.0).contains(&used_ms), "{used_ms} ms for 60 ms of GPU time in 75 ms");
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

#[test]
fn short_bursts_are_measured_rarely() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    for _ in 0..90 {
        launch(&device, &thread, 100);
        wait_for(&device, 100);
        fixture.clock.advance(MS);
    }
    // Nor does each wait of one burst record an event.
    launch(&device, &thread, 100);
    for _ in 0..90 {
        let wait = device.begin_wait(WaitTarget::Stream(7, stream(100)), 1);
        device.end_wait(wait, false);
    }
    let events = lock(&device.driver.marked).len();
    assert!((10..=20).contains(&events), "{events} events in 90 ms");
}

#[test]
fn measurement_applies_to_its_own_burst_only() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.driver.elapsed_ns.store(50 * MS, SeqCst);
    // The wait for two streams leaves the burst unmeasured, and the next begins too soon to be measured.
    launch(&device, &thread, 100);
    launch(&device, &thread, 101);
    fixture.clock.advance(MS);
    wait_for(&device, 100);
    lock(&device.driver.busy).clear();
    device.end_wait(device.begin_wait(WaitTarget::Context(7), 1), true);
    fixture.clock.advance(2 * MS);
    launch(&device, &thread, 100);
    fixture.clock.advance(97 * MS);
    device.driver.drain_ns.store(2 * MS, SeqCst);
    device.track();
    device.track();
    let (used_ms, overuse_ms) = used(&device, 1);
    assert_eq!(overuse_ms, 2.0);
    assert!(used_ms > 90.0, "{used_ms}");
}

#[test]
fn a_wait_that_fails_ends_no_burst() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(MS);
    let wait = device.begin_wait(WaitTarget::Stream(7, stream(100)), 1);
    device.end_wait(wait, false);
    assert!(device.lock().is_busy());
}

#[test]
fn unlimited_grant_keeps_no_burst_records() {
    for unlimited in [true, false] {
        let fixture = Fixture::new();
        let (device, thread) = (fixture.detached(), ThreadState::empty());
        device.link.unlimited.store(unlimited, SeqCst);
        device.link.quota_ms.store(1000, SeqCst);
        device.track();
        for _ in 0..3 {
            assert!(launch(&device, &thread, 100));
            fixture.clock.advance(MS);
            wait_for(&device, 100);
            fixture.clock.advance(MS);
        }
        let now = fixture.clock.now_ns();
        let known = device.lock().burst.predict_single(now) > 0.0;
        assert_eq!(known, !unlimited);
    }
}

/// A latency-critical process beside a contender, whose requests need 4 ms on the GPU and last 5 ms.
fn critical(fixture: &Fixture) -> TestDevice<'_> {
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.link.critical.store(true, SeqCst);
    device.link.takes_gpu.store(true, SeqCst);
    device.link.contenders.store(1, SeqCst);
    device.driver.elapsed_ns.store(4 * MS, SeqCst);
    device.track();
    device
}

/// Makes requests, one each 10 ms. Returns which of them recorded events, and how many each.
fn requests(fixture: &Fixture, device: &TestDevice<'_>, count: u64) -> Vec<(u64, usize)> {
    let thread = ThreadState::empty();
    let mut recorded = Vec::new();
    for request in 0..count {
        let before = lock(&device.driver.marked).len();
        launch(device, &thread, 100);
        fixture.clock.advance(5 * MS);
        wait_for(device, 100);
        fixture.clock.advance(5 * MS);
        let events = lock(&device.driver.marked).len() - before;
        recorded.extend((events > 0).then_some((request, events)));
    }
    recorded
}

#[test]
fn events_measure_the_first_requests_beside_a_contender_and_then_one_in_5_s() {
    let fixture = Fixture::new();
    let device = critical(&fixture);
    let sampled = [0, 2, 6, 14, 30, 62, 126, 254, 510, 1_010];
    assert_eq!(requests(&fixture, &device, 1_500), sampled.map(|request| (request, 2)));
}

#[test]
fn requests_that_events_do_not_measure_are_charged_as_those_measured() {
    let fixture = Fixture::new();
    let device = critical(&fixture);
    requests(&fixture, &device, 100);
    assert_eq!(device.lock().total_busy_ns, 400 * MS);
    assert!(
        device.driver.live_marks.load(SeqCst) <= 1,
        "the event at the begin of the last measured request"
    );
}

#[test]
fn request_is_reported_when_its_wait_ends() {
    let fixture = Fixture::new();
    let device = critical(&fixture);
    requests(&fixture, &device, 3);
    assert_eq!(device.link.busy_ns.load(SeqCst), 12 * MS, "the tracker has not run since the first request");
}

#[test]
fn requests_of_a_process_without_contenders_are_not_measured() {
    let fixture = Fixture::new();
    let device = critical(&fixture);
    device.link.contenders.store(0, SeqCst);
    assert_eq!(requests(&fixture, &device, 1_000), []);
    assert_eq!(device.lock().total_busy_ns, 5_000 * MS);
}

#[test]
fn requests_that_alternate_with_other_clients_by_default_slices_are_not_measured() {
    let fixture = Fixture::new();
    let device = critical(&fixture);
    device.link.takes_gpu.store(false, SeqCst);
    assert_eq!(requests(&fixture, &device, 1_000), []);
}
