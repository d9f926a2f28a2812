//! The activity that is reported to the manager, and what follows from it.

use super::*;

#[test]
fn activity_is_reported_at_begin_and_known_end_of_work() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    assert_eq!(reported(&device), []);
    launch(&device, &thread, 100);
    launch(&device, &thread, 101);
    assert_eq!(reported(&device), [true]);
    wait_for(&device, 100);
    assert_eq!(reported(&device), [true], "another stream has work");
    fixture.clock.advance(MS);
    wait_for(&device, 101);
    let last = lock(&device.link.activity).last().copied();
    assert_eq!(last, Some((false, fixture.clock.now_ns())));
    launch(&device, &thread, 100);
    assert_eq!(reported(&device), [true, false, true]);
}

#[test]
fn blocked_thread_counts_as_activity() {
    let fixture = Fixture::new();
    let device = fixture.device();
    device.begin_blocking();
    let wait = device.begin_wait(WaitTarget::Context(7), 1);
    assert_eq!(reported(&device), [true]);
    device.end_wait(wait, true);
    assert_eq!(reported(&device), [true], "the other thread still waits");
    device.end_blocking();
    assert_eq!(reported(&device), [true, false]);
}

#[test]
fn unlimited_grant_is_not_drained_or_measured_and_the_tracker_finds_the_end_of_work() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    launch(&device, &thread, 100);
    assert_eq!(device.link.wakeups.load(SeqCst), 1);
    for _ in 0..3 {
        fixture.clock.advance(2 * MS);
        assert_eq!(device.track(), NextStep::At(fixture.clock.now_ns() + 2 * MS));
    }
    assert_eq!(reported(&device), [true]);
    lock(&device.driver.busy).clear();
    fixture.clock.advance(2 * MS);
    device.track();
    assert_eq!(reported(&device), [true, false]);
    assert_eq!(lock(&device.driver.marked).len(), 0);
    assert_eq!(device.link.sent(), []);
}

#[test]
fn grant_that_becomes_unlimited_is_kept_and_a_withdrawn_one_is_requested_again() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    wait_for(&device, 100);
    device.link.set_deadline(u64::MAX);
    fixture.clock.advance(500 * MS);
    device.track();
    device.track();
    assert_eq!(device.link.sent().len(), 1);
    assert!(launch(&device, &thread, 100));
    assert_eq!(device.link.sent().len(), 1);
    device.link.set_deadline(0);
    lock(&device.driver.busy).clear();
    device.track();
    device.track();
    assert!(launch(&device, &thread, 100));
    assert_eq!(device.link.sent().len(), 3, "returned and requested");
}

#[test]
fn returned_manager_is_told_of_running_work() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    device.begin_blocking();
    lock(&device.link.activity).clear();
    device.link.dead.store(true, SeqCst);
    fixture.clock.advance(200 * MS);
    device.track();
    device.track();
    device.link.dead.store(false, SeqCst);
    fixture.clock.advance(100 * MS);
    device.track();
    assert_eq!(reported(&device).last(), Some(&true));
    device.end_blocking();
}

#[test]
fn hold_kernels_are_armed_at_the_end_of_work_and_learn_from_observed_ends() {
    use crate::hold_kernel::{Settings, Trigger};
    let mut fixture = Fixture::new();
    fixture.settings.hold_kernels = Settings { automatic: true, ..Settings::default() };
    let (device, thread) = (fixture.detached(), ThreadState::empty());
    device.link.unlimited.store(true, SeqCst);
    device.track();
    let hold_kernels = &device.hold_kernels;
    hold_kernels.set_contenders(1);
    let request = |ms: u64| {
        let held =
            hold_kernels.with(|state| state.begin_request(Trigger::Copy, fixture.clock.now_ns(), 0)).is_ok();
        launch(&device, &thread, 100);
        hold_kernels.with(|state| state.launch_submitted(fixture.clock.now_ns()));
        assert!(!hold_kernels.is_armed(), "work is on the GPU");
        fixture.clock.advance(if held { 2 * ms } else { ms });
        wait_for(&device, 100);
        assert!(hold_kernels.is_armed(), "it has finished");
        held
    };
    request(MS);
    // The waits show when each request ended, so hold kernels that slow requests down are detected.
    let held = (0..100).filter(|_| request(MS)).count();
    assert!(held < 50, "{held} had a hold kernel");
    device.abandon();
    assert!(!hold_kernels.is_armed());
}

#[test]
fn tracker_polls_rarely_while_the_program_waits_for_its_work() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    // A token of 3 ms ends with a wait. The tracker takes its steps when they are due.
    let (mut due, mut steps) = (fixture.clock.now_ns(), 0);
    for _ in 0..100 {
        launch(&device, &thread, 100);
        for _ in 0..3 {
            fixture.clock.advance(MS);
            if fixture.clock.now_ns() >= due {
                steps += 1;
                let NextStep::At(at) = device.track() else { panic!("a pause") };
                due = at;
            }
        }
        wait_for(&device, 100);
    }
    assert!(steps <= 300 / 8 + 4, "{steps} wake-ups in 300 ms");
    // From here on it does not wait. The end of its work is found with the first interval again.
    launch(&device, &thread, 100);
    fixture.clock.advance(20 * MS);
    device.track();
    fixture.clock.advance(2 * MS);
    assert_eq!(device.track(), NextStep::At(fixture.clock.now_ns() + 2 * MS));
}

#[test]
fn work_in_two_contexts_at_the_same_time_is_reported_while_it_lasts() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    launch(&device, &thread, 100);
    device.track();
    assert_eq!(*lock(&device.link.contexts_at_once), []);
    device.driver.context.store(8, SeqCst);
    launch(&device, &thread, 200);
    let since = fixture.clock.now_ns();
    device.track();
    fixture.clock.advance(2 * MS);
    device.track();
    assert_eq!(*lock(&device.link.contexts_at_once), [Some(since)]);
    wait_for(&device, 100);
    fixture.clock.advance(2 * MS);
    device.track();
    assert_eq!(*lock(&device.link.contexts_at_once), [Some(since), None]);
    launch(&device, &thread, 100);
    device.track();
    // A new page contains no report.
    device.link.dead.store(true, SeqCst);
    device.wake_tracker();
    device.track();
    device.link.dead.store(false, SeqCst);
    fixture.clock.advance(1000 * MS);
    device.track();
    assert_eq!(lock(&device.link.contexts_at_once).last(), Some(&None));
}
