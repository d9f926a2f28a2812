//! What a violation says that follows from it.

use super::fixture::{CLIENT, Fixture, HALF};
use crate::ledger::{Class, ClientSpec};
use crate::processes::{ClientFacts, Consequence, Effect, Event};

const KEY: (i32, u64) = (10, 7);

fn consequences(effects: &[Effect<()>]) -> Vec<Consequence> {
    let consequences = effects.iter().filter_map(|effect| match effect {
        Effect::Violation(violation) => Some(violation.consequence),
        _ => None,
    });
    consequences.collect()
}

#[test]
fn repeated_violation_of_a_client_with_a_limit_stops_the_process() {
    let mut manager = Fixture::new();
    let (id, _) = manager.attach(KEY, &[1]);
    let effects = manager.violate(id, 1);
    assert_eq!(consequences(&effects), [Consequence::Stop]);
    assert!(effects.contains(&Effect::StopThreads(id)));
}

#[test]
fn violation_of_a_process_that_cannot_be_stopped_is_only_reported() {
    let mut manager = Fixture::new();
    let (id, _) = manager.attach(KEY, &[1]);
    let spec = ClientSpec { request: HALF, limit: HALF, class: Class::LatencyCritical };
    manager.apply(Event::ClientChanged(CLIENT, ClientFacts { spec, is_pod: true }));
    let effects = manager.violate(id, 1);
    assert_eq!(consequences(&effects), [Consequence::Report]);
    assert!(!effects.contains(&Effect::StopThreads(id)));
}
