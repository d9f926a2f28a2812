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
