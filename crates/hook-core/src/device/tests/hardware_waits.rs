//! What a hardware-scheduled process reports while its work waits for commands that need no grant.

use super::waiting_commands::{LONGEST_MS, begin_command, records, waits_again_for_ns, waits_for_ns};
use super::*;

/// A hardware-scheduled process beside another client that has work, with a launch in stream 100.
fn hardware_scheduled<'p>(fixture: &'p Fixture, thread: &ThreadState) -> TestDevice<'p> {
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.link.contenders.store(1, SeqCst);
    device.track();
    launch(&device, thread, 100);
    device
}

/// The last report of work that only waits, and how many there were.
fn waits(device: &TestDevice<'_>) -> (usize, bool) {
    let reports = lock(&device.link.waits);
    (reports.len(), reports.last().copied().flatten().is_some())
}

#[test]
fn hardware_scheduled_process_waits_from_the_end_of_its_launches_to_its_next_launch() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = hardware_scheduled(&fixture, &thread);
    assert!(records(&device));
    let wait = device.begin_wait(WaitTarget::Stream(7, stream(100)), 1);
    fixture.clock.advance(MS);
    device.track();
    device.track();
    assert_eq!(waits(&device), (0, false), "the launch runs");
    lock(&device.driver.without_launches).push(100);
    let NextStep::At(next) = device.track() else { panic!("it waits for the command") };
    assert_eq!((waits(&device), reported(&device)), ((1, true), vec![true]));
    assert!(next > fixture.clock.now_ns());
    lock(&device.driver.busy).clear();
    device.end_wait(wait, true);
    assert_eq!((waits(&device), reported(&device)), ((2, false), vec![true, false]));
    let wakeups = device.link.wakeups.load(SeqCst);
    launch(&device, &thread, 100);
    assert_eq!(device.link.wakeups.load(SeqCst), wakeups + 1);
}

#[test]
fn launch_of_a_hardware_scheduled_process_ends_its_wait_and_wakes_the_manager() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = hardware_scheduled(&fixture, &thread);
    wait_for(&device, 100);
    begin_command(&device);
    assert_eq!((waits(&device), reported(&device)), ((1, true), vec![true, false, true]));
    lock(&device.driver.busy).push(100);
    device.driver.command_until_ns.store(fixture.clock.now_ns() + 10 * MS, SeqCst);
    let wakeups = device.link.wakeups.load(SeqCst);
    let waited = waits_for_ns(&fixture, &device, &thread, 100);
    assert!((10 * MS..11 * MS).contains(&waited), "{waited}");
    assert_eq!((waits(&device), reported(&device)), ((2, false), vec![true, false, true]));
    assert_eq!(device.link.wakeups.load(SeqCst), wakeups + 1);
}

/// The launch may have waited for the channel groups to be enabled.
#[test]
fn pauses_of_a_hardware_scheduled_process_begin_with_a_tenth_of_a_second_and_double() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = hardware_scheduled(&fixture, &thread);
    let longest = LONGEST_MS * MS..(LONGEST_MS + 1) * MS;
    for pause_ms in [100, 200, 400] {
        let waited = waits_again_for_ns(&fixture, &device, &thread);
        assert!(longest.contains(&waited), "{waited} ns before a pause of {pause_ms} ms");
        fixture.clock.advance((pause_ms - 1) * MS);
        assert_eq!(waits_again_for_ns(&fixture, &device, &thread), 0, "in a pause of {pause_ms} ms");
        fixture.clock.advance(MS);
    }
}

#[test]
fn latency_critical_process_and_one_without_contenders_report_no_waits() {
    for is_critical in [false, true] {
        let fixture = Fixture::new();
        let thread = ThreadState::empty();
        let device = hardware_scheduled(&fixture, &thread);
        device.link.critical.store(is_critical, SeqCst);
        device.link.contenders.store(u64::from(is_critical), SeqCst);
        assert!(!device.returns_early());
    }
}

/// No thread waits for the command, and the tracker finds its end.
#[test]
fn hardware_scheduled_process_is_idle_when_its_command_has_ended() {
    let fixture = Fixture::new();
    let device = hardware_scheduled(&fixture, &ThreadState::empty());
    wait_for(&device, 100);
    begin_command(&device);
    lock(&device.driver.busy).push(100);
    for busy in [true, false] {
        fixture.clock.advance(MS);
        device.track();
        assert_eq!((waits(&device).1, reported(&device).last()), (busy, Some(&busy)));
        lock(&device.driver.busy).clear();
    }
}

/// What another thread waits for is unknown: its call may be about work that no launch announced.
#[test]
fn thread_that_waits_without_a_command_does_not_count_as_waiting_for_one() {
    let fixture = Fixture::new();
    let thread = ThreadState::empty();
    let device = hardware_scheduled(&fixture, &thread);
    assert!(records(&device));
    wait_for(&device, 100);
    device.begin_blocking();
    assert_eq!((waits(&device), reported(&device)), ((0, false), vec![true, false, true]));
}
