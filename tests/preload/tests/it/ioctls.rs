//! `ioctl` under the hook: requests to other devices are unchanged.

use sluice_preload_tests::compiled_programs::{Linking, compiled};
use sluice_preload_tests::{Node, TenantOptions, shared};

fn tenant(node: &Node, program: &str) -> TenantOptions {
    node.tenant("main", program).opening_the_driver_late()
}

#[test]
fn requests_to_other_devices_are_unchanged() {
    let _lock = shared();
    let node = Node::start("1\nmain 0.5 1.0 8589934592\n");
    let ending = tenant(&node, "ioctls").start().finish().expect_success();
    assert_eq!(ending.lines, ["all as ever"]);
}

#[test]
fn a_library_whose_constructor_makes_ioctls_works_before_and_behind_the_hook() {
    let _lock = shared();
    let node = Node::start("1\nmain 0.5 1.0 8589934592\n");
    let library = compiled("ioctls", Linking::Library, &[]);
    for options in
        [tenant(&node, "ioctls").preload_before(&library), tenant(&node, "ioctls").preload_after(&library)]
    {
        assert_eq!(options.start().finish().expect_success().lines, ["all as ever"]);
    }
}

#[test]
fn another_interposer_is_passed_once_whether_it_comes_before_or_behind_the_hook() {
    let _lock = shared();
    let node = Node::start("1\nmain 0.5 1.0 8589934592\n");
    let layer = compiled("next_ioctl", Linking::Library, &[]);
    for options in [
        tenant(&node, "layered_ioctls").preload_before(&layer),
        tenant(&node, "layered_ioctls").preload_after(&layer),
    ] {
        assert_eq!(options.start().finish().expect_success().lines, ["77 3 2"]);
    }
}
