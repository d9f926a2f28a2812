//! Other threads use an address or a context again before the driver's call that ended its former use has returned.

use sluice_preload_tests::compiled_programs::{Linking, compiled};
use sluice_preload_tests::{Node, artifacts, shared};

/// MiB in use, as programs/races.c sees it, after the race.
fn in_use_after(race: &str) -> String {
    let _lock = shared();
    let node = Node::start("1\nmain 0.5 1.0 8589934592\n");
    let driver =
        compiled("racing_driver", Linking::Library, &[&artifacts::built().driver.join("libcuda.so.1")]);
    let tenant = node.tenant("main", "races").arguments(race).environment("SLUICE_REAL_LIBCUDA", driver);
    tenant.start().finish().expect_success().lines.concat()
}

#[test]
fn memory_that_is_mapped_where_other_memory_was_just_unmapped_stays_charged() {
    assert_eq!(in_use_after("unmap"), "32");
}

#[test]
fn memory_of_a_primary_context_is_released_although_the_context_is_retained_again_at_once() {
    assert_eq!(in_use_after("release"), "0");
}
