//! What the node still lacks before it can take pods.

use std::collections::BTreeMap;

use tokio::sync::watch;

use super::InventorySlot;
use crate::managers::{ManagerState, ManagerStatus};
use crate::pods::PodsWatch;

/// One condition of readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// The driver has reported the node's GPUs.
    Gpus,
    /// Kubelet has registered the resource.
    Plugin,
    /// The node's pods are known.
    Pods,
    /// Every GPU's manager has its clients.
    Managers,
}

/// Sources of the readiness.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// The driver has answered.
    pub inventory: InventorySlot,
    /// Kubelet has accepted the registration.
    pub plugin: watch::Receiver<bool>,
    /// The node's pods.
    pub pods: PodsWatch,
    /// The managers.
    pub managers: watch::Receiver<BTreeMap<String, ManagerStatus>>,
}

impl Readiness {
    /// The components that are not ready, with a text for each; empty if all are.
    #[must_use]
    pub fn missing(&self) -> Vec<(Component, String)> {
        let mut missing = Vec::new();
        if self.inventory.get().is_none() {
            missing.push((Component::Gpus, "the NVIDIA driver has not reported its GPUs".to_owned()));
        }
        if !*self.plugin.borrow() {
            missing.push((
                Component::Plugin,
                "kubelet has not accepted the device plugin's registration".to_owned(),
            ));
        }
        if self.pods.borrow().is_none() {
            missing.push((Component::Pods, "the API server has not listed the node's pods".to_owned()));
        }
        for (gpu, status) in self.managers.borrow().iter() {
            let text = match status.state {
                ManagerState::Serving => continue,
                ManagerState::Starting => "has not accepted its clients yet",
                ManagerState::Outdated => "refuses its clients",
                ManagerState::BackingOff => "has ended and is restarted soon",
            };
            missing.push((Component::Managers, format!("the pod-manager of {gpu} {text}")));
        }
        missing
    }
}

#[cfg(test)]
mod tests;
