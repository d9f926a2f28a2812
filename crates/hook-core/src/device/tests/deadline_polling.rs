//! The tracker's polling around the end of a grant.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::deadline_polling::AROUND_NS;

const US: u64 = 1_000;

fn polling() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.settings.polling_ns = AROUND_NS;
    fixture
}

/// Lets the tracker run until it has returned its first grant. Returns that time, and the sleeps that the tracker made, by their ends before
/// the deadline.
fn run_to_the_end(fixture: &Fixture, device: &TestDevice<'_>, deadline: u64) -> (u64, Vec<u64>) {
    let steps = AtomicUsize::new(0);
    let mut sleeps = Vec::new();
    while device.link.sent().len() < 2 {
        assert!(steps.fetch_add(1, SeqCst) < 1_000, "the grant is not returned");
        if let NextStep::At(at) = device.track() {
            match device.sleep_before(at) {
                Some(until) => {
                    sleeps.push(deadline.saturating_sub(until));
                    fixture.clock.set(until.max(fixture.clock.now_ns()));
                }
                None => device.pause_until(at),
            }
        }
    }
    (fixture.clock.now_ns(), sleeps)
}

/// A device with work under a grant for which another client waits, and the deadline.
fn with_contended_grant(fixture: &Fixture) -> (TestDevice<'_>, u64) {
    let device = fixture.device();
    launch(&device, &ThreadState::empty(), 100);
    let deadline = device.link.deadline_ns();
    device.link.contended.store(true, SeqCst);
    device.link.hand_off_ns.store(deadline, SeqCst);
    (device, deadline)
}

#[test]
fn contended_grant_ends_at_its_deadline_and_short_work_is_polled_for() {
    let fixture = polling();
    let (device, deadline) = with_contended_grant(&fixture);
    device.driver.ends_ns.store(deadline + 40 * US, SeqCst);
    let (returned, sleeps) = run_to_the_end(&fixture, &device, deadline);
    assert!(
        (deadline + 40 * US..deadline + 60 * US).contains(&returned),
        "{} µs late",
        (returned - deadline) / US
    );
    assert_eq!(sleeps.last(), Some(&AROUND_NS), "it sleeps until the polling begins");
    assert_eq!(device.driver.waits.load(SeqCst), 0, "a wait in the driver wakes late");
}

#[test]
fn longer_work_is_waited_for_in_the_driver() {
    let fixture = polling();
    let (device, deadline) = with_contended_grant(&fixture);
    device.driver.drain_ns.store(3 * MS, SeqCst);
    let (returned, _) = run_to_the_end(&fixture, &device, deadline);
    assert_eq!(device.driver.waits.load(SeqCst), 1);
    assert!(returned < deadline + AROUND_NS + 4 * MS);
    assert_eq!(used(&device, 1).1.floor(), 3.0);
}

#[test]
fn tracker_sleeps_to_the_deadline_while_no_other_client_waits() {
    let fixture = polling();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    let deadline = device.link.deadline_ns();
    let (_, sleeps) = run_to_the_end(&fixture, &device, deadline);
    assert_eq!(sleeps.last(), Some(&0));
    assert_eq!(device.driver.waits.load(SeqCst), 1);
}

#[test]
fn tracker_of_a_waiting_client_does_not_poll() {
    let fixture = polling();
    let device = fixture.device();
    let now = fixture.clock.now_ns();
    // The client is next in line, and the holder's grant ends at this moment.
    device.link.hand_off_ns.store(now, SeqCst);
    assert_eq!(device.sleep_before(now + MS), Some(now + MS));
}

#[test]
fn tracker_of_a_waiting_client_wakes_by_itself_after_the_hand_off() {
    let fixture = polling();
    let device = fixture.device();
    let requested = fixture.clock.now_ns();
    let mut state = device.lock();
    device.request_grant(&mut state, None);
    drop(state);
    assert_eq!(device.track(), NextStep::At(requested + 2 * MS), "the time is not known yet");
    device.link.hand_off_ns.store(requested + 50 * MS, SeqCst);
    assert_eq!(device.track(), NextStep::At(requested + 50 * MS + 200 * US));
    fixture.clock.set(requested + 51 * MS);
    assert_eq!(device.track(), NextStep::At(requested + 64 * MS), "the holder's work takes longer");
}

#[test]
fn launch_whose_grant_begins_wakes_only_a_tracker_that_would_wake_late() {
    let fixture = polling();
    let device = fixture.device();
    let now = fixture.clock.now_ns();
    let woken = |sleeps_until| {
        let mut state = device.lock();
        (state.tracker_sleeps_until, state.tracker_woken) = (sleeps_until, false);
        state.grant.deadline_ns = now + 100 * MS;
        device.wake_tracker_soon(&mut state, now);
        state.tracker_woken
    };
    assert!(!woken(Some(now + device.settings.idle_ns)));
    assert!(woken(Some(now + device.settings.idle_ns + 1)));
    assert!(woken(None), "it may be about to sleep for long");
}

#[test]
fn launch_whose_grant_is_short_wakes_a_tracker_that_would_sleep_past_its_deadline() {
    let fixture = polling();
    let device = fixture.device();
    let now = fixture.clock.now_ns();
    let deadline = now + device.settings.idle_ns / 2;
    let mut state = device.lock();
    (state.tracker_sleeps_until, state.grant.deadline_ns) = (Some(deadline + 1), deadline);
    device.wake_tracker_soon(&mut state, now);
    assert!(state.tracker_woken);
}

#[test]
fn tracker_queries_no_stream_once_a_capture_has_begun() {
    let fixture = polling();
    let (device, deadline) = with_contended_grant(&fixture);
    fixture.clock.set(deadline - 10 * US);
    std::thread::scope(|scope| {
        // A beginning capture takes this lock after it was counted, and then calls the driver.
        let handles = lock(&device.handles_lock);
        let tracker = scope.spawn(|| device.pause_until(deadline));
        while device.lock().next_burst_ms.is_none() && !tracker.is_finished() {
            std::thread::yield_now();
        }
        let _first = fixture.captures.begin(100, 7);
        drop(handles);
        tracker.join().expect("the tracker pauses");
    });
    assert_eq!(device.driver.queries.load(SeqCst), 0, "a query would invalidate the capture");
}

#[test]
fn tracker_queries_a_few_streams_ahead_of_the_deadline_and_none_after_it() {
    for (query_ns, queries) in [(0, 8), (60 * US, 3)] {
        let fixture = polling();
        let (device, deadline) = with_contended_grant(&fixture);
        for handle in 101..120 {
            launch(&device, &ThreadState::empty(), handle);
        }
        device.driver.query_ns.store(query_ns, SeqCst);
        fixture.clock.set(deadline - AROUND_NS);
        device.pause_until(deadline);
        assert_eq!(device.driver.queries.load(SeqCst), queries);
    }
}

#[test]
fn prediction_before_a_deadline_is_not_used_for_a_later_request() {
    let fixture = polling();
    let (device, deadline) = with_contended_grant(&fixture);
    device.driver.ends_ns.store(deadline, SeqCst);
    run_to_the_end(&fixture, &device, deadline);
    assert!(device.link.sent()[1].1.is_none(), "no launch waits");
    assert_eq!(device.lock().next_burst_ms, None);
}

#[test]
fn waiting_launch_queries_no_stream() {
    let fixture = polling();
    let device = fixture.device();
    launch(&device, &ThreadState::empty(), 100);
    assert_eq!(device.driver.queries.load(SeqCst), 0, "another thread may destroy the stream meanwhile");
}
