//! Which calls and waits of a latency-critical process begin and end its steps and requests.

use super::*;
use crate::latency::Measured;

const US: u64 = 1_000;

/// A latency-critical process with an unlimited grant.
fn critical_device(fixture: &Fixture) -> TestDevice<'_> {
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.link.critical.store(true, SeqCst);
    device.track();
    device.track();
    device
}

/// The program waits for the stream, which the GPU finishes after `ns`.
fn wait_for_ns(fixture: &Fixture, device: &TestDevice<'_>, handle: u64, ns: u64) {
    let wait = device.begin_wait(WaitTarget::Stream(7, stream(handle)), 1);
    fixture.clock.advance(ns);
    lock(&device.driver.busy).retain(|busy| *busy != handle);
    device.end_wait(wait, true);
}

/// An asynchronous copy or memset.
fn command(device: &TestDevice<'_>, thread: &ThreadState, handle: u64) {
    if device.needs_note(stream(handle), thread) && device.begin_work(stream(handle), thread) {
        device.end_submission();
    }
}

/// The latencies of requests that were reported by 20 ms later, and the number of steps.
fn requests(fixture: &Fixture, device: &TestDevice<'_>) -> (Vec<u64>, usize) {
    fixture.clock.advance(20 * MS);
    device.track();
    let latencies = lock(&device.link.latencies);
    let requests = latencies.iter().filter_map(|measured| match measured {
        Measured::Request(ns) => Some(*ns),
        _ => None,
    });
    let steps = latencies.iter().filter(|measured| matches!(measured, Measured::Step(_))).count();
    (requests.collect(), steps)
}

#[test]
fn request_of_a_copy_and_a_graph_lasts_from_the_copy_to_the_end_of_the_wait() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    for _ in 0..3 {
        command(&device, &thread, 100);
        fixture.clock.advance(200 * US);
        launch(&device, &thread, 100);
        wait_for_ns(&fixture, &device, 100, 800 * US);
        fixture.clock.advance(9 * MS);
    }
    assert_eq!(requests(&fixture, &device), (vec![MS; 3], 3));
}

#[test]
fn request_of_many_launches_is_one_step_also_if_the_gpu_is_found_idle_between() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    for _ in 0..2 {
        for _ in 0..30 {
            launch(&device, &thread, 100);
            fixture.clock.advance(100 * US);
        }
        lock(&device.driver.busy).clear();
        // The host pauses for longer than two polls of the tracker.
        for _ in 0..3 {
            fixture.clock.advance(2 * MS);
            device.track();
        }
        launch(&device, &thread, 100);
        wait_for_ns(&fixture, &device, 100, MS);
        fixture.clock.advance(5 * MS);
    }
    assert_eq!(requests(&fixture, &device), (vec![10 * MS; 2], 2));
}

#[test]
fn decode_is_one_request_of_a_step_per_token() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    for _ in 0..2 {
        for _ in 0..10 {
            launch(&device, &thread, 100);
            wait_for_ns(&fixture, &device, 100, 1200 * US);
            fixture.clock.advance(100 * US);
        }
        fixture.clock.advance(30 * MS);
    }
    assert_eq!(requests(&fixture, &device), (vec![12_900 * US; 2], 20));
}

#[test]
fn wait_for_an_event_ends_a_step() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    for _ in 0..3 {
        launch(&device, &thread, 100);
        let wait = device.begin_event_wait(thread.id());
        fixture.clock.advance(2 * MS);
        device.end_unnamed_wait(wait, true);
        fixture.clock.advance(MS);
    }
    assert_eq!(requests(&fixture, &device), (vec![2 * MS; 3], 3));
}

#[test]
fn poll_that_finds_work_finished_ends_a_step() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    for _ in 0..3 {
        launch(&device, &thread, 100);
        for _ in 0..4 {
            fixture.clock.advance(300 * US);
            device.poll_found_unfinished();
        }
        fixture.clock.advance(300 * US);
        device.poll_found_finished(thread.id());
        fixture.clock.advance(MS);
    }
    lock(&device.driver.busy).clear();
    assert_eq!(requests(&fixture, &device), (vec![1500 * US; 3], 3));
}

#[test]
fn launches_after_a_poll_between_launches_stay_on_the_fast_path() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    let is_fast = || device.try_launch(stream(100), &thread).is_ok();
    launch(&device, &thread, 100);
    device.poll_found_unfinished();
    wait_for_ns(&fixture, &device, 100, MS);
    launch(&device, &thread, 100);
    device.poll_found_finished(thread.id());
    assert!(is_fast(), "the unfinished work was that of the step before");
    wait_for_ns(&fixture, &device, 100, MS);
    assert_eq!(requests(&fixture, &device), (vec![2 * MS], 2));
}

#[test]
fn polling_process_is_measured_although_its_first_launches_were_not() {
    let fixture = Fixture::new();
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.track();
    let thread = ThreadState::empty();
    let request = || {
        launch(&device, &thread, 100);
        device.poll_found_unfinished();
        fixture.clock.advance(MS);
        device.poll_found_finished(thread.id());
        fixture.clock.advance(MS);
    };
    request();
    device.link.critical.store(true, SeqCst);
    device.track();
    (0..4).for_each(|_| request());
    assert_eq!(requests(&fixture, &device).0, [MS; 3], "the first one was noted before");
}

#[test]
fn synchronous_copy_of_the_input_belongs_to_the_request() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    let copy = device.begin_copy(thread.id());
    fixture.clock.advance(500 * US);
    device.end_unnamed_wait(copy, true);
    launch(&device, &thread, 100);
    wait_for_ns(&fixture, &device, 100, MS);
    assert_eq!(requests(&fixture, &device), (vec![1500 * US], 1));
}

#[test]
fn preparation_of_the_hook_before_a_copy_belongs_to_the_request() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    device.call_began(fixture.clock.now_ns());
    fixture.clock.advance(10 * US);
    command(&device, &thread, 100);
    wait_for_ns(&fixture, &device, 100, MS);
    assert_eq!(requests(&fixture, &device), (vec![1010 * US], 1));
}

#[test]
fn time_for_which_a_launch_is_postponed_belongs_to_the_request() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    device.link.urgent.store(1, SeqCst);
    device.link.urgent_until_ns.store(fixture.clock.now_ns() + 3 * MS, SeqCst);
    launch(&device, &thread, 100);
    wait_for_ns(&fixture, &device, 100, MS);
    assert_eq!(requests(&fixture, &device), (vec![4 * MS], 1));
}

#[test]
fn step_that_a_lost_manager_interrupts_has_no_latency() {
    let fixture = Fixture::new();
    let (device, thread) = (critical_device(&fixture), ThreadState::empty());
    launch(&device, &thread, 100);
    device.link.dead.store(true, SeqCst);
    fixture.clock.advance(300 * MS);
    device.track();
    wait_for_ns(&fixture, &device, 100, MS);
    assert_eq!(*lock(&device.link.latencies), [Measured::Unobserved]);
}

#[test]
fn process_that_is_not_latency_critical_measures_nothing() {
    let fixture = Fixture::new();
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.track();
    device.track();
    let thread = ThreadState::empty();
    launch(&device, &thread, 100);
    wait_for_ns(&fixture, &device, 100, MS);
    assert_eq!(requests(&fixture, &device), (vec![], 0));
}
