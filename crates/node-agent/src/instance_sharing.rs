//! Which instances of GPUs in MIG mode several pods may share: those on which the self-test has proven the driver's controls. Any other one
//! is for one pod.

use std::collections::BTreeMap;

use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;

use crate::managers::ManagerStatus;
use crate::self_test::Outcome;
use crate::tasks::replace_if_new;

type Statuses = BTreeMap<String, ManagerStatus>;

/// The inventory in which the instances with proven controls are shared.
pub(crate) fn with_proven(found: &NodeInventory, statuses: &Statuses) -> NodeInventory {
    let mut inventory = found.clone();
    for gpu in &mut inventory.gpus {
        let is_proven = statuses.get(&gpu.uuid).is_some_and(|status| status.self_test == Outcome::Proven);
        if let Some(instance) = &mut gpu.mig {
            instance.is_shared = is_proven;
        }
    }
    inventory
}

/// Publishes it whenever GPUs or outcomes change, until GPUs no longer come.
pub(crate) async fn publish(
    known: watch::Sender<NodeInventory>,
    mut found: watch::Receiver<NodeInventory>,
    mut statuses: watch::Receiver<Statuses>,
) {
    loop {
        let now = with_proven(&found.borrow_and_update(), &statuses.borrow_and_update());
        known.send_if_modified(|last| replace_if_new(last, now));
        tokio::select! {
            changed = found.changed() => if changed.is_err() { return },
            Ok(()) = statuses.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_placement::inventory::{Gpu, MigInstance};

    use super::*;
    use crate::gpus::fake;

    #[test]
    fn instance_is_shared_only_if_its_self_test_has_proven_all_controls() {
        let instance = |number: u32| Gpu {
            uuid: format!("MIG-{number}"),
            mig: Some(MigInstance { parent: fake::gpu(0).uuid, profile: "1g.10gb".into(), is_shared: false }),
            ..fake::gpu(0)
        };
        let found = NodeInventory::new(10, vec![fake::gpu(1), instance(0), instance(1), instance(2)]);
        let with = |self_test| ManagerStatus { self_test, ..ManagerStatus::default() };
        let statuses = BTreeMap::from([
            (fake::gpu(1).uuid, with(Outcome::Proven)),
            ("MIG-0".to_owned(), with(Outcome::Proven)),
            ("MIG-1".to_owned(), with(Outcome::StopsOnly { why: "slices have no effect".into() })),
        ]);
        let for_one: Vec<bool> =
            with_proven(&found, &statuses).gpus.iter().map(Gpu::is_for_one_pod).collect();
        assert_eq!(for_one, [false, false, true, true]);
        // A driver that was replaced by one without controls.
        let shared = with_proven(&found, &statuses);
        assert_eq!(with_proven(&shared, &BTreeMap::new()), found);
    }
}
