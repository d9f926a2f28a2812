//! Work that passes no launch gate, and programs that poll for completion.

use super::*;

/// Submits a copy that does not finish.
fn copy(device: &TestDevice<'_>, thread: &ThreadState, handle: u64) {
    let noted = device.needs_note(stream(handle), thread) && device.begin_work(stream(handle), thread);
    lock(&device.driver.busy).push(handle);
    if noted {
        device.end_submission();
    }
}

#[test]
fn copy_is_activity_until_its_stream_is_idle() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    copy(&device, &thread, 100);
    assert_eq!(reported(&device), [true]);
    assert_eq!(device.link.wakeups.load(SeqCst), 1);
    device.track();
    assert_eq!(reported(&device), [true], "the copy has not finished");
    wait_for(&device, 100);
    assert_eq!(reported(&device), [true, false]);
    copy(&device, &thread, 100);
    assert_eq!(reported(&device), [true, false, true], "the next copy is reported as well");
    assert_eq!(device.launches(), 0);
}

#[test]
fn successive_copies_are_noted_once_and_the_first_launch_again() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    copy(&device, &thread, 100);
    assert!(!device.needs_note(stream(100), &thread));
    assert!(device.needs_note(stream(101), &thread));
    assert!(device.try_launch(stream(100), &thread).is_err(), "a request begins with the launch");
    assert!(launch(&device, &thread, 101));
    assert!(!device.needs_note(stream(101), &thread), "the launch has noted the stream");
}

#[test]
fn work_of_a_destroyed_stream_is_activity_until_the_gpu_has_finished_it() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    launch(&device, &thread, 100);
    drop(device.forget_stream(stream(100)));
    device.track();
    assert_eq!(reported(&device), [true], "the kernel has not finished");
    lock(&device.driver.busy).clear();
    fixture.clock.advance(10 * MS);
    device.track();
    device.track();
    assert_eq!(reported(&device), [true, false]);
    // Launches at each poll: no poll finds the program quiet.
    launch(&device, &thread, 101);
    drop(device.forget_stream(stream(101)));
    lock(&device.driver.busy).clear();
    launch(&device, &thread, 102);
    device.track();
    wait_for(&device, 102);
    assert_eq!(reported(&device), [true, false, true, false]);
}

#[test]
fn queued_commands_of_a_destroyed_stream_are_activity() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    launch(&device, &thread, 100);
    drop(device.forget_stream(stream(100)));
    device.driver.queued_until_ns.store(u64::MAX, SeqCst);
    lock(&device.driver.busy).clear();
    fixture.clock.advance(10 * MS);
    device.track();
    device.track();
    assert_eq!(reported(&device), [true], "the driver has finished what it has, and the rest is queued");
    device.driver.queued_until_ns.store(0, SeqCst);
    fixture.clock.advance(10 * MS);
    device.track();
    assert_eq!(reported(&device), [true, false]);
}

/// A stop by the program or a stream gate may keep the commands of one stream for long.
#[test]
fn events_of_destroyed_streams_are_returned_while_commands_of_another_stream_are_queued() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    device.driver.live_queued.store(true, SeqCst);
    for handle in 100..103 {
        launch(&device, &thread, handle);
        drop(device.forget_stream(stream(handle)));
    }
    lock(&device.driver.busy).clear();
    let queries_before = device.driver.queue_queries.load(SeqCst);
    device.track();
    assert_eq!(device.driver.live_marks.load(SeqCst), 0, "the GPU has reached all three");
    assert_eq!(device.driver.queue_queries.load(SeqCst) - queries_before, 1, "one question for the context");
}

#[test]
fn work_in_submission_does_not_count_as_finished() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    assert!(device.begin_work(stream(100), &thread));
    fixture.clock.advance(50 * MS);
    device.track();
    assert_eq!(reported(&device), [true]);
    device.end_submission();
    device.track();
    assert_eq!(reported(&device), [true, false], "the driver refused it");
}

#[test]
fn polling_program_is_active_until_the_work_is_done_or_it_stops_polling() {
    let fixture = Fixture::new();
    let device = unlimited(&fixture);
    for _ in 0..20 {
        device.poll_found_unfinished();
        fixture.clock.advance(2 * MS);
        device.track();
    }
    assert_eq!(reported(&device), [true]);
    device.poll_found_finished(1);
    assert_eq!(reported(&device), [true, false]);
    device.poll_found_unfinished();
    fixture.clock.advance(20 * MS);
    device.track();
    assert_eq!(reported(&device), [true, false, true, false]);
}

/// Runs the tracker for `ms`; returns the number of polls and of checks of the connection.
fn run_tracker_for(fixture: &Fixture, device: &TestDevice<'_>, ms: u64) -> (u32, usize) {
    let (end, asked, mut polls) =
        (fixture.clock.now_ns() + ms * MS, device.link.liveness_checks.load(SeqCst), 0);
    while let NextStep::At(at) = device.track()
        && at < end
    {
        polls += 1;
        fixture.clock.set(at);
    }
    (polls, device.link.liveness_checks.load(SeqCst) - asked)
}

#[test]
fn unlimited_grant_is_polled_rarely_without_work_and_often_with_work() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    let (polls, asked) = run_tracker_for(&fixture, &device, 1000);
    assert!(polls <= 130 && asked <= 5, "{polls} polls, {asked} checks of the connection");
    launch(&device, &thread, 100);
    let (polls, asked) = run_tracker_for(&fixture, &device, 1000);
    assert!(polls >= 480 && asked <= 5, "{polls} polls, {asked} checks of the connection");
    // The work ends without a wait.
    lock(&device.driver.busy).clear();
    run_tracker_for(&fixture, &device, 10);
    assert_eq!(reported(&device), [true, false]);
    device.link.dead.store(true, SeqCst);
    fixture.clock.advance(250 * MS);
    assert_eq!(device.track(), NextStep::Immediately, "the end of the connection is detected");
}

#[test]
fn polling_for_known_work_reports_nothing_more() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    launch(&device, &thread, 100);
    device.poll_found_unfinished();
    wait_for(&device, 100);
    assert_eq!(reported(&device), [true, false], "it is idle at once, not when it stops polling");
}

#[test]
fn token_scheduled_process_reports_only_launches() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    assert!(launch(&device, &thread, 100));
    wait_for(&device, 100);
    let before = reported(&device);
    assert!(!device.needs_note(stream(100), &thread));
    device.poll_found_unfinished();
    assert_eq!(reported(&device), before);
}

#[test]
fn driver_is_not_queried_while_a_thread_waits() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    assert!(launch(&device, &thread, 100));
    device.track();
    let wait = device.begin_wait(WaitTarget::Created(stream(100)), 1);
    let asked = device.driver.queries.load(SeqCst);
    (0..3).for_each(|_| _ = device.track());
    assert_eq!(device.driver.queries.load(SeqCst), asked);
    // A failed wait shows nothing, so the driver is queried.
    device.end_wait(wait, false);
    lock(&device.driver.busy).clear();
    device.track();
    assert!(device.driver.queries.load(SeqCst) > asked);
    assert_eq!(reported(&device), [true, false]);
}

#[test]
fn driver_is_queried_during_a_long_wait() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    assert!(launch(&device, &thread, 100));
    let _never_ends = device.begin_wait(WaitTarget::Created(stream(101)), 1);
    device.track();
    lock(&device.driver.busy).clear();
    fixture.clock.advance(20 * MS);
    device.track();
    device.track();
    assert!(device.link.busy_ns.load(SeqCst) >= 20 * MS);
    let used = device.link.busy_ns.load(SeqCst);
    fixture.clock.advance(1000 * MS);
    device.track();
    assert_eq!(device.link.busy_ns.load(SeqCst), used, "unused time is not counted");
}

#[test]
fn first_poll_after_an_event_wait_finds_the_end_of_work() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    assert!(launch(&device, &thread, 100));
    device.begin_blocking();
    device.track();
    lock(&device.driver.busy).clear();
    device.end_blocking();
    device.track();
    assert_eq!(reported(&device).last(), Some(&false));
}
