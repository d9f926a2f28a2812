//! The black-box tests of the preemption contract, by number, on the simulated GPU: the program `contract.c`, which runs on a real GPU
//! as well (`tests/gpu/contract.py`). Real processes under the real hook; they check their own results.
//!
//! | number | what | test here, or elsewhere |
//! |---|---|---|
//! | 1, 3 | kernels keep their order, run once, whatever they do to their memory | `kernels_run_once_and_in_order` |
//! | 2 | the same over eight streams with events | `streams_that_wait_for_one_another_keep_their_order` |
//! | 4 | questions are answered, waits last | `questions_are_answered_and_waits_last` |
//! | 5 | what is done after preempt has returned | `after_preempt_only_work_in_flight_completes` |
//! | 6 | submissions return | `submissions_to_a_preempted_stream_return` |
//! | 7, 8 | arguments and sources may be overwritten | `arguments_and_sources_may_be_overwritten` |
//! | 9 | copies to pageable memory return with the data | `a_copy_to_pageable_memory_returns_with_the_data` |
//! | 10 | stream-ordered memory is there at once | `stream_ordered_memory_is_available_at_once` |
//! | 11 | streams end while preempted, and leave nothing | `destroyed_streams_complete_their_work_and_leave_nothing` |
//! | 12 | events end while they wait | `events_may_be_destroyed_while_they_wait` |
//! | 13 | host functions | `host_functions_run_once_and_in_order` |
//! | 14, 15 | captures beside preempted streams, and beside the worker | `a_capture_is_not_affected` |
//! | 16 | legacy, blocking and non-blocking streams | `the_legacy_default_stream_keeps_its_order` |
//! | 17 | per-thread default streams | `sixteen_threads_preempt_their_default_streams` |
//! | 18 | waiting for a stream that is preempted | `waits_for_a_preempted_stream_complete` |
//! | 19 | errors | `errors_are_reported_and_the_process_lives` |
//! | 20 | two contexts (the simulated node has one GPU for a process) | `one_context_does_not_stop_another` |
//! | 21 | the manager  is killed | `a_process_goes_on_when_its_manager_is_killed`; stopped by it: `channel_group_scheduling.rs`, `stopped_processes_run_again_when_the_manager_is_killed` |
//! | 22 | a process that has preempted  is killed | `the_gpu_is_free_again_when_a_process_with_a_preempted_stream_is_killed` |
//! | 26 | an endless kernel at level full | on a real GPU; here a long one: `preemption.rs`, `a_kernel_is_stopped_in_its_middle_and_resumes_...` |
//! | 27 | the cost without preemption | runs here, is measured on a real GPU |
//! | 28 | enabling and disabling again and again | `preemption_is_enabled_and_disabled_again_and_again` |
//! | 29 | freeing memory in another context | `memory_of_another_context_is_freed_meanwhile` |
//! | 30 | cooperative launches; clusters on a real GPU | `cooperative_launches_run_once` |
//! | 31, our own | a kernel is loaded, and one with more local memory launched, beside a stream that waits at a gate: drivers wait for the whole context then | `a_kernel_is_loaded_beside_a_stopped_stream` |

use nix::sys::signal::Signal;
use sluice_preload_tests::{Node, TenantOptions, shared};

fn node() -> Node {
    Node::with("1\nmain 0.5 1.0 8589934592\n").without_manager().start()
}

fn contract(node: &Node, number: u32, level: u32) -> TenantOptions {
    node.tenant("main", "contract").arguments(&format!("{number} {level}"))
}

fn at(levels: &[u32], number: u32) {
    let _lock = shared();
    let node = node();
    for level in levels {
        contract(&node, number, *level).start().finish().expect_success();
    }
}

/// At level full the result depends on other users of the context, so these tests use the other two levels.
fn at_both_levels(number: u32) {
    at(&[0, 1], number);
}

fn at_each_level(number: u32) {
    at(&[0, 1, 2], number);
}

#[test]
fn kernels_run_once_and_in_order() {
    at_each_level(1);
}

#[test]
fn streams_that_wait_for_one_another_keep_their_order() {
    at_each_level(2);
}

#[test]
fn questions_are_answered_and_waits_last() {
    at_both_levels(4);
}

#[test]
fn after_preempt_only_work_in_flight_completes() {
    at_both_levels(5);
}

#[test]
fn submissions_to_a_preempted_stream_return() {
    at_both_levels(6);
}

#[test]
fn arguments_and_sources_may_be_overwritten() {
    at_both_levels(7);
}

#[test]
fn a_copy_to_pageable_memory_returns_with_the_data() {
    at_both_levels(9);
}

#[test]
fn stream_ordered_memory_is_available_at_once() {
    at_both_levels(10);
}

#[test]
fn destroyed_streams_complete_their_work_and_leave_nothing() {
    at_both_levels(11);
}

#[test]
fn events_may_be_destroyed_while_they_wait() {
    at_both_levels(12);
}

#[test]
fn host_functions_run_once_and_in_order() {
    at_each_level(13);
}

#[test]
fn a_capture_is_not_affected() {
    at_each_level(14);
}

#[test]
fn the_legacy_default_stream_keeps_its_order() {
    at_both_levels(16);
}

#[test]
fn sixteen_threads_preempt_their_default_streams() {
    at_both_levels(17);
}

#[test]
fn waits_for_a_preempted_stream_complete() {
    at_both_levels(18);
}

#[test]
fn errors_are_reported_and_the_process_lives() {
    at_both_levels(19);
}

#[test]
fn one_context_does_not_stop_another() {
    at_both_levels(20);
}

#[test]
fn launches_are_timed_with_and_without_preemption() {
    at_both_levels(27);
}

#[test]
fn preemption_is_enabled_and_disabled_again_and_again() {
    at_each_level(28);
}

#[test]
fn memory_of_another_context_is_freed_meanwhile() {
    at_both_levels(29);
}

#[test]
fn cooperative_launches_run_once() {
    at_each_level(30);
}

#[test]
fn a_kernel_is_loaded_beside_a_stopped_stream() {
    at_both_levels(31);
}

/// The simulated driver refuses destroyed handles. A real driver follows them, so the strict simulator ends the process after a delay.
#[test]
fn no_destroyed_handle_is_used() {
    let _lock = shared();
    let node = node();
    for number in [1, 2, 11, 12, 13, 28, 30] {
        for level in [0, 1, 2] {
            let strict = contract(&node, number, level).environment("SLUICE_SIM_STRICT", "20");
            strict.start().finish().expect_success();
        }
    }
}

#[test]
fn a_process_goes_on_when_its_manager_is_killed() {
    let _lock = shared();
    let mut node = Node::start("1\nmain 0.5 1.0 8589934592\n");
    let mut tenant = contract(&node, 21, 1).start();
    tenant.expect("ready");
    tenant.ask("go");
    node.kill_manager();
    let seen = node.row(&tenant).kernels_completed;
    tenant.ask("go");
    node.when_completed(&tenant, seen + 20);
    tenant.finish().expect_success();
}

#[test]
fn the_gpu_is_free_again_when_a_process_with_a_preempted_stream_is_killed() {
    let _lock = shared();
    let node = node();
    for level in [0, 1, 2] {
        let mut holder = contract(&node, 22, level).start();
        holder.expect("preempted");
        let mut other = contract(&node, 21, level).start();
        other.expect("ready");
        other.ask("go");
        holder.signal(Signal::SIGKILL);
        assert_eq!(holder.ending().signal(), Some(Signal::SIGKILL as i32));
        let pid = holder.pid();
        node.when("the killed process's memory to be free", |ledger| {
            let row = ledger.processes.iter().find(|row| row.pid == pid)?;
            (row.memory_bytes == 0).then_some(())
        });
        let seen = node.row(&other).kernels_completed;
        other.ask("go");
        node.when_completed(&other, seen + 20);
        other.finish().expect_success();
    }
}
