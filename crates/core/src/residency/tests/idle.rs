//! Clients that have their memory and no work, while others wait for theirs.

use super::*;

/// Two clients that do not fit together: the first one has had its memory for a while, the second one waits.
fn first_of_two() -> World {
    let mut world = World::new(&[70, 70]);
    while world.workers[&ClientId(0)].resident < 70 {
        world.step();
    }
    world
}

/// Until the second client has its memory, ms. The first one is idle from now on, or for `pause` of each `period` ms.
fn wait_ms(world: &mut World, pause: u64, period: u64) -> u64 {
    let begun = world.now;
    while world.workers[&ClientId(1)].resident < 70 {
        let at = (world.now - begun) / MS;
        let since = begun + at / period * period * MS;
        let first = world.workers.get_mut(&ClientId(0)).expect("a client");
        first.idle_since = (at % period < pause).then_some(since);
        world.step();
    }
    (world.now - begun) / MS
}

#[test]
fn idle_client_gives_its_place_up_before_its_quantum_ends() {
    let busy = wait_ms(&mut first_of_two(), 0, 100);
    let idle = wait_ms(&mut first_of_two(), 100_000, 100_000);
    // It is idle for as long as its moves took or 200 ms, and then 70 bytes leave and 70 return.
    let switch = 2 * 70 * MOVE_NS / MS + 40;
    assert!(idle <= 200 + 70 * MOVE_NS / MS + switch, "{idle} ms");
    assert!(busy > 2 * idle, "{busy} ms beside a client that works, {idle} ms beside one that does not");
}

#[test]
fn client_that_pauses_between_two_pieces_of_work_keeps_its_quantum() {
    let busy = wait_ms(&mut first_of_two(), 0, 300);
    let paused = wait_ms(&mut first_of_two(), 150, 300);
    assert_eq!(paused, busy);
}

proptest! {
    #[test]
    fn clients_that_are_idle_at_any_times_spend_at_most_half_of_the_time_on_moves(
        pauses in proptest::collection::vec((0_u64..3, 50_u64..2_000, 0_u64..2_000), 1..60),
    ) {
        let mut world = World::new(&[70, 70, 70]);
        for (id, idle, busy) in pauses {
            let now = world.now;
            world.workers.get_mut(&ClientId(id)).expect("a client").idle_since = Some(now);
            world.run(idle);
            world.workers.get_mut(&ClientId(id)).expect("a client").idle_since = None;
            world.run(busy);
        }
        prop_assert!(world.moves_ns <= world.now / 2 + SWITCH_NS, "moves took {} of {} ms", world.moves_ns / MS, world.now / MS);
    }
}
