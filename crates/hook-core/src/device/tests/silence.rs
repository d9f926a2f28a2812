//! Managers that hang: the connection exists, and there is no heartbeat.

use super::*;
use crate::platform::LinkError;

#[test]
fn launch_that_waits_for_a_silent_manager_passes() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.link.withholds_answers.store(true, SeqCst);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| is_governed(&device.launch(stream(100), &ThreadState::empty())));
        while device.link.sent().is_empty() {
            std::thread::yield_now();
        }
        assert!(!held.is_finished());
        device.link.silent.store(true, SeqCst);
        assert!(!held.join().expect("the launch returns"));
    });
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    assert_eq!(device.link.sent().len(), 1, "no further request is sent");
}

#[test]
fn launch_under_a_valid_grant_does_not_depend_on_the_heartbeat() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    device.link.silent.store(true, SeqCst);
    assert!(device.try_launch(stream(100), &thread).is_ok());
    device.track();
    assert!(device.try_launch(stream(100), &thread).is_ok(), "the grant has not ended");
}

#[test]
fn launches_after_the_grant_pass_a_silent_manager_until_it_runs_again() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    device.link.silent.store(true, SeqCst);
    fixture.clock.advance(100 * MS);
    assert!(device.try_launch(stream(100), &thread).is_err());
    device.track();
    device.track();
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    assert_eq!(
        device.link.disconnects.load(SeqCst),
        0,
        "the end of the connection would show the manager's death"
    );
    // The heartbeat is checked every 50 ms.
    for _ in 0..10 {
        let NextStep::At(at) = device.track() else { continue };
        fixture.clock.set(at);
    }
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    device.link.silent.store(false, SeqCst);
    fixture.clock.advance(50 * MS);
    device.track();
    let before = device.link.sent().len();
    assert!(is_governed(&device.launch(stream(100), &thread)));
    assert_eq!(device.link.sent().len(), before + 1, "it requests a grant again");
}

#[test]
fn launches_wait_for_a_silent_manager_with_fail_closed() {
    check_launches_wait_with_fail_closed(|link| &link.silent);
}

#[test]
fn idle_process_notices_a_silent_manager_at_its_next_check() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.link.silent.store(true, SeqCst);
    assert_eq!(device.track(), NextStep::Immediately);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    assert_eq!(device.link.sent().len(), 0);
}

#[test]
fn recovery_opens_the_way_for_launches_without_the_tracker() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.detached(), ThreadState::empty());
    device.link.unlimited.store(true, SeqCst);
    device.track();
    assert!(is_governed(&device.launch(stream(100), &thread)));
    assert!(!device.lose_silent_manager(), "nothing is to be recovered from a manager that is not silent");
    assert!(is_governed(&device.launch(stream(100), &thread)));
    device.link.silent.store(true, SeqCst);
    assert!(device.lose_silent_manager());
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    assert!(device.lose_silent_manager(), "the tracker may have noticed the silence before");
}

/// The new connection may get the descriptor's number. The thread would then read that connection's answers.
#[test]
fn connection_is_replaced_only_after_the_thread_that_reads_from_it_has_returned() {
    let fixture = Fixture::new();
    let device = fixture.device();
    device.link.withholds_answers.store(true, SeqCst);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| is_governed(&device.launch(stream(100), &ThreadState::empty())));
        while device.link.received.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        device.handle_loss(&mut device.lock(), LinkError::Silent);
        fixture.clock.advance(1000 * MS);
        let retry = device.track();
        let seen = (device.link.connects.load(SeqCst), device.link.disconnects.load(SeqCst));
        device.link.withholds_answers.store(false, SeqCst);
        assert!(!reader.join().expect("the launch returns"));
        assert_eq!(
            seen,
            (1, 1),
            "no second connection while the thread reads; it is ended, since its answer may take long"
        );
        assert_eq!(retry, NextStep::At(fixture.clock.now_ns() + MS));
        device.track();
        assert_eq!(device.link.connects.load(SeqCst), 2);
    });
}

/// The manager may have disabled the process again when it runs, and enables it only while it reports work.
#[test]
fn process_whose_lost_grant_is_still_drained_counts_as_active() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    device.driver.holds_waits.store(true, SeqCst);
    fixture.clock.advance(100 * MS);
    device.track();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| device.track());
        while device.driver.waits.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        device.link.silent.store(true, SeqCst);
        device.lose_silent_manager();
        // Another thread's wait begins and ends.
        device.begin_blocking();
        device.end_blocking();
        let during = reported(&device);
        device.driver.holds_waits.store(false, SeqCst);
        drain.join().expect("the drain ends");
        assert_eq!(during.last(), Some(&true), "{during:?}");
    });
    assert_eq!(reported(&device).last(), Some(&false), "the work has run");
}

/// The manager keeps the page of a process that connects again. Otherwise it would take the process for busy until its next work.
#[test]
fn process_that_became_idle_during_a_silence_reports_it_when_it_connects_again() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.detached(), ThreadState::empty());
    device.link.unlimited.store(true, SeqCst);
    device.track();
    launch(&device, &thread, 100);
    device.link.silent.store(true, SeqCst);
    device.wake_tracker();
    device.track();
    lock(&device.driver.busy).clear();
    device.link.silent.store(false, SeqCst);
    fixture.clock.advance(1_000 * MS);
    device.track();
    assert_eq!(device.link.connects.load(SeqCst), 2);
    assert_eq!(lock(&device.link.activity).last().map(|(busy, _)| *busy), Some(false));
}
