//! Commands that need no grant, behind launches in a stream.

use super::*;

/// Another client waits, and stream 100 has a launch.
fn with_launch<'p>(fixture: &'p Fixture, thread: &ThreadState) -> TestDevice<'p> {
    let device = fixture.device();
    device.link.contended.store(true, SeqCst);
    launch(&device, thread, 100);
    assert!(device.returns_early());
    device
}

/// The program submits such a command to stream 100. Returns whether the hook records an event.
fn records(device: &TestDevice<'_>) -> bool {
    let before = lock(&device.driver.marked).len();
    device.begin_waiting_command(stream(100));
    lock(&device.driver.marked).len() > before
}

fn with_command<'p>(fixture: &'p Fixture, thread: &ThreadState) -> TestDevice<'p> {
    let device = with_launch(fixture, thread);
    assert!(records(&device));
    device
}

/// The launches end, and the tracker looks twice.
fn launches_end(fixture: &Fixture, device: &TestDevice<'_>) {
    fixture.clock.advance(MS);
    lock(&device.driver.without_launches).push(100);
    for _ in 0..3 {
        device.track();
        fixture.clock.advance(fixture.settings.idle_ns);
    }
    device.track();
}

#[test]
fn grant_is_returned_when_the_launches_have_ended_and_the_command_has_not() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command(&fixture, &thread);
    fixture.clock.advance(MS);
    device.track();
    assert_eq!(device.link.sent().len(), 1, "the launch runs");
    launches_end(&fixture, &device);
    assert!(lock(&device.driver.busy).contains(&100), "the command has not ended");
    assert_eq!(used(&device, 1), (2.0, 0.0));
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
    assert_eq!(device.driver.waits.load(SeqCst), 0, "the drain does not wait for the command");
}

#[test]
fn launch_behind_the_command_keeps_the_grant() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command(&fixture, &thread);
    launch(&device, &thread, 100);
    launches_end(&fixture, &device);
    assert_eq!(device.link.sent().len(), 1);
}

#[test]
fn one_event_serves_all_commands_behind_the_same_launches() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command(&fixture, &thread);
    assert!(!records(&device));
    launch(&device, &thread, 100);
    assert!(records(&device));
}

#[test]
fn command_of_a_launch_in_flight_records_no_event() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_launch(&fixture, &thread);
    let pass = device.launch(stream(100), &thread);
    assert!(is_governed(&pass) && !records(&device));
}

#[test]
fn event_of_a_destroyed_stream_is_returned() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command(&fixture, &thread);
    drop(device.forget_stream(stream(100)));
    launches_end(&fixture, &device);
    assert_eq!(used(&device, 1), (1.5, 0.0));
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

#[test]
fn nothing_is_recorded_while_launches_are_in_a_queue_of_the_hook() {
    let fixture = Fixture::new();
    let device = with_launch(&fixture, &ThreadState::empty());
    device.driver.live_queued.store(true, SeqCst);
    assert!(!records(&device));
}

#[test]
fn nothing_is_recorded_during_a_capture() {
    let fixture = Fixture::new();
    let device = with_launch(&fixture, &ThreadState::empty());
    fixture.captures.begin(200, 7);
    assert!(!records(&device));
}

#[test]
fn nothing_is_recorded_while_no_other_client_waits() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    assert!(!device.returns_early());
}
