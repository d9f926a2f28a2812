//! Faults of hook and manager. Each one violates the properties, which proves that they can fail. And what the properties are about happens.

use super::programs::{ANY, ClientProgram, FOUND, NOT_FOUND, Shape};
use super::{Fault, MS, run};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// The same random programs in each run.
fn examples(
    shape: Shape,
    clients: std::ops::RangeInclusive<usize>,
) -> impl Iterator<Item = Vec<ClientProgram>> {
    let (mut runner, strategy) = (TestRunner::deterministic(), shape.clients(clients));
    (0..200).map(move |_| strategy.new_tree(&mut runner).unwrap().current())
}

fn assert_violated(fault: Fault, what: &str) {
    let is_found = |error: String| error.contains(what);
    let mut results = examples(Shape::of(FOUND), 2..=4).map(|programs| run(&programs, fault));
    assert!(results.any(|result| result.is_err_and(is_found)), "{fault:?} is not found");
}

#[test]
fn client_holds_the_gpu_too_long_where_idle_processes_keep_their_grants() {
    assert_violated(Fault::NoEarlyReturn, "without work");
}

#[test]
fn client_holds_the_gpu_too_long_where_no_event_is_recorded_before_waits() {
    assert_violated(Fault::NoEventRecorded, "without work");
}

#[test]
fn client_holds_the_gpu_too_long_where_no_page_shows_that_others_wait() {
    assert_violated(Fault::ContentionUnreported, "without work");
}

#[test]
fn process_waits_where_requests_wait_for_the_end_of_their_own_clients_grant() {
    assert_violated(Fault::SiblingsWait, "a process waits");
}

/// Longest times as idle holder of both kinds, processes that joined a drain, and grants that were not returned in time.
fn reached(shape: Shape) -> (u64, u64, u64, u64) {
    let mut reached = (0, 0, 0, 0);
    for programs in examples(shape, 1..=4) {
        let world = run(&programs, Fault::None).unwrap();
        let (longest, account) = (world.idle_holders.longest, world.account);
        reached.0 = reached.0.max(longest.found_ns);
        reached.1 = reached.1.max(longest.not_found_ns);
        reached.2 += account.joined_drains;
        reached.3 += account.not_returned;
    }
    reached
}

#[test]
fn random_programs_come_near_the_bounds() {
    let (found_ns, ..) = reached(Shape::of(FOUND));
    assert!(found_ns >= MS, "{found_ns}");
    let (_, not_found_ns, _, not_returned) = reached(Shape::of(ANY));
    assert!(not_found_ns >= 2_000 * MS && not_returned > 0, "{not_found_ns} {not_returned}");
    let (_, _, joined_drains, _) = reached(Shape { limits: false, ..Shape::of(NOT_FOUND) });
    assert!(joined_drains >= 10, "{joined_drains}");
}
