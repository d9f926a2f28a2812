use super::*;
use sluice_placement::inventory::NodeInventory;
use std::sync::Arc;

#[test]
fn readiness_lists_each_missing_component_until_none_is_missing() {
    let plugin = watch::Sender::new(false);
    let inventory = InventorySlot::default();
    let (pods, managers) = (watch::Sender::new(None), watch::Sender::new(BTreeMap::new()));
    let readiness = Readiness {
        inventory: Arc::clone(&inventory),
        plugin: plugin.subscribe(),
        pods: pods.subscribe(),
        managers: managers.subscribe(),
    };
    let parts = || readiness.missing().into_iter().map(|(part, _)| part).collect::<Vec<_>>();
    assert_eq!(parts(), [Component::Gpus, Component::Plugin, Component::Pods]);
    inventory.get_or_init(|| watch::Sender::new(NodeInventory::new(1, Vec::new())).subscribe());
    plugin.send_replace(true);
    pods.send_replace(Some(Arc::default()));
    managers.send_replace(BTreeMap::from([("GPU-a".to_owned(), ManagerStatus::default())]));
    assert_eq!(parts(), [Component::Managers]);
    let serving = ManagerStatus { state: ManagerState::Serving, ..ManagerStatus::default() };
    managers.send_replace(BTreeMap::from([("GPU-a".to_owned(), serving)]));
    assert_eq!(parts(), []);
}
