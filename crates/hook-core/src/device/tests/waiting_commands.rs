//! Commands that need no grant, behind launches in a stream and before them.

use super::*;

/// Another client waits, and stream 100 has a launch.
fn with_launch<'p>(fixture: &'p Fixture, thread: &ThreadState) -> TestDevice<'p> {
    let device = fixture.device();
    device.link.contended.store(true, SeqCst);
    device.link.quota_ms.store(100_000, SeqCst);
    launch(&device, thread, 100);
    assert!(device.returns_early());
    device
}

/// The program submits such a command to stream 100.
pub(super) fn begin_command(device: &TestDevice<'_>) {
    if device.begin_waiting_command(stream(100)) {
        device.end_submission();
    }
}

/// The program submits such a command to stream 100. Returns whether the hook records an event.
pub(super) fn records(device: &TestDevice<'_>) -> bool {
    let before = lock(&device.driver.marked).len();
    begin_command(device);
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

/// The launches of stream 100 have ended, and such a command begins in it.
fn with_command_alone<'p>(fixture: &'p Fixture, thread: &ThreadState) -> TestDevice<'p> {
    let device = with_launch(fixture, thread);
    wait_for(&device, 100);
    device.begin_waiting_command(stream(100));
    lock(&device.driver.busy).push(100);
    device
}

/// For how long a launch in this stream waits.
pub(super) fn waits_for_ns(
    fixture: &Fixture,
    device: &TestDevice<'_>,
    thread: &ThreadState,
    handle: u64,
) -> u64 {
    let began = fixture.clock.now_ns();
    assert!(launch(device, thread, handle));
    fixture.clock.now_ns() - began
}

#[test]
fn grant_is_returned_while_a_command_runs_alone() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command_alone(&fixture, &thread);
    for _ in 0..3 {
        device.track();
        fixture.clock.advance(fixture.settings.idle_ns);
    }
    assert_eq!(device.link.sent().len(), 2, "the grant was requested and returned");
    assert_eq!(device.driver.waits.load(SeqCst), 0, "the drain does not wait for the command");
}

#[test]
fn launch_behind_a_command_needs_a_grant_when_the_command_has_ended() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command_alone(&fixture, &thread);
    device.driver.command_until_ns.store(fixture.clock.now_ns() + 10 * MS, SeqCst);
    let waited = waits_for_ns(&fixture, &device, &thread, 100);
    assert!((10 * MS..11 * MS).contains(&waited), "{waited}");
}

pub(super) const LONGEST_MS: u64 = 100;

/// The program submits the command, and then a launch behind it.
pub(super) fn waits_again_for_ns(fixture: &Fixture, device: &TestDevice<'_>, thread: &ThreadState) -> u64 {
    wait_for(device, 100);
    begin_command(device);
    lock(&device.driver.busy).push(100);
    waits_for_ns(fixture, device, thread, 100)
}

/// The command may wait for the launching thread.
#[test]
fn launch_waits_for_a_tenth_of_a_second_at_most_and_launches_of_the_next_ten_seconds_do_not() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command_alone(&fixture, &thread);
    let longest = LONGEST_MS * MS..(LONGEST_MS + 1) * MS;
    let waited = waits_for_ns(&fixture, &device, &thread, 100);
    assert!(longest.contains(&waited), "{waited}");
    fixture.clock.advance(9_900 * MS);
    assert_eq!(waits_again_for_ns(&fixture, &device, &thread), 0);
    fixture.clock.advance(100 * MS);
    let waited = waits_again_for_ns(&fixture, &device, &thread);
    assert!(longest.contains(&waited), "{waited}");
}

#[test]
fn launch_waits_no_longer_when_another_thread_has_launched_behind_the_command() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command_alone(&fixture, &thread);
    device.driver.holds_queries.store(true, SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waits_for_ns(&fixture, &device, &ThreadState::empty(), 100));
        while device.driver.held_queries.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        lock(&device.state).commands_ahead.launch_noted(7, stream(100));
        device.driver.holds_queries.store(false, SeqCst);
        let waited = waiting.join().expect("the launch");
        assert!(waited < MS, "{waited}");
    });
    let waited = waits_again_for_ns(&fixture, &device, &thread);
    assert!(waited >= LONGEST_MS * MS, "launches still wait for commands: {waited}");
}

#[test]
fn launch_in_another_context_waits_for_no_command() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_launch(&fixture, &thread);
    wait_for(&device, 100);
    device.begin_waiting_command(stream(1));
    lock(&device.driver.busy).push(1);
    device.driver.context.store(8, SeqCst);
    assert_eq!(waits_for_ns(&fixture, &device, &thread, 1), 0);
}

#[test]
fn launch_in_a_stream_or_context_made_anew_waits_for_no_command() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command_alone(&fixture, &thread);
    drop(device.forget_stream(stream(100)));
    assert_eq!(waits_for_ns(&fixture, &device, &thread, 100), 0);
    let device = with_command_alone(&fixture, &thread);
    device.forget_context(7);
    assert_eq!(waits_for_ns(&fixture, &device, &thread, 100), 0);
}

#[test]
fn launch_that_bypasses_waits_for_no_command() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command_alone(&fixture, &thread);
    device.bypass_all();
    let began = fixture.clock.now_ns();
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::InternalError)));
    assert_eq!(fixture.clock.now_ns(), began);
}

/// Such a manager takes no grant back.
#[test]
fn launch_under_a_grant_that_ends_by_timer_waits_for_no_command() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_launch(&fixture, &thread);
    lock(&device.state).accepts_yield = false;
    wait_for(&device, 100);
    device.begin_waiting_command(stream(100));
    lock(&device.driver.busy).push(100);
    assert_eq!(waits_for_ns(&fixture, &device, &thread, 100), 0);
}

/// The launch is not in the stream yet when the stream is asked.
#[test]
fn drain_asks_a_stream_in_which_a_launch_was_in_flight_when_the_command_began() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_launch(&fixture, &thread);
    wait_for(&device, 100);
    let pass = device.launch(stream(100), &thread);
    assert!(is_governed(&pass));
    // As if a wait of another thread had ended meanwhile.
    let mut state = lock(&device.state);
    state.streams.finished(WaitTarget::Context(7), u64::MAX);
    state.end_burst(fixture.clock.now_ns(), None);
    drop(state);
    device.begin_waiting_command(stream(100));
    lock(&device.driver.busy).push(100);
    drop(pass);
    device.begin_drain(&mut lock(&device.state));
    device.track();
    assert!(device.driver.waits.load(SeqCst) > 0);
}

#[test]
fn limit_has_the_same_effect_as_another_client_that_waits() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    assert!(!device.returns_early());
    device.link.limited.store(true, SeqCst);
    assert!(device.returns_early());
}

#[test]
fn launch_in_another_stream_waits_for_no_command() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command_alone(&fixture, &thread);
    assert_eq!(waits_for_ns(&fixture, &device, &thread, 200), 0);
}

/// What the command itself waits for is unknown.
#[test]
fn launch_waits_for_no_command_behind_other_work() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_launch(&fixture, &thread);
    wait_for(&device, 100);
    lock(&device.driver.busy).push(100);
    device.begin_waiting_command(stream(100));
    assert_eq!(waits_for_ns(&fixture, &device, &thread, 100), 0);
}

#[test]
fn drain_waits_for_a_launch_behind_a_command() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_command_alone(&fixture, &thread);
    device.driver.command_until_ns.store(fixture.clock.now_ns(), SeqCst);
    waits_for_ns(&fixture, &device, &thread, 100);
    device.driver.command_until_ns.store(0, SeqCst);
    // As if a wait that raced with the launch had shown its end.
    lock(&device.state).streams.finished(WaitTarget::Context(7), u64::MAX);
    device.begin_drain(&mut lock(&device.state));
    device.track();
    assert!(device.driver.waits.load(SeqCst) > 0);
}

/// The grant of a launch in stream 100 is to be returned. The launch ends, and the program knows it before the tracker does. It submits a
/// command and a launch behind it. `marks`: the tracker has recorded its events before. Returns how long the launch waits.
fn waits_while_the_grant_drains_ns(marks: bool) -> u64 {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_launch(&fixture, &thread);
    device.begin_drain(&mut lock(&device.state));
    if marks {
        drop(lock(&device.state).streams.take());
    }
    wait_for(&device, 100);
    begin_command(&device);
    lock(&device.driver.busy).push(100);
    let ends_ns = fixture.clock.now_ns() + 10 * MS;
    device.driver.command_until_ns.store(ends_ns, SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waits_for_ns(&fixture, &device, &ThreadState::empty(), 100));
        // The launch waits for the command, or for the next grant.
        let waits = || {
            let state = lock(&device.state);
            state.launches_behind_commands + state.waiting_launches > 0
        };
        while !waits() && !waiting.is_finished() {
            std::thread::yield_now();
        }
        while !waiting.is_finished() {
            device.track();
        }
        assert_eq!(device.driver.waits.load(SeqCst), 0, "the drain does not wait for the command");
        waiting.join().expect("the launch")
    })
}

#[test]
fn launch_behind_a_command_that_began_while_the_grant_drained_waits_for_the_command() {
    for marks in [false, true] {
        let waited = waits_while_the_grant_drains_ns(marks);
        assert!((10 * MS..11 * MS).contains(&waited), "{waited} where the tracker has marked: {marks}");
    }
}

/// The program submitted a launch before the drain began, and a command behind it when the drain has begun.
#[test]
fn command_behind_a_launch_that_still_runs_while_the_grant_drains_does_not_prolong_the_drain() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_launch(&fixture, &thread);
    device.begin_drain(&mut lock(&device.state));
    assert!(records(&device));
    let events = lock(&device.driver.marked).len();
    // The launch ends, the command does not.
    lock(&device.driver.without_launches).push(100);
    device.track();
    assert_eq!(device.driver.waits.load(SeqCst), 0, "the drain does not wait for the command");
    assert_eq!(lock(&device.driver.marked).len(), events, "no event stands behind the command");
    used(&device, 1);
}

/// The tracker records its events, or queries streams, while the program submits a command.
#[test]
fn command_waits_while_another_thread_holds_the_lock_of_the_handles_but_for_ten_milliseconds_at_most() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = with_launch(&fixture, &thread);
    let records_while_held = |is_released: bool| {
        let handles = lock(&device.handles_lock);
        let began = fixture.clock.now_ns();
        std::thread::scope(|scope| {
            let recording = scope.spawn(|| records(&device));
            // Each attempt to take the lock advances the clock.
            while !(recording.is_finished() || is_released && fixture.clock.now_ns() > began) {
                std::thread::yield_now();
            }
            drop(handles);
            (recording.join().expect("the command"), fixture.clock.now_ns() - began)
        })
    };
    assert_eq!(records_while_held(false), (false, 10 * MS));
    // The system may run this thread only after the ten milliseconds of the other one.
    assert!(std::iter::repeat_with(|| records_while_held(true)).take(100).any(|(records, _)| records));
}
