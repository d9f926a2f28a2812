//! Suspended clients leave and stay away, and the others have what they left.

use super::*;

/// The longest time of one move.
const MOVE: u64 = CAPACITY * MOVE_NS + 4 * STEP;

fn suspend(world: &mut World, id: u64, suspended: bool) {
    world.workers.get_mut(&ClientId(id)).expect("a client").is_suspended = suspended;
}

fn worker(world: &World, id: u64) -> &Worker {
    &world.workers[&ClientId(id)]
}

proptest! {
    #[test]
    fn suspended_clients_have_no_room_and_all_return_after_resumption(
        needs in needs(),
        events in proptest::collection::vec((0_u64..5, any::<bool>(), 10_u64..3_000), 1..20),
    ) {
        let mut world = World::new(&needs);
        let mut since = BTreeMap::new();
        for (id, suspended, ms) in events {
            let id = id % needs.len() as u64;
            suspend(&mut world, id, suspended);
            if suspended {
                since.entry(id).or_insert(world.now);
            } else {
                since.remove(&id);
            }
            let end = world.now + ms * MS;
            while world.now < end {
                world.step();
                for (id, since) in &since {
                    // A move that brings its memory back may have begun before.
                    let is_late = world.now > since + 2 * MOVE;
                    let room = world.pager.room(ClientId(*id)).unwrap_or(0);
                    prop_assert!(!is_late || room == 0 && worker(&world, *id).resident == 0, "{id} is on the GPU with room {room}");
                    prop_assert!(!is_late || !world.pager.is_moving(ClientId(*id)));
                }
            }
        }
        (0..needs.len() as u64).for_each(|id| suspend(&mut world, id, false));
        let ran: Vec<u64> = world.workers.values().map(|worker| worker.ran_ns).collect();
        world.run(40_000);
        for (worker, before) in world.workers.values().zip(ran) {
            prop_assert!(worker.ran_ns > before, "{worker:?} has not returned");
        }
    }
}

#[test]
fn other_client_returns_at_once_and_runs_alone_without_moves() {
    let mut world = World::new(&[70, 70]);
    world.run(300);
    let (here, away) = if worker(&world, 0).resident > 0 { (0, 1) } else { (1, 0) };
    // In the quantum of the first one.
    suspend(&mut world, here, true);
    let before = worker(&world, away).ran_ns;
    world.run(2 * MOVE / MS);
    assert_eq!((worker(&world, here).resident, worker(&world, away).resident), (0, 70));
    let moves_ns = world.moves_ns;
    world.run(30_000);
    assert_eq!(world.moves_ns, moves_ns);
    assert!(worker(&world, away).ran_ns - before > 29_900 * MS);
    // The resumed one takes turns again.
    suspend(&mut world, here, false);
    world.run(30_000);
    assert!(worker(&world, here).longest_pause_ns > 30_000 * MS && worker(&world, here).ran_ns > 10_000 * MS);
}

/// What the pager decides about a client with 60 bytes: its room, and whether its memory moves.
fn decide_one(pager: &mut Pager, ms: u64, reported: Reported) -> (Option<u64>, bool) {
    let reported = Reported { need: 60, may_leave: true, ..reported };
    pager.advance(ms * MS, 0, &BTreeMap::from([(ClientId(1), reported)]));
    (pager.room(ClientId(1)), pager.is_moving(ClientId(1)))
}

#[test]
fn resumed_client_returns_although_no_thread_waits_for_its_memory() {
    let mut pager = Pager::new(policy());
    let mut decide = |ms, resident, suspended| {
        decide_one(&mut pager, ms, Reported { resident, suspended, ..Reported::default() })
    };
    assert_eq!(decide(0, 60, false), (Some(60), false));
    assert_eq!(decide(10, 60, true), (Some(0), true));
    assert_eq!(decide(20, 0, true), (Some(0), false));
    assert_eq!(decide(30_000, 0, true), (Some(0), false));
    assert_eq!(decide(30_010, 0, false), (Some(60), true));
    assert_eq!(decide(30_020, 60, false), (Some(60), false));
}

#[test]
fn client_that_is_suspended_while_it_returns_arrives_before_it_leaves() {
    let mut pager = Pager::new(policy());
    let mut decide = |ms, resident, suspended| {
        let waits = resident == 0;
        decide_one(&mut pager, ms, Reported { resident, waits, suspended, ..Reported::default() })
    };
    assert_eq!(decide(0, 0, false), (Some(60), true));
    assert_eq!(decide(10, 0, true), (Some(60), true));
    assert_eq!(decide(20, 60, true), (Some(0), true));
    assert_eq!(decide(30, 0, true), (Some(0), false));
}

#[test]
fn memory_that_a_new_manager_finds_in_a_copy_leaves_when_the_copy_has_ended() {
    let mut pager = Pager::new(policy());
    let mut decide = |ms, resident, moves| {
        decide_one(&mut pager, ms, Reported { resident, suspended: true, moves, ..Reported::default() })
    };
    assert_eq!(decide(0, 0, true), (Some(0), true));
    assert_eq!(decide(10, 60, false), (Some(0), true));
    assert_eq!(decide(20, 0, true), (Some(0), true), "its last copy has not ended");
    assert_eq!(decide(30, 0, false), (Some(0), false));
    // It came back by itself.
    assert_eq!(decide(40, 60, false), (Some(0), true));
    assert_eq!(decide(50, 0, false), (Some(0), false));
}

#[test]
fn suspended_client_that_does_not_leave_keeps_its_memory_and_is_asked_again_later() {
    let mut pager = Pager::new(policy());
    let mut decide = |ms, moves| {
        let reported = Reported { resident: 60, suspended: true, moves, ..Reported::default() };
        let (room, is_moving) = decide_one(&mut pager, ms, reported);
        (room, is_moving, pager.next_deadline().map(|at| at / MS))
    };
    assert_eq!(decide(0, false), (Some(0), true, Some(2_000)));
    // What it reports of its moves changes nothing.
    for (ms, moves) in [(2_000, false), (2_010, true), (61_000, false)] {
        assert_eq!(decide(ms, moves), (Some(60), false, Some(62_000)));
    }
    assert_eq!(decide(62_000, false), (Some(0), true, Some(64_000)));
}

#[test]
fn client_that_is_suspended_while_it_leaves_for_another_one_costs_that_one_no_quantum() {
    let mut world = World::new(&[70, 70]);
    // Most of its memory has left.
    while world.pager.room(ClientId(0)) != Some(0) || world.workers[&ClientId(0)].moved_ns < 60 * MOVE_NS {
        world.step();
    }
    world.workers.get_mut(&ClientId(0)).expect("a client").is_suspended = true;
    let begun = world.now;
    while world.workers[&ClientId(1)].resident < 70 {
        world.step();
    }
    let two_moves = 2 * 70 * MOVE_NS + 6 * STEP;
    assert!(world.now - begun <= two_moves, "{} ms", (world.now - begun) / MS);
}

#[test]
fn suspended_client_that_reports_to_come_back_again_and_again_gets_no_more_moves() {
    let mut pager = Pager::new(policy());
    let mut moves = 0;
    for round in 0..100 {
        let resident = if round % 2 == 0 { 60 } else { 0 };
        let reported = Reported { resident, suspended: true, ..Reported::default() };
        let (_, is_moving) = decide_one(&mut pager, 10 * round, reported);
        moves += u32::from(is_moving);
    }
    assert!((1..=4).contains(&moves), "{moves} of 100 rounds with grants");
}
