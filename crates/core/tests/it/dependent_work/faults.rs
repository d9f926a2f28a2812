//! Faults of hook and manager. Each one violates the properties, which proves that they can fail. And what the properties are about happens.

use super::programs::{ANY, ClientProgram, FOUND, Limits, OF_KERNELS, Shape, Wait};
use super::waiting_commands::PAUSE_NS;
use super::{Fault, MS, US, run, run_found, waiting_by_empty_stream};
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

fn empty_streams_hold_the_gpu(fault: Fault) -> bool {
    let (mut runner, strategy) = (TestRunner::deterministic(), waiting_by_empty_stream());
    let mut drawn = (0..50).map(|_| strategy.new_tree(&mut runner).unwrap().current());
    let is_found = |error: String| error.contains("without work");
    drawn.any(|programs| run_found(&programs, fault).is_err_and(is_found))
}

#[test]
fn waits_by_empty_streams_hold_the_gpu_where_the_drain_waits_for_them() {
    assert!(empty_streams_hold_the_gpu(Fault::DrainWaitsForCommands));
}

#[test]
fn waits_by_empty_streams_hold_the_gpu_where_launches_stand_behind_them() {
    assert!(empty_streams_hold_the_gpu(Fault::LaunchesWaitForNoCommand));
}

/// The page keeps that another client wants the GPU after the early return of the grant, so the launch waits for the command.
#[test]
fn wait_by_empty_stream_holds_no_grant_where_the_grant_was_returned_before_the_launch_began() {
    let holds = |later_ns| {
        let times = (10 * MS, 60 * MS, later_ns);
        let ranks = ClientProgram::waiting_by_empty_stream((Wait::StreamThenKernel, 1), times);
        run_found(&[ranks, ClientProgram::saturating(0, MS, 1_000)], Fault::None).is_err()
    };
    assert!(!holds(400 * US) && !holds(2 * MS) && !holds(20 * MS));
}

/// After a command that took longer than a launch waits, launches wait for no command for 10 s, and then they do again.
#[test]
fn launches_wait_for_commands_again_after_a_pause() {
    let ranks = ClientProgram::waiting_by_empty_stream((Wait::StreamThenKernel, 100), (MS, 300 * MS, 0));
    let world = run(&[ranks, ClientProgram::saturating(0, 5 * MS, 5_000)], Fault::None).unwrap();
    let ended = world.account.first_client_ended.unwrap();
    let (waits, timeouts) = world.launches_behind_commands();
    assert!(waits == timeouts && timeouts >= 2, "{waits} {timeouts}");
    assert!(timeouts <= 1 + ended / PAUSE_NS, "{timeouts} in {ended} ns");
}

#[derive(Debug, Default)]
struct Reached {
    /// Longest times as idle holder.
    found_ns: u64,
    not_found_ns: u64,
    /// Processes that joined a drain, and grants that were not returned in time.
    joined_drains: u64,
    not_returned: u64,
    /// Launches that waited for a command, and those of them for which it did not end in time.
    behind_commands: u64,
    timeouts: u64,
}

fn reached(shape: Shape) -> Reached {
    let mut reached = Reached::default();
    for programs in examples(shape, 1..=4) {
        let world = run(&programs, Fault::None).unwrap();
        let (longest, account) = (world.idle_holders.longest, world.account);
        reached.found_ns = reached.found_ns.max(longest.found_ns);
        reached.not_found_ns = reached.not_found_ns.max(longest.not_found_ns);
        reached.joined_drains += account.joined_drains;
        reached.not_returned += account.not_returned;
        let (behind_commands, timeouts) = world.launches_behind_commands();
        reached.behind_commands += behind_commands;
        reached.timeouts += timeouts;
    }
    reached
}

#[test]
fn random_programs_come_near_the_bounds() {
    let found = reached(Shape::of(FOUND));
    assert!(found.found_ns >= MS, "{found:?}");
    let any = reached(Shape::of(ANY));
    assert!(any.not_found_ns >= 2_000 * MS && any.not_returned > 0, "{any:?}");
    assert!(any.behind_commands >= 10 && any.timeouts > 0, "{any:?}");
    let of_kernels = reached(Shape { limits: Limits::None, ..Shape::of(OF_KERNELS) });
    assert!(of_kernels.joined_drains >= 5, "{of_kernels:?}");
}
