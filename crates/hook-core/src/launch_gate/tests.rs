use std::cell::Cell;

use super::*;
use crate::fakes::{FakeLink, ManualClock};
use crate::thread_state::ThreadState;

#[test]
fn the_gate_is_open_until_the_tick_of_the_deadline() {
    let (gate, clock, link) = (LaunchGate::closed(0), ManualClock::default(), FakeLink::default());
    link.set_deadline(1000);
    gate.open();
    clock.set(999);
    assert!(gate.is_open(&clock, &link));
    clock.set(1000);
    assert!(!gate.is_open(&clock, &link));
}

#[test]
fn returned_grant_closes_the_gate_although_the_page_has_a_deadline() {
    let (gate, clock, link) = (LaunchGate::closed(0), ManualClock::default(), FakeLink::default());
    link.set_deadline(u64::MAX);
    gate.open();
    assert!(gate.is_open(&clock, &link));
    gate.close();
    assert!(!gate.is_open(&clock, &link));
}

#[test]
fn launch_is_in_flight_until_it_leaves() {
    let (gate, shard) = (LaunchGate::closed(0), ThreadState::empty().shard());
    gate.enter(shard);
    assert!(gate.in_flight());
    gate.leave(shard);
    assert!(!gate.in_flight());
    assert_eq!(gate.launches(), 1);
}

#[test]
fn streams_must_be_noted_again_after_the_gate_opened_or_closed() {
    let gate = LaunchGate::closed(0);
    let first = gate.epoch();
    gate.open();
    let second = gate.epoch();
    gate.close();
    assert!(first < second && second < gate.epoch());
}

/// A clock that must not be read.
struct UnreadClock;

impl Clock for UnreadClock {
    fn spin(&self) {}

    fn now_ns(&self) -> u64 {
        panic!("the clock is read")
    }

    fn ticks(&self) -> u64 {
        panic!("the counter is read")
    }

    fn pause(&self, _ns: u64) {}

    fn can_order_all_threads(&self) -> bool {
        false
    }

    fn order_all_threads(&self) -> bool {
        true
    }
}

#[test]
fn launch_under_an_unlimited_grant_reads_no_clock() {
    let (gate, link) = (LaunchGate::closed(0), FakeLink::default());
    link.set_deadline(u64::MAX);
    gate.open();
    for by_ticks in [true, false] {
        gate.set_deadline_in_ticks(by_ticks);
        assert!(gate.is_open(&UnreadClock, &link));
        assert!(gate.is_open_to(&ThreadState::empty(), &UnreadClock, &link));
    }
}

/// A clock whose readings are counted.
#[derive(Default)]
struct CountedClock(ManualClock, Cell<u32>);

impl CountedClock {
    fn set(&self, now: u64) {
        self.0.set(now);
    }
}

impl Clock for CountedClock {
    fn spin(&self) {}

    fn now_ns(&self) -> u64 {
        self.1.set(self.1.get() + 1);
        self.0.now_ns()
    }

    fn ticks(&self) -> u64 {
        self.1.set(self.1.get() + 1);
        self.0.ticks()
    }

    fn pause(&self, _ns: u64) {}

    fn can_order_all_threads(&self) -> bool {
        false
    }

    fn order_all_threads(&self) -> bool {
        true
    }
}

/// An open gate whose deadline is 50 ms ahead, and the clock at the begin of the grant.
fn open_gate() -> (LaunchGate, CountedClock, FakeLink, ThreadState) {
    let (gate, link) = (LaunchGate::closed(0), FakeLink::default());
    link.set_deadline(50_000_000);
    gate.open();
    (gate, CountedClock::default(), link, ThreadState::empty())
}

/// How many of 1,000 launches pass one after another before one is refused.
fn passing_launches(gate: &LaunchGate, clock: &CountedClock, link: &FakeLink, thread: &ThreadState) -> usize {
    (0..1000).take_while(|_| gate.is_open_to(thread, clock, link)).count()
}

#[test]
fn one_launch_of_sixteen_reads_the_clock_while_the_deadline_is_far_ahead() {
    for by_ticks in [true, false] {
        let (gate, clock, link, thread) = open_gate();
        gate.set_deadline_in_ticks(by_ticks);
        assert_eq!(passing_launches(&gate, &clock, &link, &thread), 1000);
        assert_eq!(clock.1.get(), 63, "by ticks: {by_ticks}");
    }
}

#[test]
fn each_launch_shortly_before_the_deadline_reads_the_clock() {
    let (gate, clock, link, thread) = open_gate();
    clock.set(49_000_000);
    assert_eq!(passing_launches(&gate, &clock, &link, &thread), 1000);
    assert_eq!(clock.1.get(), 1000);
    clock.set(50_000_000);
    assert!(!gate.is_open_to(&thread, &clock, &link));
}

#[test]
fn at_most_fifteen_launches_of_a_thread_pass_after_the_deadline_if_nothing_closes_the_gate() {
    let (gate, clock, link, thread) = open_gate();
    assert!(gate.is_open_to(&thread, &clock, &link));
    clock.set(50_000_000);
    assert_eq!(passing_launches(&gate, &clock, &link, &thread), 15);
    assert_eq!(passing_launches(&gate, &clock, &link, &thread), 0, "the refused launch tries again");
    assert_eq!(passing_launches(&gate, &clock, &link, &ThreadState::empty()), 0, "another thread");
}

#[test]
fn gate_that_closes_refuses_the_next_launch_although_its_deadline_was_far_ahead() {
    let (gate, clock, link, thread) = open_gate();
    assert!(gate.is_open_to(&thread, &clock, &link));
    gate.close();
    assert!(!gate.is_open_to(&thread, &clock, &link));
}

#[test]
fn launch_reads_the_clock_after_the_manager_has_changed_the_deadline() {
    let (gate, clock, link, thread) = open_gate();
    clock.set(10_000_000);
    for changed in [0, 5_000_000] {
        link.set_deadline(50_000_000);
        assert!(gate.is_open_to(&thread, &clock, &link));
        link.set_deadline(changed);
        assert!(!gate.is_open_to(&thread, &clock, &link), "deadline {changed}");
    }
}

#[test]
fn launches_are_counted_in_own_and_shared_shards_with_and_without_the_drains_order() {
    let gate = LaunchGate::closed(0);
    let shards = [1, SHARDS - 1, SHARDS, 2 * SHARDS - 1];
    let in_flight = |gate: &LaunchGate| {
        shards.iter().for_each(|shard| gate.enter(*shard));
        assert!(gate.in_flight());
        // A launch may end after the order became possible.
        gate.set_ordered_by_drain(true);
        shards.iter().for_each(|shard| gate.leave(*shard));
        !gate.in_flight()
    };
    assert!(in_flight(&gate), "from locked to plain stores");
    assert!(in_flight(&gate), "with plain stores");
}

#[test]
fn only_the_first_threads_have_a_shard_of_their_own() {
    // Each of these threads makes its first call here, so the numbers of all of them differ.
    let shards: Vec<_> = (0..3 * SHARDS).map(|_| ThreadState::empty().shard()).collect();
    let mut own: Vec<_> = shards.iter().filter(|shard| **shard < SHARDS).collect();
    let all = own.len();
    own.sort_unstable();
    own.dedup();
    assert_eq!(own.len(), all, "each shard has one thread");
    assert!(shards.iter().all(|shard| *shard < 2 * SHARDS));
}
