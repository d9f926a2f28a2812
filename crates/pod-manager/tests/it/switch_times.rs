//! Times of preemptions and hand-offs in the metrics.

use crate::support::group_processes::{quiet, two};
use crate::support::{MS, World};

/// Number and sum of a histogram's times at a level.
fn times(world: &World, what: &str, level: &str) -> (f64, f64) {
    let of =
        |part: &str| world.metric(&format!("sluice_{what}_seconds_{part}{{level=\"{level}\"}}")).unwrap();
    (of("count"), of("sum"))
}

#[test]
fn overrun_of_a_grant_for_which_another_client_waits_is_its_preemption() {
    let world = World::new();
    let (mut a, mut b) = world.holder_and_waiter();
    world.advance(53 * MS);
    a.give_back(53.0);
    assert_eq!(b.granted(), 50.0);
    world.settle();
    assert_eq!(times(&world, "preemption", "token"), (1.0, 0.003));
    assert_eq!(
        (times(&world, "preemption", "turn"), times(&world, "hand_off", "turn")),
        ((0.0, 0.0), (0.0, 0.0))
    );
}

#[test]
fn hand_off_of_channel_groups_lasts_until_the_next_group_is_enabled() {
    let world = World::new();
    let ((_a, _ad), (_b, _bd)) = two(&world);
    assert_eq!(times(&world, "hand_off", "turn").0, 0.0, "the first client has the GPU");
    let before = times(&world, "preemption", "turn").0;
    for _ in 0..60 {
        world.advance(MS);
        quiet(&world);
        if world.driver.group(2).0 {
            break;
        }
    }
    assert_eq!((world.driver.group(1).0, world.driver.group(2).0), (false, true));
    assert_eq!(times(&world, "preemption", "turn").0, before + 1.0);
    assert_eq!(times(&world, "hand_off", "turn").0, 1.0);
}
