use super::*;
use crate::fakes::{FakeLink, ManualClock};
use crate::thread_state::ThreadState;

#[test]
fn the_gate_is_open_until_the_tick_of_the_deadline() {
    let (gate, clock, link) = (LaunchGate::default(), ManualClock::default(), FakeLink::default());
    link.set_deadline(1000);
    gate.open();
    clock.set(999);
    assert!(gate.is_open(&clock, &link));
    clock.set(1000);
    assert!(!gate.is_open(&clock, &link));
}

#[test]
fn returned_grant_closes_the_gate_although_the_page_has_a_deadline() {
    let (gate, clock, link) = (LaunchGate::default(), ManualClock::default(), FakeLink::default());
    link.set_deadline(u64::MAX);
    gate.open();
    assert!(gate.is_open(&clock, &link));
    gate.close();
    assert!(!gate.is_open(&clock, &link));
}

#[test]
fn launch_is_in_flight_until_it_leaves() {
    let (gate, shard) = (LaunchGate::default(), ThreadState::empty().shard());
    gate.enter(shard);
    assert!(gate.in_flight());
    gate.leave(shard);
    assert!(!gate.in_flight());
    assert_eq!(gate.launches(), 1);
}

#[test]
fn streams_must_be_noted_again_after_the_gate_opened_or_closed() {
    let gate = LaunchGate::default();
    let first = gate.epoch();
    gate.open();
    let second = gate.epoch();
    gate.close();
    assert!(first < second && second < gate.epoch());
}
