//! Other threads use addresses, contexts and pools, or fork, before a call of the driver has returned.

use sluice_preload_tests::compiled_programs::{Linking, compiled};
use sluice_preload_tests::{Node, TenantOptions, artifacts, shared};

/// The program programs/races.c with its driver.
fn racing(node: &Node, race: &str) -> TenantOptions {
    let driver =
        compiled("racing_driver", Linking::Library, &[&artifacts::built().driver.join("libcuda.so.1")]);
    node.tenant("main", "races").arguments(race).environment("SLUICE_REAL_LIBCUDA", driver)
}

fn node_with_1_gib() -> Node {
    Node::start("1\nmain 0.5 1.0 1073741824\n")
}

fn node() -> Node {
    Node::start("1\nmain 0.5 1.0 8589934592\n")
}

/// What the program prints after the race: MiB in use, if not stated otherwise.
fn in_use_after(race: &str) -> String {
    let _lock = shared();
    racing(&node(), race).start().finish().expect_success().lines.concat()
}

#[test]
fn memory_that_is_mapped_where_other_memory_was_just_unmapped_stays_charged() {
    assert_eq!(in_use_after("unmap"), "32");
}

#[test]
fn memory_of_a_primary_context_is_released_although_the_context_is_retained_again_at_once() {
    assert_eq!(in_use_after("release"), "0");
}

#[test]
fn thread_allocates_from_a_pool_while_the_driver_tells_another_one_its_size() {
    assert_eq!(in_use_after("allocate"), "allocated");
}

#[test]
fn pool_does_not_end_while_the_driver_is_asked_for_its_size() {
    assert_eq!(in_use_after("destroy"), "0");
}

#[test]
fn memory_of_a_thread_that_is_cancelled_while_it_allocates_is_released_when_it_is_freed() {
    assert_eq!(in_use_after("cancel"), "0");
}

/// The allocation is refused, because the hook does not wait for a stream while a capture is open.
#[test]
fn capture_that_begins_while_an_allocation_waits_for_its_stream_succeeds() {
    let _lock = shared();
    let node = node_with_1_gib();
    let lines = racing(&node, "capture").start().finish().expect_success().lines;
    assert_eq!(lines, ["2 0"], "CUDA_ERROR_OUT_OF_MEMORY, and CUDA_SUCCESS of the capture's end");
}

#[test]
fn child_forked_while_an_unmanaged_parent_makes_its_primary_context_does_not_hang() {
    let _lock = shared();
    let node = node();
    let unmanaged = racing(&node, "fork").without_environment("SLUICE_SOCKET");
    assert_eq!(unmanaged.start().finish().expect_success().lines.concat(), "ended");
}
