//! Every kind of driver lookup leads to the hook, and other lookups are not changed.

use sluice_preload_tests::compiled_programs::{Linking, compiled};
use sluice_preload_tests::{Ending, Node, TenantOptions, shared};

const ONE: &str = "1\nmain 0.5 1.0 8589934592\n";

fn run(options: TenantOptions) -> Ending {
    options.start().finish().expect_success()
}

fn grants(node: &Node) -> f64 {
    node.metric("sluice_grants_total", "main")
}

/// "WAY NAME LIBRARY SYMBOL" lines of programs/late.c.
fn answers(ending: &Ending) -> Vec<Vec<&str>> {
    ending.lines.iter().map(|line| line.split(' ').collect()).collect()
}

#[test]
fn a_driver_opened_after_start_is_reached_through_the_hook_in_every_way() {
    let _lock = shared();
    let node = Node::start(ONE);
    let hooked = run(node.tenant("main", "late").opening_the_driver_late());
    let bare = run(node.tenant("bare", "late").opening_the_driver_late().without_hook());
    let (hooked, bare) = (answers(&hooked), answers(&bare));
    assert_eq!(hooked.len(), bare.len());
    for (under_hook, alone) in hooked.iter().zip(&bare) {
        assert_eq!(under_hook[..2], alone[..2]);
        let found_bare = alone[2] != "none";
        let is_cuda = alone[1].starts_with("cu");
        match under_hook[2] {
            "libsluice.so" => assert!(is_cuda && found_bare, "{under_hook:?}, bare: {alone:?}"),
            other => {
                assert!(!(is_cuda && found_bare) && other == alone[2], "{under_hook:?}, bare: {alone:?}")
            }
        }
        // The right variant of the right version: the same name as the driver itself would give.
        if found_bare && is_cuda {
            assert_eq!(under_hook[3], alone[3], "{under_hook:?}");
        }
    }
}

#[test]
fn a_runtime_that_asks_only_for_addresses_is_governed() {
    let _lock = shared();
    let node = Node::start(ONE);
    let ending = run(node.tenant("main", "found").opening_the_driver_late());
    assert_eq!(ending.lines, ["100"]);
    assert!(grants(&node) >= 1.0);
}

#[test]
fn every_launch_function_is_governed() {
    let _lock = shared();
    let node = Node::start(ONE);
    for way in ["kernel", "cooperative", "ex", "graph", "ptsz"] {
        let before = grants(&node);
        let ending = run(node.tenant("main", "launches").arguments(way).arguments("100"));
        assert_eq!(ending.lines, ["100"], "{way}");
        assert!(grants(&node) > before, "{way}: launched without a grant");
    }
}

#[test]
fn in_the_place_of_libcuda_the_hook_governs_without_a_preload() {
    let _lock = shared();
    let node = Node::start(ONE);
    let ending = run(node.tenant("main", "launches").arguments("kernel 100").as_shim());
    assert_eq!(ending.lines, ["100"]);
    let linked = grants(&node);
    assert!(linked >= 1.0, "load-time link");
    let ending = run(node.tenant("main", "found").opening_the_driver_late().as_shim());
    assert_eq!(ending.lines, ["100"]);
    assert!(grants(&node) > linked, "opened late");
}

#[test]
fn rtld_next_works_for_other_interposers() {
    let _lock = shared();
    let node = Node::start(ONE);
    let base = compiled("next_base", Linking::Library, &[]);
    let layer = compiled("next_layer", Linking::Library, &[]);
    let tenant = || node.tenant("main", "next").linked_with(&base);
    let before = run(tenant().preload_before(&layer));
    assert_eq!(before.lines, ["layer over base", "10"], "ahead of the hook");
    assert!(grants(&node) >= 1.0);
    let after = run(tenant().preload_after(&layer));
    assert_eq!(after.lines[0], "layer over base", "behind the hook");
    let bare = run(tenant().without_hook().preload_after(&layer));
    assert_eq!(bare.lines, ["layer over base", "10"], "without the hook");
}

#[test]
fn a_program_without_cuda_is_not_affected() {
    let _lock = shared();
    let node = Node::with(ONE).without_manager().start();
    let ending = node
        .tenant("main", "next_base_user")
        .opening_the_driver_late()
        .linked_with(&compiled("next_base", Linking::Library, &[]))
        .start()
        .finish()
        .expect_success();
    assert_eq!(ending.lines, ["base"]);
    assert!(node.ledger().processes.is_empty());
}

#[test]
fn a_driver_in_another_namespace_is_not_mixed_with_the_one_of_the_hook() {
    let _lock = shared();
    let node = Node::start(ONE);
    let ending = run(node.tenant("main", "namespaces").opening_the_driver_late());
    assert_eq!(ending.lines, ["same"]);
}
