//! What is noted of groups that do not come under control.

use super::fixture::Fixture;
use crate::processes::{Effect, Note, ObstacleKind};

const KEY: (i32, u64) = (10, 7);

fn notes(effects: &[Effect<()>]) -> Vec<&Note> {
    let notes = effects.iter().filter_map(|effect| match effect {
        Effect::Report(_, note) => Some(note),
        _ => None,
    });
    notes.collect()
}

/// It announces nothing, and no token schedules it.
#[test]
fn process_without_the_hook_that_has_too_many_groups_is_no_refused_announcement() {
    let mut manager = Fixture::new();
    let groups: Vec<u32> = (1..=65).collect();
    let effects = manager.find(KEY, &groups);
    assert!(notes(&effects).is_empty(), "{effects:?}");
    let is_unscheduled = |effect: &Effect<()>| matches!(effect, Effect::NotScheduled { obstacle, .. } if obstacle.kind == ObstacleKind::TooMany);
    assert!(effects.iter().any(is_unscheduled), "{effects:?}");
}

#[test]
fn announcement_of_too_many_groups_is_noted() {
    let mut manager = Fixture::new();
    let groups: Vec<u32> = (1..=65).collect();
    let id = manager.add(KEY);
    let effects = manager.announce(id, &groups);
    assert_eq!(notes(&effects), [&Note::TooManyAnnounced]);
}
