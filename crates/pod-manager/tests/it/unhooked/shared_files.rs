//! Processes of a pod that have one open file of the driver: a child inherits its parent's.

use super::harness::{Harness, failure};
use crate::support::agent::uid;
use crate::support::driver::Call;
use crate::support::group_processes::quiet;
use crate::support::until;
use sluice_comm::page::UNLIMITED;
use sluice_pod_manager::unhooked::scanning::ObstacleKind;

/// While the controls of the parent fail, nothing shows that the groups are the parent's: it may have announced what it does not have.
#[test]
fn child_loses_the_groups_of_its_parent_when_the_parents_controls_work_again() {
    // The parent waits a second or eight seconds for its next try, the child a second.
    for failing_ms in [0, 20_000] {
        let node = Harness::new();
        let (parent, _descriptor) = node.hooked(1, 1);
        let _same = node.discovery.add_process(parent.process.pid, &uid(1), &[1]);
        let (_other, _its) = node.hooked(2, 2);
        node.world.driver.work(1);
        node.pass(2000);
        node.world.driver.fail(1, Some(failure()));
        until("the parent is on probation", || {
            node.pass(10);
            parent.page().deadline_ns() != UNLIMITED
        });
        node.pass(failing_ms);
        let _child = node.discovery.add_process(500, &uid(1), &[1]);
        until("the child was given the group", || {
            node.pass(100);
            node.uncontrolled(1, "control_failed") == 1.0
        });
        node.world.driver.fail(1, None);
        // The parent is inspected again and again.
        until("the parent is scheduled by quanta again", || {
            node.discovery.open_descriptor(parent.process.pid);
            node.pass(500);
            parent.page().deadline_ns() == UNLIMITED
        });
        node.pass(500);
        let of_child = (node.unhooked(1), node.uncontrolled(1, "control_failed"));
        assert_eq!(of_child, (0.0, 0.0), "after {failing_ms} ms");
        let enabled = node.enabled_ms([1, 2]);
        assert!(enabled.iter().all(|ms| (4500..=5500).contains(ms)), "{enabled:?}");
        for kind in ["stopped_group_ran", "unannounced_groups", "time_slice"] {
            assert_eq!(node.violations(1, kind), 0.0, "{kind} after {failing_ms} ms");
        }
    }
}

/// The file stays open in the other process, so its groups exist and run on after the end of the process recorded as owner.
#[test]
fn groups_of_an_ended_process_are_enabled_for_another_one_that_has_its_file_and_cannot_be_inspected() {
    let node = Harness::new();
    let (_other, _its) = node.hooked(2, 2);
    let raw = node.discovery.add_process(500, &uid(1), &[1, 11]);
    node.discovery.add_uncontrollable(501, &uid(1), ObstacleKind::NotPermitted);
    node.scan_until_scheduled();
    let both = || [1, 11].map(|group| node.group(group));
    until("both groups are disabled", || {
        node.pass(10);
        both().iter().all(|(enabled, _)| !enabled)
    });
    // The driver takes some time over the first control, as a real one does.
    node.world.driver.hold();
    node.discovery.end_process(500);
    assert_eq!(node.world.driver.next(), Call::Start(1));
    node.world.settle();
    node.world.driver.let_all_go();
    quiet(&node.world);
    assert_eq!(both(), [(true, 2048); 2]);
    raw.closes();
}
