//! Controls that fail: the process is token-scheduled until the driver works again.

use crate::support::driver::Call;
use crate::support::group_processes::{process_with_groups, quiet, two};
use crate::support::hook::Hook;
use crate::support::{MS, World, until};
use sluice_comm::page::UNLIMITED;
use sluice_pod_manager::channel_groups::{Cause, ControlFailure};

const S: u64 = 1000 * MS;

fn failure(cause: Cause) -> ControlFailure {
    ControlFailure::Failed(cause, "refused".into())
}

/// Lets time pass in steps of 50 ms.
fn pass(world: &World, ns: u64) {
    for _ in 0..ns / (50 * MS) {
        world.advance(50 * MS);
        quiet(world);
    }
}

fn on_probation(world: &World) -> Option<f64> {
    world.metric("sluice_processes_on_probation")
}

#[test]
fn process_whose_control_fails_repeatedly_is_token_scheduled_for_a_second() {
    let world = World::new();
    let ((a, _a), (mut b, descriptor)) = two(&world);
    world.driver.fail(2, Some(failure(Cause::Refused)));
    world.driver.hold();
    world.advance(50 * MS);
    assert_eq!(world.driver.let_one_go(), Call::Stop(1));
    // Enabling the second one fails, is repeated, and fails again; then its slice is set.
    assert_eq!(world.driver.let_one_go(), Call::Start(2));
    assert_eq!(world.driver.let_one_go(), Call::Start(2));
    world.driver.next();
    world.driver.fail(2, None);
    world.driver.let_all_go();
    quiet(&world);
    assert_eq!(b.page().deadline_ns(), 0);
    assert_eq!(world.driver.group(2), (true, 2048));
    assert_eq!(
        (world.metric("sluice_steering_given_up_total"), on_probation(&world)),
        (Some(1.0), Some(1.0))
    );
    assert_eq!(world.metric("sluice_level{level=\"token\"}"), Some(1.0));
    b.want();
    world.settle();
    assert_eq!(a.page().deadline_ns(), UNLIMITED);
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!(b.granted(), 50.0);
    pass(&world, S);
    assert_eq!(b.page().deadline_ns(), UNLIMITED, "without a new announcement");
    assert_eq!((world.metric("sluice_level{level=\"turn\"}"), on_probation(&world)), (Some(2.0), Some(0.0)));
    // Its descriptor is kept until it ends.
    b.process.die();
    descriptor.closes();
}

#[test]
fn level_is_regained_within_10_s_after_a_failure_of_a_minute() {
    let world = World::new();
    let ((a, _ad), (b, _bd)) = two(&world);
    for group in [1, 2] {
        world.driver.fail(group, Some(failure(Cause::Timeout)));
    }
    pass(&world, 60 * S);
    assert_ne!(on_probation(&world), Some(0.0));
    for group in [1, 2] {
        world.driver.fail(group, None);
    }
    pass(&world, 10 * S);
    assert_eq!((world.metric("sluice_level{level=\"turn\"}"), on_probation(&world)), (Some(2.0), Some(0.0)));
    assert_eq!((a.page().deadline_ns(), b.page().deadline_ns()), (UNLIMITED, UNLIMITED));
    world.driver.take_calls();
    pass(&world, S);
    let calls = world.driver.take_calls();
    assert!(calls.contains(&Call::Stop(1)) && calls.contains(&Call::Stop(2)), "{calls:?}");
}

#[test]
fn process_that_could_not_be_enabled_is_enabled_when_the_driver_works_again() {
    let world = World::new();
    let ((_a, _ad), (mut b, _bd)) = two(&world);
    assert_eq!(world.driver.group(2), (false, 2048));
    world.driver.fail(2, Some(failure(Cause::Refused)));
    pass(&world, 20 * S);
    assert_eq!(world.driver.group(2), (false, 2048));
    assert!(b.reserve(1 << 20), "its connections stay open");
    world.driver.fail(2, None);
    let enabled = (0..200).any(|_| {
        pass(&world, 50 * MS);
        world.driver.group(2) == (true, 2048)
    });
    assert!(enabled, "within 10 s");
}

#[test]
fn nothing_is_kept_of_a_process_that_ends_on_probation() {
    let world = World::new();
    let ((_a, _ad), (b, descriptor)) = two(&world);
    world.driver.fail(2, Some(failure(Cause::Refused)));
    pass(&world, 5 * S);
    assert_eq!(on_probation(&world), Some(1.0));
    b.process.die();
    descriptor.closes();
    world.settle();
    assert_eq!(on_probation(&world), Some(0.0));
    world.driver.take_calls();
    pass(&world, 20 * S);
    assert_eq!(world.driver.calls(), []);
}

#[test]
fn process_that_disconnects_on_probation_is_freed_when_the_driver_works_again() {
    let world = World::new();
    let ((_a, _ad), (b, descriptor)) = two(&world);
    world.driver.fail(2, Some(failure(Cause::Refused)));
    pass(&world, 5 * S);
    let Hook { token, memory, .. } = b;
    drop((token, memory));
    until("it has left", || world.metric("sluice_processes{client=\"be-b\"}") == Some(0.0));
    pass(&world, 5 * S);
    world.driver.fail(2, None);
    pass(&world, 9 * S);
    assert_eq!(world.driver.group(2), (true, 2048));
    descriptor.closes();
}

#[test]
fn other_process_of_the_client_keeps_its_quanta() {
    let world = World::new();
    let ((_a, _ad), (b, _bd)) = two(&world);
    let (c, _cd) = process_with_groups(&world, "be-b", &[3]);
    c.becomes(true, world.clock.now());
    quiet(&world);
    world.driver.fail(2, Some(failure(Cause::Refused)));
    pass(&world, 5 * S);
    assert_eq!((b.page().deadline_ns(), c.page().deadline_ns()), (0, UNLIMITED));
    assert_eq!(on_probation(&world), Some(1.0));
}

/// A failed preemption is counted by its cause. The control is repeated once, so the process stays under control.
#[test]
fn failed_hand_off_is_repeated_and_counted_by_its_cause() {
    let causes = [
        (Cause::Timeout, "timeout"),
        (Cause::Refused, "context_save_failed"),
        (Cause::NoMemory, "insufficient_memory"),
        (Cause::GpuHung, "gpu_hung"),
        (Cause::InvalidState, "invalid_state"),
    ];
    for (cause, label) in causes {
        let world = World::new();
        let ((a, _a), (b, _b)) = two(&world);
        let count = |outcome: &str| {
            let series = format!("sluice_preemptions_total{{level=\"turn\",outcome=\"{outcome}\"}}");
            world.metric(&series)
        };
        let before = count("success").unwrap();
        world.driver.fail(1, Some(failure(cause)));
        world.driver.hold();
        world.advance(50 * MS);
        assert_eq!(world.driver.let_one_go(), Call::Stop(1));
        assert_eq!(world.driver.next(), Call::Stop(1));
        world.driver.fail(1, None);
        world.driver.let_all_go();
        quiet(&world);
        assert_eq!((count(label), count("success")), (Some(1.0), Some(before + 1.0)), "{label}");
        assert_eq!((world.driver.group(1), world.driver.group(2)), ((false, 2048), (true, 2048)));
        assert_eq!((a.page().deadline_ns(), b.page().deadline_ns()), (UNLIMITED, UNLIMITED));
    }
}
