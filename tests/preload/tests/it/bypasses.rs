//! Each reason for which the hook passes a call through occurs, is counted, and leaves the program working.

use sluice_hook_core::outcome::Bypass;
use sluice_preload_tests::compiled_programs::{Linking, compiled};
use sluice_preload_tests::{Node, Tenant, TenantOptions, artifacts, shared};

const CLIENTS: &str = "2\nmain 0.5 1.0 8589934592\nrival 0.5 1.0 8589934592\n";

/// Counters of programs/bypass.c ahead of those by reason.
const FIXED: usize = 4;

fn main_tenant(node: &Node, what: &str) -> TenantOptions {
    node.tenant("main", "bypass").arguments(what)
}

fn counters(options: TenantOptions) -> Vec<u64> {
    let ending = options.start().finish().expect_success();
    ending.lines[0].split(' ').map(|counter| counter.parse().unwrap_or(u64::MAX)).collect()
}

/// A tenant whose calls pass for this reason.
fn situation(node: &Node, reason: Bypass) -> TenantOptions {
    let odd_driver =
        || compiled("odd_driver", Linking::Library, &[&artifacts::built().driver.join("libcuda.so.1")]);
    match reason {
        Bypass::Disabled => main_tenant(node, "plain").environment("SLUICE_DISABLE", "1"),
        // Without SLUICE_SOCKET the hook looks in the default directory; without a socket for this GPU there is no manager.
        Bypass::NotManaged => main_tenant(node, "plain").without_environment("SLUICE_SOCKET"),
        Bypass::ManagerGone => {
            main_tenant(node, "plain").environment("SLUICE_SOCKET", node.path().join("absent"))
        }
        Bypass::NotAdmitted => main_tenant(node, "plain").environment("SLUICE_CLIENT", "absent"),
        Bypass::Capture => main_tenant(node, "capture"),
        Bypass::NoContext => main_tenant(node, "contextless"),
        Bypass::Nested => main_tenant(node, "nested").environment("SLUICE_REAL_LIBCUDA", odd_driver()),
        Bypass::UnknownAbi => main_tenant(node, "abi").environment("SLUICE_REAL_LIBCUDA", odd_driver()),
        Bypass::Forked => main_tenant(node, "forked"),
        Bypass::DrainStalled => main_tenant(node, "stalled"),
        Bypass::InternalError => {
            main_tenant(node, "plain").preload_before(&compiled("no_thread", Linking::Library, &[]))
        }
    }
}

#[test]
fn each_bypass_reason_can_occur_and_is_counted() {
    let _lock = shared();
    for reason in Bypass::ALL {
        let node = Node::start(CLIENTS);
        let _rival: Option<Tenant> = (*reason == Bypass::DrainStalled).then(|| {
            let mut rival = node.tenant("rival", "busy").arguments("1000 4").start();
            rival.expect("ready");
            rival
        });
        let counters = counters(situation(&node, *reason));
        assert_eq!(counters.len(), FIXED + Bypass::ALL.len());
        assert!(counters[FIXED + reason.index()] > 0, "{reason:?} was not counted: {counters:?}");
    }
}

#[test]
fn a_governed_program_has_no_bypassed_call() {
    let _lock = shared();
    let node = Node::start(CLIENTS);
    let counters = counters(main_tenant(&node, "plain"));
    let (fixed, bypassed) = counters.split_at(FIXED);
    assert!(fixed[0] >= 10, "launches");
    assert!(fixed[2] >= 1, "grants");
    assert_eq!(fixed[3], 0, "panics");
    assert!(bypassed.iter().all(|count| *count == 0), "{counters:?}");
}

#[test]
fn program_is_governed_after_a_call_that_was_made_before_the_driver_was_initialised() {
    let _lock = shared();
    let node = Node::start(CLIENTS);
    let counters = counters(main_tenant(&node, "early"));
    let (fixed, bypassed) = counters.split_at(FIXED);
    assert!(fixed[2] >= 1, "grants");
    assert_eq!(bypassed[Bypass::NotManaged.index()], 0, "{counters:?}");
}

#[test]
fn settings_are_those_of_the_drivers_initialisation() {
    let _lock = shared();
    let node = Node::start(CLIENTS);
    let counters = counters(main_tenant(&node, "switched"));
    assert_eq!(counters[FIXED + Bypass::Disabled.index()], 0, "{counters:?}");
}

/// Checks that a program in which this library is preloaded gets its tracker, and returns the counters.
fn tracked_with(library: &str) -> Vec<u64> {
    let _lock = shared();
    let node = Node::start(CLIENTS);
    let options = main_tenant(&node, "patient").preload_before(&compiled(library, Linking::Library, &[]));
    let counters = counters(options);
    assert!(counters[2] >= 1, "no grant: {counters:?}");
    counters
}

#[test]
fn threads_of_the_hook_start_in_a_program_with_much_thread_local_storage() {
    let counters = tracked_with("large_tls");
    assert_eq!(counters[FIXED + Bypass::InternalError.index()], 0, "{counters:?}");
}

#[test]
fn the_tracker_starts_when_the_system_has_threads_again() {
    tracked_with("late_thread");
}

/// A write to a file beyond this limit raises SIGXFSZ, also to a memfd.
#[test]
fn program_that_may_write_no_file_is_governed() {
    let _lock = shared();
    let node = Node::start(CLIENTS);
    for limit in ["0", "1"] {
        let shell = format!("ulimit -f {limit}; exec \"$@\"");
        let counters = counters(main_tenant(&node, "plain").through_shell(&shell));
        let (fixed, bypassed) = counters.split_at(FIXED);
        assert!(fixed[2] >= 1, "grants: {counters:?}");
        assert!(bypassed.iter().all(|count| *count == 0), "{counters:?}");
    }
}
