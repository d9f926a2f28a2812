//! What turns give to whom.

use super::world::{MS, S, Work, World};
use crate::ClientId;
use crate::ledger::Class;
use crate::steering::{GroupId, Op, Setting};

/// Whether every share is within 0.3 points of what was promised.
fn near(shares: &[f64], promised: &[f64]) -> bool {
    shares.len() == promised.len() && shares.iter().zip(promised).all(|(got, want)| (got - want).abs() <= 0.3)
}

#[test]
fn two_trainings_get_30_and_70_percent_though_hand_overs_cost_time() {
    let mut world = World::new();
    world.best_effort(1, 30, Work::Always);
    world.best_effort(2, 70, Work::Always);
    world.run(S);
    world.forget_what_was();
    world.run(60 * S);
    assert!(near(&world.shares(), &[30.0, 70.0]), "{:?}", world.shares());
    let used: u64 = world.had.values().sum();
    assert!(used > 59_500 * MS, "{} ms of 60 s were used", used / MS);
    let stops = world.count(|op| op == Op::Stop);
    assert!((500..=1000).contains(&stops), "{stops} hand-overs in a minute");
    for (id, promised) in [(1, 0.3), (2, 0.7)] {
        let share = world.tokens.usage(ClientId(id), world.now).unwrap().share.as_fraction();
        assert!((share - promised).abs() < 0.01, "charged {share}");
    }
}

#[test]
fn four_trainings_get_10_20_30_and_40_percent() {
    let mut world = World::new();
    for id in 1..=4 {
        world.best_effort(id, u32::try_from(id).unwrap() * 10, Work::Always);
    }
    world.run(S);
    world.forget_what_was();
    world.run(60 * S);
    assert!(near(&world.shares(), &[10.0, 20.0, 30.0, 40.0]), "{:?}", world.shares());
    let used: u64 = world.had.values().sum();
    assert!(used > 59_000 * MS, "{} ms of 60 s were used", used / MS);
}

#[test]
fn what_one_leaves_while_it_is_idle_the_others_absorb() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Periodic { from: 0, period: S, busy: S / 2 });
    world.best_effort(2, 25, Work::Always);
    world.best_effort(3, 25, Work::Always);
    world.run(2 * S);
    world.forget_what_was();
    world.run(60 * S);
    let used: u64 = world.had.values().sum();
    assert!(used > 59_000 * MS, "{} ms of 60 s were used", used / MS);
    let shares = world.shares();
    assert!((shares[1] - shares[2]).abs() < 1.0, "{shares:?}");
    // Half of the GPU while it has work, which is half of the time, and the first 100 ms of a pause count as that.
    assert!((25.0..31.0).contains(&shares[0]), "{shares:?}");
}

#[test]
fn nothing_is_ever_stopped_for_a_single_training() {
    let mut world = World::new();
    world.best_effort(1, 30, Work::Always);
    world.run(20 * S);
    assert_eq!(world.had[&crate::ProcessId(1)], 20 * S);
    // A slice and a start: what they were before was not known.
    assert_eq!(world.controls.len(), 2, "{:?}", world.controls);
}

#[test]
fn an_idle_process_beside_a_training_costs_next_to_nothing() {
    let mut world = World::new();
    world.best_effort(1, 30, Work::Always);
    world.best_effort(2, 70, Work::Never);
    world.run(60 * S);
    assert!(world.had[&crate::ProcessId(1)] > 59_900 * MS, "{:?}", world.had);
    assert!(world.controls.len() < 60, "{}", world.controls.len());
}

/// What somebody gets who has work all the time and says that it has none, beside a training, in thousandths.
fn lying_pays(limit: u32, honest: bool, critical: bool) -> u64 {
    let mut world = World::new();
    world.client(1, 10, limit, Class::BestEffort);
    world.process(1, 1, &[1], Class::BestEffort, Work::Always);
    world.liars.insert(crate::ProcessId(1));
    if honest {
        world.best_effort(2, 70, Work::Always);
    }
    if critical {
        world.critical(3, Work::Never);
    }
    world.run(S);
    world.forget_what_was();
    world.run(20 * S);
    world.had.get(&crate::ProcessId(1)).copied().unwrap_or(0) / (20 * MS)
}

#[test]
fn who_says_that_it_is_idle_runs_neither_beside_the_only_holder_nor_beyond_its_limit() {
    for critical in [false, true] {
        assert!(lying_pays(100, true, critical) < 20, "beside a holder");
        assert!(lying_pays(40, false, critical) < 20, "beyond its limit");
        assert!(lying_pays(100, false, critical) > 990, "alone it harms nobody");
    }
}

#[test]
fn a_limit_is_kept_by_a_process_that_is_alone() {
    let mut world = World::new();
    world.client(1, 20, 40, Class::BestEffort);
    world.process(1, 1, &[1], Class::BestEffort, Work::Always);
    world.run(S);
    world.forget_what_was();
    world.run(60 * S);
    let share = world.had[&crate::ProcessId(1)] as f64 / (60 * S) as f64;
    assert!((share - 0.4).abs() < 0.003, "{share}");
}

#[test]
fn a_second_training_is_served_within_two_turns_and_the_first_goes_on_alone_when_it_ends() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Periodic { from: 5 * S, period: 100 * S, busy: 2 * S });
    world.run(4 * S);
    assert_eq!(world.had.get(&crate::ProcessId(2)), None);
    world.run(100 * MS);
    world.run(2 * S);
    let second = world.had[&crate::ProcessId(2)];
    assert!(second > 900 * MS, "{} ms", second / MS);
    world.forget_what_was();
    world.run(S);
    assert!(world.had[&crate::ProcessId(1)] > 990 * MS, "{:?}", world.had);
    assert_eq!(
        world.gpu[&GroupId(2)],
        Setting { enabled: false, ..Setting::FREE },
        "somebody else holds the GPU"
    );
}

#[test]
fn a_stopped_process_that_is_wrong_about_being_idle_is_let_run_now_and_then() {
    let mut world = World::new();
    world.best_effort(1, 30, Work::Always);
    world.best_effort(2, 30, Work::Always);
    world.best_effort(3, 30, Work::Never);
    world.run(S);
    world.controls.clear();
    world.run(S);
    let starts = world.controls.iter().filter(|(_, _, c)| c.group == GroupId(3) && c.op == Op::Start);
    assert!((1..=3).contains(&starts.count()), "{:?}", world.controls);
    world.forget_what_was();
    world.run(60 * S);
    let starts = world.controls.iter().filter(|(_, _, c)| c.group == GroupId(3) && c.op == Op::Start);
    assert!(starts.count() < 20, "less and less often");
}
