//! Time in which a client held the GPU and executed nothing while another client waited, in the metrics.

use crate::support::group_processes::{quiet, two};
use crate::support::{MS, World};

fn counted(world: &World, client: &str) -> f64 {
    world.metric(&format!("sluice_hold_and_wait_seconds_total{{client=\"{client}\"}}")).unwrap()
}

#[test]
fn holder_that_executes_nothing_counts_only_while_another_client_waits() {
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    a.want();
    a.granted();
    world.advance(40 * MS);
    a.give_back(10.0);
    world.settle();
    assert_eq!(counted(&world, "be-a"), 0.0, "no other client waited");
    a.want();
    a.granted();
    world.advance(10 * MS);
    b.want();
    world.settle();
    world.advance(20 * MS);
    a.give_back(12.0);
    b.granted();
    world.settle();
    assert_eq!((counted(&world, "be-a"), counted(&world, "be-b")), (0.018, 0.0));
}

#[test]
fn grant_that_is_not_returned_counts_until_it_is_taken_back() {
    let world = World::new();
    let (_a, mut b) = world.holder_and_waiter();
    world.advance(50 * MS + 2_000 * MS);
    b.granted();
    world.settle();
    assert_eq!((counted(&world, "be-a"), counted(&world, "be-b")), (2.05, 0.0));
}

#[test]
fn enabled_process_without_work_counts_until_its_groups_are_disabled() {
    let world = World::new();
    let ((a, _a), (_b, _bd)) = two(&world);
    world.advance(10 * MS);
    a.becomes(false, world.clock.now());
    world.advance(MS);
    world.advance(2 * MS);
    quiet(&world);
    assert_eq!(world.driver.group(1), (false, 2048));
    // The manager learned with a round of its event loop that the process was idle: now, or 1 ms later.
    let a_counted = counted(&world, "be-a");
    assert!((0.002..=0.003).contains(&a_counted), "{a_counted}");
    assert_eq!(counted(&world, "be-b"), 0.0);
}
