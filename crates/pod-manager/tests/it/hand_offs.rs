//! Hand-offs of the token at known times: which processes know the time, and that polling around it changes no order.

use crate::support::hook::Hook;
use crate::support::{CLIENTS, MS, World, until};
use sluice_comm::page::{ReturnedGrant, report};
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
    until("the first client is granted again", || a.page().deadline_ns() != 0);
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

#[test]
fn grant_after_a_second_attach_is_not_ended_by_a_return_on_the_kept_page() {
    let world = polling(CLIENTS);
    let (mut a, mut b) = world.holder_and_waiter();
    world.advance(10 * MS);
    // The manager does not poll, so this return is not read before the process attaches again.
    a.report().return_grant(RETURNED);
    a.attach_token_again(&world.socket(), "be-a");
    assert_eq!(b.granted(), 50.0);
    a.want();
    // Longer than a short burst, with which it would be granted beside the other.
    world.advance(10 * MS);
    b.give_back(0.0);
    assert_eq!(a.granted(), 50.0);
    b.want();
    world.settle();
    world.advance(50 * MS);
    world.settle();
    assert_ne!(a.page().deadline_ns(), 0, "the new grant was not returned");
    a.give_back(50.0);
    assert_eq!(b.granted(), 50.0);
}

#[test]
fn yield_after_a_second_attach_counts_although_a_return_was_read_from_the_kept_page() {
    let world = polling(CLIENTS);
    let (mut a, mut b) = world.holder_and_waiter();
    world.advance(50 * MS);
    a.report().return_grant(RETURNED);
    assert_eq!(b.granted(), 50.0);
    // The YIELD of that return is never sent.
    a.attach_token_again(&world.socket(), "be-a");
    a.want();
    b.give_back(0.0);
    assert_eq!(a.granted(), 50.0, "a whole grant");
    a.give_back(1.0);
    until("the grant ends", || a.page().deadline_ns() == 0);
}

/// Writes this into the words of the last return, and then the count of returns.
fn write_return(process: &Hook, count: u64, values: u64) {
    for word in [report::RETURNED_USED_NS, report::RETURNED_OVERUSE_NS, report::RETURNED_REQUEST] {
        process.write_report(word, values);
    }
    process.write_report(report::RETURNS, count);
}

#[test]
fn process_whose_count_of_returns_runs_ahead_loses_its_own_grant_once() {
    for (count, values) in [(1 << 40, 0), (u64::MAX, 0), (u64::MAX, 1), (u64::MAX, u64::MAX)] {
        let world = polling(CLIENTS);
        let (mut a, mut b) = world.holder_and_waiter();
        world.advance(50 * MS);
        write_return(&a, count, values);
        assert_eq!(b.granted(), 50.0);
        assert_eq!(a.page().deadline_ns(), 0, "it loses its grant");
        a.want();
        world.settle();
        // Longer than a short burst, with which it would be granted beside the other.
        world.advance(10 * MS);
        b.give_back(0.0);
        assert!(a.granted() > 0.0);
        b.want();
        world.settle();
        let deadline = a.page().deadline_ns();
        world.advance(50 * MS);
        assert!(b.token.is_silent());
        assert_eq!(a.page().deadline_ns(), deadline, "it sent no YIELD, and loses no second grant");
        // The first is that of the return on the page.
        a.give_back(0.0);
        a.give_back(50.0);
        assert_eq!(b.granted(), 50.0);
    }
}

#[test]
fn yield_counts_after_the_count_of_returns_has_decreased() {
    let world = polling(CLIENTS);
    let (mut a, mut b) = world.holder_and_waiter();
    world.advance(50 * MS);
    write_return(&a, 5, 0);
    assert_eq!(b.granted(), 50.0);
    write_return(&a, 0, 0);
    // It belongs to the return on the page.
    a.give_back(49.0);
    a.want();
    world.settle();
    // Longer than a short burst, with which it would be granted beside the other.
    world.advance(10 * MS);
    b.give_back(0.0);
    assert_eq!(a.granted(), 50.0);
    b.want();
    world.settle();
    world.advance(50 * MS);
    world.settle();
    assert_ne!(a.page().deadline_ns(), 0, "its page reports no return");
    a.give_back(50.0);
    assert_eq!(b.granted(), 50.0);
}

#[test]
fn yield_counts_after_an_attach_with_the_largest_count_of_returns() {
    let world = polling(CLIENTS);
    let (mut a, mut b) = world.holder_and_waiter();
    write_return(&a, u64::MAX, u64::MAX);
    a.attach_token_again(&world.socket(), "be-a");
    assert_eq!(b.granted(), 50.0);
    for _ in 0..2 {
        a.want();
        world.settle();
        // Longer than a short burst, with which it would be granted beside the other.
        world.advance(10 * MS);
        b.give_back(0.0);
        assert_eq!(a.granted(), 50.0);
        b.want();
        world.settle();
        world.advance(10 * MS);
        a.give_back(0.0);
        assert_eq!(b.granted(), 50.0);
    }
}
