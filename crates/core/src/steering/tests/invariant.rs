//! Whatever happens in whatever order: at most one running group has a tiny slice, on the GPU and not only in the books.

use super::world::{MS, Work, World};
use crate::ledger::Class;
use crate::steering::{GroupId, Outcome, Setting};
use crate::{ClientId, ProcessId};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Happens {
    Time(u64),
    /// A process with so many groups.
    Comes {
        client: u64,
        groups: u64,
        work: u8,
    },
    Dies(usize),
    Leaves(usize),
    HangsUp(usize),
    /// A process announces only so many of its groups.
    Announces(usize, usize),
    NextControl(Outcome),
}

fn anything() -> impl Strategy<Value = Happens> {
    let outcome = prop_oneof![Just(Outcome::Failed), Just(Outcome::Gone)];
    prop_oneof![
        6 => (1..120u64).prop_map(Happens::Time),
        4 => (1..6u64, 1..3u64, 0..4u8)
            .prop_map(|(client, groups, work)| Happens::Comes { client, groups, work }),
        1 => (0..8usize).prop_map(Happens::Dies),
        1 => (0..8usize).prop_map(Happens::Leaves),
        1 => (0..8usize).prop_map(Happens::HangsUp),
        2 => (0..8usize, 0..3usize).prop_map(|(index, left)| Happens::Announces(index, left)),
        2 => outcome.prop_map(Happens::NextControl),
    ]
}

const fn work(number: u8) -> Work {
    match number {
        0 => Work::Never,
        1 => Work::Periodic { from: 0, period: 10 * MS, busy: MS },
        2 => Work::Periodic { from: 0, period: 90 * MS, busy: 40 * MS },
        _ => Work::Always,
    }
}

fn play(happenings: &[Happens], effective: bool) -> World {
    let mut world = World::new();
    world.failures_take_effect = effective;
    for client in 1..=4 {
        world.client(client, 25, if client == 4 { 50 } else { 100 }, Class::BestEffort);
    }
    world.client(5, 0, 100, Class::LatencyCritical);
    let mut last = 0;
    for happens in happenings {
        let nth = |world: &World, index: usize| world.processes.keys().nth(index).map(|id| id.0);
        match *happens {
            Happens::Time(ms) => world.run(ms * MS),
            Happens::Comes { client, groups, work: number } => {
                let class = if client == 5 { Class::LatencyCritical } else { Class::BestEffort };
                last += 10;
                let groups: Vec<u64> = (last..last + groups).collect();
                world.process(last, client, &groups, class, work(number));
            }
            Happens::Dies(index) => {
                if let Some(id) = nth(&world, index) {
                    world.dies(id);
                }
            }
            Happens::Leaves(index) => {
                if let Some(id) = nth(&world, index) {
                    world.steering.leave(ProcessId(id), &mut world.tokens, world.now);
                    world.tokens.process_gone(ProcessId(id), world.now);
                    world.processes.remove(&ProcessId(id));
                }
            }
            Happens::HangsUp(index) => {
                if let Some(id) = nth(&world, index) {
                    world.steering.part(ProcessId(id), &mut world.tokens, world.now);
                    world.tokens.process_gone(ProcessId(id), world.now);
                    world.processes.remove(&ProcessId(id));
                }
            }
            Happens::Announces(index, left) => {
                if let Some(id) = nth(&world, index) {
                    world.announces_only(id, left);
                }
            }
            Happens::NextControl(outcome) => {
                let number = world.begun;
                world.fails = Box::new(move |now, _| if now == number { outcome } else { Outcome::Done });
            }
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The GPU itself checks the invariant after each control; a control that failed may have taken effect all the same.
    #[test]
    fn two_groups_with_tiny_slices_never_run_and_in_the_end_nobody_is_left_stopped(
        happenings in proptest::collection::vec(anything(), 1..40),
        effective: bool,
    ) {
        let mut world = play(&happenings, effective);
        for id in world.processes.keys().copied().collect::<Vec<_>>() {
            world.steering.leave(id, &mut world.tokens, world.now);
            world.tokens.process_gone(id, world.now);
        }
        world.processes.clear();
        world.fails = Box::new(|_, _| Outcome::Done);
        world.run(500 * MS);
        prop_assert!(world.steering.is_settled());
        let stopped = world.gpu.iter().filter(|(_, setting)| **setting != Setting::FREE);
        let stopped: Vec<&GroupId> = stopped.map(|(group, _)| group).collect();
        prop_assert!(stopped.is_empty(), "{stopped:?} of {:?}", world.gpu);
        let client = ClientId(1);
        prop_assert!(world.tokens.usage(client, world.now).is_some());
    }
}
