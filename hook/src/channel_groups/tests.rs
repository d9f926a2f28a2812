use sluice_nvrm::abi::{GroupParams, engine};
use sluice_nvrm::ioctl_observation::{ObjectKind, ObservedIoctl};

use super::*;

#[test]
fn after_a_panic_no_group_is_announced_but_known_groups_can_still_be_recovered() {
    let made = |parent, object, kind| ObservedIoctl::Object { client: 1, parent, object, kind, params: None };
    for (parent, object, kind) in [
        (1, 2, ObjectKind::Device),
        (2, 3, ObjectKind::Subdevice),
        (2, 4, ObjectKind::Group),
        (4, 5, ObjectKind::Channel),
    ] {
        let compute = GroupParams { engine: engine::GR0 }.encode();
        registry().record(&made(parent, object, kind), &compute, 9, Some(0), 0);
    }
    let before = announcement_changes();
    disable_after_panic();
    assert_ne!(announcement_changes(), before, "the announcement has changed");
    assert!(announcement(0).is_ok_and(|none| none.state.contexts.is_empty() && !none.is_complete));
    let known: Vec<_> = groups_of_device(0).into_iter().map(|found| found.handles.channel_group).collect();
    assert_eq!(known, [4]);
    assert!(groups_of_device(1).is_empty());
}
