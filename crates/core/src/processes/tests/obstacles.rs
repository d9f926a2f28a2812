//! Attached processes that cannot be inspected.

use super::fixture::{CLIENT, Fixture, S};
use crate::processes::{Effect, Event, Note, ObstacleKind, State};

const KEY: (i32, u64) = (10, 7);

fn meet(manager: &mut Fixture, kind: ObstacleKind) -> Vec<Effect<()>> {
    manager.now += S;
    let found = Err(kind.because("an obstacle"));
    manager.apply(Event::InspectedAttached { key: KEY, found, has_unannounced: false })
}

fn unscheduled(manager: &Fixture) -> u32 {
    manager.processes.unscheduled(CLIENT).iter().sum()
}

/// What it has beside its announcement runs freely.
#[test]
fn attached_process_that_cannot_be_inspected_is_counted_and_reported_once() {
    for kind in [ObstacleKind::Driver, ObstacleKind::NotPermitted, ObstacleKind::TooMany] {
        let mut manager = Fixture::new();
        let (id, _) = manager.attach(KEY, &[1]);
        let note = Effect::Report(id, Note::NotInspected(kind.because("an obstacle")));
        assert!(meet(&mut manager, kind).contains(&note), "{kind:?}");
        assert!(!meet(&mut manager, kind).contains(&note), "{kind:?}");
        assert_eq!(manager.processes.unscheduled(CLIENT)[kind.index()], 1);
    }
}

/// The reason may be a passing one, and the process an honest one.
#[test]
fn attached_process_that_cannot_be_inspected_once_is_scheduled_as_before() {
    let mut manager = Fixture::new();
    manager.processes.locks_ready = true;
    let (id, _) = manager.attach(KEY, &[1]);
    let effects = meet(&mut manager, ObstacleKind::Driver);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Violation(_))), "{effects:?}");
    assert_eq!(manager.processes.get(id).unwrap().state, State::Announces);
    assert_eq!(manager.groups(id), [1]);
    manager.inspect_attached(KEY, &[1]);
    assert_eq!(unscheduled(&manager), 0);
    meet(&mut manager, ObstacleKind::Driver);
    meet(&mut manager, ObstacleKind::NoGroups);
    assert_eq!(unscheduled(&manager), 0, "it may not compute at all");
}
