//! Which copies a kernel may make: not those that another kernel of the process may wait for.

use super::*;

/// A device under an unlimited grant.
fn unlimited(fixture: &Fixture) -> TestDevice<'_> {
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.track();
    device
}

#[test]
fn only_work_ahead_in_the_same_stream_may_be_unfinished() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    assert!(!device.may_have_work_besides(stream(100)), "the input of a request");
    launch(&device, &thread, 100);
    assert!(!device.may_have_work_besides(stream(100)), "its answer");
    assert!(device.may_have_work_besides(stream(101)), "it does not wait for the launch");
    launch(&device, &thread, 101);
    assert!(device.may_have_work_besides(stream(100)));
    wait_for(&device, 101);
    assert!(!device.may_have_work_besides(stream(100)));
}

#[test]
fn launch_in_flight_and_work_of_a_destroyed_stream_count() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    let pass = device.try_launch(stream(101), &thread);
    assert!(device.may_have_work_besides(stream(100)));
    drop(pass);
    assert!(!device.may_have_work_besides(stream(100)));
    launch(&device, &thread, 101);
    drop(device.forget_stream(stream(101)));
    assert!(device.may_have_work_besides(stream(100)));
}

#[test]
fn after_a_launch_that_bypassed_no_copy_is_made_by_a_kernel() {
    let fixture = Fixture::new();
    let (device, thread) = (unlimited(&fixture), ThreadState::empty());
    device.link.dead.store(true, SeqCst);
    device.link.unlimited.store(false, SeqCst);
    device.lock().phase = state::Phase::Closed;
    assert!(matches!(device.launch(stream(101), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    device.link.unlimited.store(true, SeqCst);
    device.link.dead.store(false, SeqCst);
    fixture.clock.advance(2000 * MS);
    device.track();
    assert!(is_governed(&device.launch(stream(100), &thread)), "the manager is back");
    wait_for(&device, 100);
    assert!(device.may_have_work_besides(stream(100)));
}
