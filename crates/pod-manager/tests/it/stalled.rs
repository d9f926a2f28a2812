//! Processes that are stopped or frozen while they report work: what they cost the others.

use crate::support::group_processes::{quiet, two};
use crate::support::hook::Hook;
use crate::support::{MS, World};

/// Milliseconds of the next second in which this group is enabled. The CPU clock of `moving` moves on meanwhile.
fn enabled_ms(world: &World, group: u32, moving: Option<&Hook>) -> u64 {
    let enabled = |_: &u64| {
        moving.inspect(|hook| hook.process.thaw());
        world.advance(5 * MS);
        quiet(world);
        world.driver.group(group).0
    };
    5 * (0..200).filter(enabled).count() as u64
}

#[test]
fn frozen_process_costs_the_other_at_most_a_quantum_a_second_until_it_continues() {
    for stopped in [false, true] {
        let world = World::new();
        let ((_a, _ad), (b, _bd)) = two(&world);
        b.process.freeze(stopped);
        // If the kernel does not report it as stopped, two quanta in which it may run are the evidence.
        let first = enabled_ms(&world, 1, None);
        assert!(first >= if stopped { 850 } else { 750 }, "{first} ms");
        let enabled: Vec<u64> = (0..3).map(|_| enabled_ms(&world, 1, None)).collect();
        assert!(enabled.iter().all(|ms| *ms >= 950), "{enabled:?}");
        b.process.thaw();
        world.advance(50 * MS);
        let enabled = enabled_ms(&world, 1, Some(&b));
        assert!(enabled < 700, "{enabled} ms");
    }
}

/// The hook's tracker wakes while the kernel runs, so the CPU clock moves. The report page stands still.
#[test]
fn process_with_one_long_kernel_keeps_its_quanta() {
    let world = World::new();
    let ((_a, _ad), (b, _bd)) = two(&world);
    let enabled: Vec<u64> = (0..3).map(|_| enabled_ms(&world, 2, Some(&b))).collect();
    assert!(enabled.iter().all(|ms| *ms >= 450), "{enabled:?}");
}

/// Milliseconds after the deadline at which the next process gets the grant of one that does not return it.
fn next_grant_after(stopped: bool) -> u64 {
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    a.want();
    assert_eq!(a.granted(), 50.0);
    b.want();
    world.settle();
    world.advance(50 * MS);
    assert!(b.token.is_silent());
    // A long kernel: its clock stands still, too, as the tracker waits for the end.
    a.process.freeze(stopped);
    let mut waited = 0;
    while b.page().deadline_ns() == 0 && waited < 3000 {
        world.advance(10 * MS);
        waited += 10;
    }
    assert_eq!(b.granted(), 50.0);
    assert_eq!(a.page().deadline_ns(), 0);
    waited
}

#[test]
fn grant_of_a_stopped_holder_ends_a_quantum_after_its_deadline_and_a_draining_one_keeps_it() {
    let waited = next_grant_after(true);
    assert!(waited <= 100, "{waited} ms");
    assert_eq!(next_grant_after(false), 2000, "the timeout");
}
