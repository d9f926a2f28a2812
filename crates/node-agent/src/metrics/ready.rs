//! What is still missing before the node can take pods.

use std::collections::BTreeMap;

use tokio::sync::watch;

use super::InventorySlot;
use crate::managers::{State, Status};
use crate::pods::PodsWatch;

/// One condition of readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The driver has told which GPUs there are.
    Gpus,
    /// Kubelet knows the resource.
    Plugin,
    /// The node's pods are known.
    Pods,
    /// Every GPU's manager has its clients.
    Managers,
}

/// Knows what is missing.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// The driver has answered.
    pub inventory: InventorySlot,
    /// Kubelet has taken the registration.
    pub plugin: watch::Receiver<bool>,
    /// The node's pods.
    pub pods: PodsWatch,
    /// The managers.
    pub managers: watch::Receiver<BTreeMap<String, Status>>,
}

impl Readiness {
    /// What is missing, with words; empty if nothing.
    #[must_use]
    pub fn missing(&self) -> Vec<(Part, String)> {
        let mut missing = Vec::new();
        if self.inventory.get().is_none() {
            missing.push((Part::Gpus, "the NVIDIA driver has not told of its GPUs".to_owned()));
        }
        if !*self.plugin.borrow() {
            missing.push((Part::Plugin, "kubelet has not taken the device plugin's registration".to_owned()));
        }
        if self.pods.borrow().is_none() {
            missing.push((Part::Pods, "the API server has not told of the node's pods".to_owned()));
        }
        for (gpu, status) in self.managers.borrow().iter() {
            let words = match status.state {
                State::Serving => continue,
                State::Starting => "has not taken its clients yet",
                State::Outdated => "does not take its clients",
                State::BackingOff => "has ended and is started again soon",
            };
            missing.push((Part::Managers, format!("the pod-manager of {gpu} {words}")));
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_placement::inventory::NodeInventory;
    use std::sync::Arc;

    #[test]
    fn it_is_ready_when_nothing_is_missing_and_says_what_is_until_then() {
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
        assert_eq!(parts(), [Part::Gpus, Part::Plugin, Part::Pods]);
        inventory.get_or_init(|| watch::Sender::new(NodeInventory::new(1, Vec::new())).subscribe());
        plugin.send_replace(true);
        pods.send_replace(Some(Arc::default()));
        managers.send_replace(BTreeMap::from([("GPU-a".to_owned(), Status::default())]));
        assert_eq!(parts(), [Part::Managers]);
        let serving = Status { state: State::Serving, ..Status::default() };
        managers.send_replace(BTreeMap::from([("GPU-a".to_owned(), serving)]));
        assert_eq!(parts(), []);
    }
}
