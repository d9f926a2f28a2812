//! Stream-ordered memory: a pool is charged by what it has on the GPU, not by what the program holds of it.

use sluice_preload_tests::compiled_programs::{Linking, compiled};
use sluice_preload_tests::{MIB, Node, Tenant, shared};

const LIMIT: u64 = 1024 * MIB;
const BIG: u64 = 900 * MIB;

fn node() -> Node {
    Node::start(&format!("1\nmain 0.5 1.0 {LIMIT}\n"))
}

fn program(node: &Node, case: &str) -> Tenant {
    node.tenant("main", "pools").arguments(case).start()
}

/// The line that the program prints for a case.
fn printed(case: &str) -> String {
    let _lock = shared();
    let node = node();
    let mut program = program(&node, case);
    let line = program.line();
    program.finish().expect_success();
    line
}

#[test]
fn memory_freed_behind_running_work_stays_charged() {
    let _lock = shared();
    let node = node();
    let mut program = program(&node, "live");
    assert_eq!(program.line(), "1", "allocations of 900 MiB that are live at once under 1 GiB");
    program.finish().expect_success();
}

#[test]
fn stream_reuses_the_memory_that_it_has_freed_without_waits_or_trims() {
    assert_eq!(printed("reuse"), "8 0");
}

/// The driver makes the pool larger instead, because the memory is still in use.
#[test]
fn allocation_that_makes_a_pool_exceed_the_limit_waits_for_the_freed_memory() {
    assert_eq!(
        printed("other"),
        format!("0 {}", BIG / MIB),
        "CUDA_SUCCESS, and the pool is within the limit"
    );
}

/// The first allocation makes the pool larger and is refused, the second one is refused before the driver is called.
#[test]
fn pool_above_the_limit_does_not_grow_further_while_its_streams_are_held() {
    assert_eq!(printed("held"), format!("2 2 {}", 2 * BIG / MIB), "CUDA_ERROR_OUT_OF_MEMORY twice");
}

#[test]
fn memory_that_a_pool_keeps_is_charged_until_the_pool_is_trimmed() {
    assert_eq!(printed("retained"), format!("{} {LIMIT}", LIMIT - BIG));
}

#[test]
fn memory_that_a_pool_keeps_is_given_back_before_an_allocation_is_refused() {
    assert_eq!(printed("needed"), (LIMIT - BIG).to_string());
}

#[test]
fn captured_allocation_that_is_never_launched_is_not_charged() {
    assert_eq!(printed("captured"), LIMIT.to_string());
}

#[test]
fn memory_of_a_launched_graph_is_charged() {
    assert_eq!(printed("launched"), (LIMIT - BIG).to_string());
}

#[test]
fn memory_of_a_launched_graph_with_an_added_allocation_is_charged() {
    assert_eq!(printed("added"), format!("{} {}", LIMIT - BIG / 2, LIMIT - BIG));
}

#[test]
fn memory_of_a_host_pool_is_not_charged() {
    assert_eq!(printed("host"), LIMIT.to_string());
}

#[test]
fn memory_of_a_destroyed_pool_is_charged_until_it_is_freed() {
    assert_eq!(printed("destroyed"), format!("{} {LIMIT}", LIMIT - BIG));
}

#[test]
fn memory_of_a_pool_may_be_freed_as_plain_memory() {
    assert_eq!(printed("plain"), LIMIT.to_string());
}

/// The driver's `CUDA_SUCCESS` and `CUDA_ERROR_OUT_OF_MEMORY`, while the memory is still in use and afterwards.
const REFUSED_THEN_GRANTED: &str = "2 0";

#[test]
fn memory_of_a_destroyed_pool_stays_charged_until_the_gpu_has_reached_its_free() {
    assert_eq!(printed("ending"), REFUSED_THEN_GRANTED);
}

#[test]
fn memory_freed_in_a_stream_stays_charged_until_the_gpu_has_reached_the_free() {
    assert_eq!(printed("behind"), REFUSED_THEN_GRANTED);
}

#[test]
fn memory_freed_in_a_threads_own_default_stream_stays_charged_while_streams_are_preempted() {
    assert_eq!(printed("own"), REFUSED_THEN_GRANTED);
}

#[test]
fn memory_freed_in_a_preempted_stream_stays_charged_until_the_free_was_made() {
    assert_eq!(printed("waiting"), REFUSED_THEN_GRANTED);
}

#[test]
fn memory_of_a_destroyed_pool_stays_charged_while_its_free_waits_in_a_preempted_stream() {
    assert_eq!(printed("emptied"), REFUSED_THEN_GRANTED);
}

/// On an H100 (driver 13.0) a reset leaves the pools and their memory as they are.
#[test]
fn memory_of_pools_outlives_the_primary_context_and_stays_charged() {
    assert_eq!(printed("reset"), "424 424");
}

#[test]
fn waits_ask_for_no_sizes_unless_memory_was_freed_or_a_graph_was_launched() {
    assert_eq!(printed("quiet"), "0 0");
}

/// The second allocation makes the pool larger than the limit. The driver gives that memory back once a wait has shown that it was freed.
#[test]
fn pool_above_the_limit_gives_back_what_it_cannot_use() {
    assert_eq!(printed("fragments"), "0 0 700", "CUDA_SUCCESS twice, and the pool has what is allocated");
}

/// PyTorch with `cudaMallocAsync` allocates some hundred times in each step of a training: a round trip each would triple the step's time.
#[test]
fn memory_that_a_pool_keeps_is_used_again_without_asking_the_manager() {
    let _lock = shared();
    let node = node();
    let counter = compiled("count_sends", Linking::Library, &[]);
    let mut program = node.tenant("main", "pools").arguments("steady").preload_before(&counter).start();
    assert_eq!(
        program.line(),
        "0 1",
        "messages for 100 allocations from the pool, and for one outside of it"
    );
    program.finish().expect_success();
}
