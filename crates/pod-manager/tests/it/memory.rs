//! Memory limits over real sockets.

use crate::support::{GIB, World};
use sluice_comm::RequestBody;

#[test]
fn a_limit_is_exact_to_the_byte_across_four_processes() {
    let world = World::new();
    let mut processes: Vec<_> = (0..4).map(|_| world.process("be-a")).collect();
    for process in &mut processes {
        assert!(process.reserve(2 * GIB));
    }
    assert!(!processes[3].reserve(1));
    assert!(processes[0].release(1));
    assert!(!processes[2].reserve(2));
    assert!(processes[2].reserve(1));
    assert_eq!(processes[1].account(), (8 * GIB, 8 * GIB));
    assert_eq!(world.metric("sluice_memory_denied_total{client=\"be-a\"}"), Some(2.0));
    assert_eq!(world.metric("sluice_memory_used_bytes{client=\"be-a\"}"), Some(8.0 * GIB as f64));
    assert_eq!(world.metric("sluice_memory_limit_bytes{client=\"be-a\"}"), Some(8.0 * GIB as f64));
}

#[test]
fn memory_of_one_client_does_not_affect_another() {
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    assert!(a.reserve(8 * GIB));
    assert!(b.reserve(10 * GIB));
    // Releasing more than one holds gives nothing to anybody.
    assert!(b.release(11 * GIB));
    assert_eq!(b.account().0, 0);
    assert_eq!(a.account().0, 8 * GIB);
    assert!(!a.reserve(u64::MAX));
}

#[test]
fn memory_is_answered_while_the_token_is_waited_for() {
    let world = World::new();
    let (_a, mut b) = world.holder_and_waiter();
    assert!(b.reserve(1) && b.token.is_silent());
}

#[test]
fn a_dead_processs_memory_comes_back_although_its_sockets_stay_open() {
    let world = World::new();
    let (dead, mut alive) = (world.process("be-a"), world.process("be-a"));
    let mut dead = dead;
    assert!(dead.reserve(8 * GIB));
    assert!(!alive.reserve(1));
    dead.process.die();
    // The manager closes its end, so a child that holds the sockets reads the end of them.
    assert!(dead.memory.is_closed() && dead.token.is_closed());
    assert!(alive.reserve(8 * GIB));
}

#[test]
fn the_token_of_a_dead_process_passes_on_at_once_although_its_sockets_stay_open() {
    let world = World::new();
    let (mut dead, mut waiting) = (world.process("be-a"), world.process("be-b"));
    dead.want();
    dead.granted();
    waiting.want();
    world.settle();
    dead.process.die();
    assert_eq!(waiting.granted(), 50.0);
    assert_eq!(dead.page().deadline_ns(), 0);
}

#[test]
fn closing_both_channels_is_the_end_of_a_process_too() {
    let world = World::new();
    let (gone, mut alive) = (world.process("be-a"), world.process("be-a"));
    let mut gone = gone;
    assert!(gone.reserve(8 * GIB));
    drop(gone);
    world.settle();
    assert!(alive.reserve(8 * GIB));
}

#[test]
fn memory_is_released_by_the_channel_that_reserved_it_and_by_no_other_process() {
    let world = World::new();
    let (mut first, mut second) = (world.process("be-a"), world.process("be-a"));
    assert!(first.reserve(6 * GIB));
    // A process of the same client releases at most what it has reserved itself.
    assert!(second.reserve(GIB));
    assert!(second.release(7 * GIB));
    assert_eq!(first.account().0, 6 * GIB);
    let forged = RequestBody::MemUpdate { bytes: 6 * GIB, allocate: false };
    first.token.send(forged);
    assert!(first.token.is_closed(), "a release on the token channel");
    assert_eq!(first.account().0, 6 * GIB);
}
