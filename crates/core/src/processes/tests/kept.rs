//! Processes whose connections close while their groups are kept.

use super::fixture::{Fixture, S};
use crate::processes::{Effect, Event, State};
use sluice_comm::Channel;

const KEY: (i32, u64) = (10, 7);

/// It could otherwise escape its share by opening and closing the channel again and again.
#[test]
fn process_without_the_hook_stays_scheduled_when_it_closes_a_memory_channel() {
    let mut manager = Fixture::new();
    manager.find(KEY, &[1]);
    let id = manager.processes.find(KEY).unwrap();
    let (connection, _) = manager.open(id, Channel::Memory);
    let effects = manager.close(id, Channel::Memory, connection);
    assert!(!effects.contains(&Effect::Disconnected(id)), "{effects:?}");
    assert_eq!(manager.processes.get(id).unwrap().state, State::Unhooked);
    assert_eq!(manager.groups(id), [1]);
    manager.now += S;
    assert!(manager.processes.is_hardware_scheduled(id));
}

/// The announcement and its descriptors are of a connection that has gone.
#[test]
fn announcement_that_waits_ends_with_its_connection_though_the_groups_are_kept() {
    let mut manager = Fixture::new();
    let (id, connection) = manager.attach(KEY, &[1]);
    manager.violate(id, 1);
    assert!(manager.processes.get(id).unwrap().is_stopped());
    let effects = manager.begin_announcing(id, &[1, 2]);
    let serial = Fixture::requested_proof(&effects).expect("new groups are checked first");
    manager.close(id, Channel::Token, connection);
    assert_eq!(manager.processes.postponed_announcements(), 0);
    assert_eq!(manager.prove(id, serial), []);
    assert_eq!(manager.groups(id), [1]);
}

/// Each mark costs controls of all its groups, for which the controls of other clients wait.
#[test]
fn process_that_connects_anew_without_end_causes_a_bounded_number_of_controls() {
    const GROUPS: u32 = 40;
    const SECONDS: u64 = 120;
    let mut manager = Fixture::new();
    let groups: Vec<u32> = (1..=GROUPS).collect();
    let (id, _) = manager.attach(KEY, &groups[1..]);
    manager.make_controls();
    for _ in 0..2 {
        manager.now += S;
        manager.inspect_attached(KEY, &groups);
    }
    manager.now += 10 * S;
    manager.find(KEY, &groups);
    assert_eq!(manager.processes.get(id).unwrap().state, State::Corrected);
    manager.make_controls();
    let begun = manager.now;
    let mut controls = 0;
    while manager.now < begun + SECONDS * S {
        manager.open(id, Channel::Token);
        manager.apply(Event::TimePassed);
        controls += manager.make_controls();
        manager.now += S / 10;
    }
    // Ten groups a second, beside what one process may cause at once, and two controls for each.
    let most = 2 * (5 * 64 + 10 * usize::try_from(SECONDS).unwrap());
    assert!(controls <= most, "{controls} controls, {most} at most");
    // The last settings are marked too, and nothing of it is left.
    for _ in 0..200 {
        manager.now += S / 10;
        manager.apply(Event::TimePassed);
        controls = manager.make_controls();
    }
    manager.apply(Event::DueEnded);
    assert_eq!((controls, manager.processes.timed().count()), (0, 0));
}
