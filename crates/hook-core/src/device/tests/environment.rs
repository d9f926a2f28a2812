//! Captures, destroyed handles, lost managers and forks.

use std::thread::ScopedJoinHandle;
use std::time::Duration;

use super::*;

/// After this time a thread is taken to hang.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn captured_launch_bypasses_and_its_streams_are_not_touched() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.prepare_capture(fixture.captures.begin(100, 7));
    lock(&device.driver.capturing).push(100);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::Capture)));
    assert_eq!(device.link.sent().len(), 0, "a captured launch needs no grant");
    assert!(is_governed(&device.launch(stream(0), &thread)), "the legacy stream is not being captured");
    fixture.clock.advance(200 * MS);
    device.track();
    device.track();
    assert_eq!(
        *lock(&device.driver.marked),
        [0u64; 0],
        "an event on the legacy stream would end the capture"
    );
}

#[test]
fn grant_ends_after_work_that_default_streams_got_during_a_capture() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.prepare_capture(fixture.captures.begin(100, 7));
    for default in [stream(0), Stream::new(0, true, thread.id())] {
        for _ in 0..2 {
            assert!(is_governed(&device.launch(default, &thread)));
            device.launched_during_capture(default);
        }
    }
    lock(&device.driver.marked).clear();
    // One event is waited for on each of the two streams.
    check_end_of_grant(&fixture, &device, MS, (102.0, 2.0));
    assert_eq!(*lock(&device.driver.marked), [0u64; 0], "the tracker uses no default stream");
}

#[test]
fn grant_ends_after_work_that_the_legacy_stream_had_before_a_capture() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 0);
    device.prepare_capture(fixture.captures.begin(100, 7));
    check_end_of_grant(&fixture, &device, 3 * MS, (103.0, 3.0));
}

#[test]
fn grant_with_work_on_another_threads_default_stream_ends_after_the_capture() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    assert!(is_governed(&device.launch(Stream::new(0, true, thread.id()), &thread)));
    device.prepare_capture(fixture.captures.begin(100, 7));
    fixture.clock.advance(100 * MS);
    device.track();
    let began = fixture.clock.now_ns();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| device.track());
        while fixture.clock.now_ns() < began + MS && !drain.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(device.link.sent().len(), 1, "the grant was returned with work running");
        fixture.captures.end(100);
        drain.join().expect("the drain ends");
    });
    assert_eq!(*lock(&device.driver.drained), [7]);
    assert_eq!(device.link.sent().len(), 2);
}

/// A launch on the thread's default stream during a capture that ends afterwards. Returns the stream.
fn launch_during_capture(fixture: &Fixture, device: &TestDevice<'_>, thread: &ThreadState) -> Stream {
    let own = Stream::new(0, true, thread.id());
    device.prepare_capture(fixture.captures.begin(100, 7));
    assert!(is_governed(&device.launch(own, thread)));
    device.launched_during_capture(own);
    fixture.captures.end(100);
    own
}

#[test]
fn event_of_an_earlier_capture_does_not_stand_for_later_work() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    let own = launch_during_capture(&fixture, &device, &thread);
    assert!(is_governed(&device.launch(own, &thread)));
    device.prepare_capture(fixture.captures.begin(100, 7));
    fixture.clock.advance(100 * MS);
    let began = fixture.clock.now_ns();
    device.track();
    device.track();
    assert!(fixture.clock.now_ns() - began >= 2000 * MS, "the grant was returned with work running");
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

#[test]
fn thread_that_waits_for_a_grant_covers_its_default_stream_during_a_capture() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    let own = Stream::new(0, true, thread.id());
    assert!(is_governed(&device.launch(own, &thread)));
    lock(&device.driver.marked).clear();
    device.prepare_capture(fixture.captures.begin(100, 7));
    fixture.clock.advance(100 * MS);
    let began = fixture.clock.now_ns();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| is_governed(&device.launch(own, &ThreadState::empty())));
        let begun = std::time::Instant::now();
        while lock(&device.driver.marked).is_empty() && begun.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let is_covered = !lock(&device.driver.marked).is_empty();
        device.track();
        fixture.captures.end(100);
        assert!(second.join().expect("the launch returns"));
        assert!(is_covered);
    });
    assert!(fixture.clock.now_ns() - began < 2000 * MS, "the drain did not wait for the end of the capture");
    assert_eq!(device.link.sent().len(), 2, "the report and the request are one message");
}

#[test]
fn events_of_a_lost_grant_are_returned_under_an_unlimited_one() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch_during_capture(&fixture, &device, &thread);
    device.link.fails_announcements.store(true, SeqCst);
    device.track();
    device.link.fails_announcements.store(false, SeqCst);
    device.link.unlimited.store(true, SeqCst);
    for _ in 0..4 {
        fixture.clock.advance(1000 * MS);
        device.track();
    }
    assert!(device.lock().grant.is_unlimited());
    let begins = u64::from(device.lock().grant.measured.is_some());
    assert_eq!(
        device.driver.live_marks.load(SeqCst),
        begins,
        "only the event at the begin of a burst is left"
    );
}

#[test]
fn beginning_capture_sends_noted_streams_to_the_slow_path() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    device.prepare_capture(fixture.captures.begin(100, 7));
    lock(&device.driver.capturing).push(100);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::Capture)));
}

#[test]
fn a_destroyed_stream_is_drained_without_its_handle() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    drop(device.forget_stream(stream(100)));
    lock(&device.driver.marked).clear();
    check_end_of_grant(&fixture, &device, MS, (101.0, 1.0));
    assert_eq!(*lock(&device.driver.marked), [0u64; 0]);
}

#[test]
fn context_that_did_not_end_is_still_drained() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    drop(device.lock_contexts());
    check_end_of_grant(&fixture, &device, 3 * MS, (103.0, 3.0));
}

#[test]
fn handles_of_a_destroyed_context_are_not_used() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    drop(device.forget_stream(stream(100)));
    launch(&device, &thread, 101);
    let guards = device.lock_contexts();
    device.forget_context(7);
    drop(guards);
    let live_before = device.driver.live_marks.load(SeqCst);
    lock(&device.driver.marked).clear();
    fixture.clock.advance(200 * MS);
    device.track();
    device.track();
    assert_eq!(*lock(&device.driver.marked), [0u64; 0]);
    assert_eq!(device.driver.live_marks.load(SeqCst), live_before, "not even discarded");
}

#[test]
fn the_default_stream_of_a_thread_is_drained_with_its_context() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    assert!(is_governed(&device.launch(Stream::new(0, true, thread.id()), &thread)));
    lock(&device.driver.marked).clear();
    end_grant(&fixture, &device, 0);
    assert_eq!(*lock(&device.driver.drained), [7]);
    assert_eq!(*lock(&device.driver.marked), [0u64; 0]);
}

#[test]
fn launches_bypass_a_lost_manager_until_it_returns() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.link.dead.store(true, SeqCst);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    device.track();
    device.link.dead.store(false, SeqCst);
    fixture.clock.advance(2000 * MS);
    device.track();
    assert!(is_governed(&device.launch(stream(100), &thread)));
}

#[test]
fn launches_wait_for_a_lost_manager_with_fail_closed() {
    check_launches_wait_with_fail_closed(|link| &link.dead);
}

/// Also where launches bypass a lost manager, and after they did.
#[test]
fn launches_wait_while_the_manager_has_no_room() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.link.dead.store(true, SeqCst);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    device.link.full.store(true, SeqCst);
    device.link.dead.store(false, SeqCst);
    fixture.clock.advance(2000 * MS);
    device.track();
    check_launches_wait(&fixture, &device, |link| &link.full);
}

#[test]
fn connect_attempts_back_off_up_to_a_second() {
    let fixture = Fixture::new();
    let device = fixture.detached();
    device.link.dead.store(true, SeqCst);
    let mut pauses = Vec::new();
    device.track();
    for _ in 0..8 {
        let NextStep::At(at) = device.track() else { panic!("the tracker pauses before it connects again") };
        pauses.push((at - fixture.clock.now_ns()) / MS);
        fixture.clock.set(at);
        device.track();
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000]);
}

#[test]
fn loss_of_the_manager_is_detected_under_an_unlimited_grant() {
    let fixture = Fixture::new();
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.track();
    assert!(is_governed(&device.launch(stream(100), &ThreadState::empty())));
    assert_eq!(device.link.sent().len(), 0, "an unlimited grant is not requested");
    device.link.dead.store(true, SeqCst);
    device.track();
    assert!(matches!(device.lock().phase, state::Phase::Lost { .. }));
}

#[test]
fn gemini_manager_gets_the_overrun_with_the_next_request_and_no_report() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.detached(), ThreadState::empty());
    device.link.legacy.store(true, SeqCst);
    device.track();
    launch(&device, &thread, 100);
    end_grant(&fixture, &device, 4 * MS);
    launch(&device, &thread, 100);
    let sent = device.link.sent();
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|(used, _)| used.is_none()));
    assert_eq!(sent[1].1.map(|ask| ask.overuse_ms), Some(4.0));
}

#[test]
fn launch_bypasses_a_stalled_drain() {
    let mut fixture = Fixture::new();
    fixture.settings.stall_ns = 0;
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    device.track();
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::DrainStalled)));
}

#[test]
fn launch_without_a_context_bypasses_to_the_driver() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.driver.no_context.store(true, SeqCst);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::NoContext)));
}

#[test]
fn launch_after_a_fork_bypasses_the_parents_grant() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    device.abandon();
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::Forked)));
}

#[test]
fn announcements_are_sent_at_each_step_while_attached() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    let asked = || device.link.announcements.swap(0, SeqCst);
    assert_eq!(asked(), 0, "the attachment included everything known");
    device.track();
    assert_eq!(asked(), 1, "without a grant");
    launch(&device, &thread, 100);
    device.track();
    assert_eq!(asked(), 1, "under a grant");
    device.link.dead.store(true, SeqCst);
    fixture.clock.advance(200 * MS);
    device.track();
    device.track();
    asked();
    device.track();
    assert_eq!(asked(), 0, "no manager is attached");
}

#[test]
fn failed_announcement_reconnects() {
    let fixture = Fixture::new();
    let device = fixture.device();
    device.link.fails_announcements.store(true, SeqCst);
    device.track();
    assert_eq!(device.bypass_reason(), Some(Bypass::ManagerGone));
    device.link.fails_announcements.store(false, SeqCst);
    fixture.clock.advance(100 * MS);
    device.track();
    assert_eq!((device.bypass_reason(), device.link.connects.load(SeqCst)), (None, 2));
}

/// Runs `program` while the tracker is held up between its decision to wait for a context and the driver's call.
fn while_a_drain_begins(
    fixture: &Fixture,
    program: impl FnOnce(&TestDevice<'_>, &ScopedJoinHandle<'_, NextStep>),
) {
    let (device, thread) = (fixture.device(), ThreadState::empty());
    assert!(is_governed(&device.launch(Stream::new(0, true, thread.id()), &thread)));
    device.driver.holds_drains.store(true, SeqCst);
    fixture.clock.advance(100 * MS);
    device.track();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| device.track());
        while device.driver.held_drains.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        program(&device, &drain);
        device.driver.holds_drains.store(false, SeqCst);
        drain.join().expect("the drain ends");
    });
}

#[test]
fn capture_does_not_begin_between_the_decision_to_drain_a_context_and_the_call() {
    let fixture = Fixture::new();
    while_a_drain_begins(&fixture, |device, _| {
        std::thread::scope(|scope| {
            let capture = scope.spawn(|| {
                device.prepare_capture(fixture.captures.begin(100, 7));
                // The program's thread calls the driver now.
                lock(&device.driver.drained).clone()
            });
            while !fixture.captures.any() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            device.driver.holds_drains.store(false, SeqCst);
            assert_eq!(capture.join().expect("the capture begins"), [7], "the call invalidates the capture");
        });
    });
}

/// The GPU's work may wait for what the program's thread does after it has begun the capture.
#[test]
fn capture_begins_although_the_wait_for_a_context_does_not_end() {
    let fixture = Fixture::new();
    while_a_drain_begins(&fixture, |device, drain| {
        device.prepare_capture(fixture.captures.begin(100, 7));
        assert!(!drain.is_finished());
    });
}
