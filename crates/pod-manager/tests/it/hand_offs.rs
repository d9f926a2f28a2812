//! Hand-offs of the token at known times: which processes know the time, and that polling around it changes no order.

use crate::support::hook::Hook;
use crate::support::{CLIENTS, MS, World};
use sluice_comm::page::ReturnedGrant;
use std::time::Duration;

/// Time around a deadline in which the manager polls.
const AROUND: Duration = Duration::from_micros(125);

const THREE: &str = "clients:
  - { name: be-a, request: 0.3, limit: 1.0, memory: 1Gi }
  - { name: be-b, request: 0.3, limit: 1.0, memory: 1Gi }
  - { name: be-c, request: 0.3, limit: 1.0, memory: 1Gi }
";

fn polling(clients: &str) -> World {
    World::with(clients, |config| config.busy_poll = AROUND)
}

/// The times of the next hand-off on these processes' pages.
fn shown<const N: usize>(processes: [&Hook; N]) -> [u64; N] {
    processes.map(|process| process.page().hand_off_ns())
}

#[test]
fn holder_and_next_client_know_when_the_token_passes() {
    let world = polling(THREE);
    let (mut a, mut b, mut c) = (world.process("be-a"), world.process("be-b"), world.process("be-c"));
    a.want();
    a.granted();
    world.settle();
    assert_eq!(shown([&a, &b, &c]), [0, 0, 0], "no client waits");
    let first = a.page().deadline_ns();
    b.want();
    world.settle();
    assert_eq!(shown([&a, &b, &c]), [first, first, 0]);
    c.want();
    world.settle();
    assert_eq!(shown([&a, &b, &c]), [first, first, 0], "a later client is not the next one");
    world.clock.advance(50 * MS);
    a.give_back(50.0);
    b.granted();
    world.settle();
    let second = b.page().deadline_ns();
    assert!(second > first);
    assert_eq!(shown([&a, &b, &c]), [0, second, second]);
}

#[test]
fn token_passes_while_the_manager_polls() {
    let world = polling(CLIENTS);
    let (mut a, mut b) = world.holder_and_waiter();
    // The clock stands still within the time that is polled.
    world.advance(50 * MS - 100_000);
    assert!(b.token.is_silent());
    a.give_back(49.9);
    assert_eq!(b.granted(), 50.0);
    assert_eq!(a.page().deadline_ns(), 0);
}

#[test]
fn grant_that_is_returned_late_is_waited_for_without_polling() {
    let world = polling(CLIENTS);
    let (mut a, mut b) = world.holder_and_waiter();
    world.advance(60 * MS);
    assert_eq!(shown([&a, &b]), [0, 0]);
    a.give_back(60.0);
    assert_eq!(b.granted(), 50.0);
}

#[test]
fn manager_that_does_not_poll_shows_no_time() {
    let world = World::new();
    let (a, b) = world.holder_and_waiter();
    assert_eq!(shown([&a, &b]), [0, 0]);
}

/// What a process writes that has used 49 ms and wants to continue.
const RETURNED: ReturnedGrant = ReturnedGrant { used_ns: 49 * MS, overuse_ns: 0, next_burst_ns: Some(0) };

#[test]
fn return_on_the_page_is_read_before_its_frames_and_counts_once() {
    let world = polling(CLIENTS);
    let (mut a, mut b) = world.holder_and_waiter();
    world.advance(50 * MS);
    a.report().return_grant(RETURNED);
    assert_eq!(b.granted(), 50.0, "the next client is granted before the frames");
    assert_eq!(a.page().deadline_ns(), 0);
    // The next client returns at once and wants nothing more, so the first one is granted again before its frames are read.
    b.report().return_grant(ReturnedGrant { used_ns: 0, next_burst_ns: None, ..RETURNED });
    b.give_back(0.0);
    while a.page().deadline_ns() == 0 {
        world.settle();
    }
    let deadline = a.page().deadline_ns();
    a.give_back(49.0);
    a.want();
    assert_eq!(a.granted(), 50.0, "the request is answered");
    world.settle();
    assert_eq!(a.page().deadline_ns(), deadline, "the frame of the first grant does not end the second one");
    a.give_back(0.0);
    world.settle();
    assert_eq!(a.page().deadline_ns(), 0, "its own frame does");
}

#[test]
fn return_on_the_page_of_a_process_that_holds_nothing_changes_nothing() {
    let world = polling(CLIENTS);
    let (a, mut b) = world.holder_and_waiter();
    for _ in 0..3 {
        b.report().return_grant(RETURNED);
    }
    world.advance(50 * MS);
    world.settle();
    assert!(b.token.is_silent());
    assert_ne!(a.page().deadline_ns(), 0, "the holder keeps its grant");
    a.report().return_grant(RETURNED);
    assert_eq!(b.granted(), 50.0);
}

#[test]
fn returns_are_read_from_frames_while_the_manager_does_not_poll() {
    let world = polling(CLIENTS);
    let (mut a, mut b) = world.holder_and_waiter();
    world.advance(10 * MS);
    a.report().return_grant(RETURNED);
    world.settle();
    assert!(b.token.is_silent());
    a.give_back(9.0);
    assert_eq!(b.granted(), 50.0);
}
