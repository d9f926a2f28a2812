//! Reports about containers that exist when the plugin is registered, and that were created without it.

use std::sync::Arc;

use sluice_placement::annotations::GpuRequest;
use sluice_proto::nri::{Container, ContainerState, PodSandbox};
use tracing::warn;

use super::super::Injection;
use super::super::adjustment::{has_library, was_given_devices};
use super::TenantPlugin;
use crate::node::events::{Reason, about_pod};
use crate::pods::PodView;

impl TenantPlugin {
    /// Publishes an Event on the pod of each container that has not got everything.
    pub(super) fn report_missing_injections(&self, pods: &[PodSandbox], containers: &[Container]) {
        for container in containers {
            let Some(pod) = self.pod_with_gpu(container, pods) else { continue };
            if let Some(note) = self.missing_injection(container) {
                warn!(pod = pod.full_name(), container = container.name, "{note}");
                self.events.publish(about_pod(&pod), Reason::NotInjected, note);
            }
        }
    }

    /// What a running container with a GPU has not got from this plugin, because it was created while none was registered.
    fn missing_injection(&self, container: &Container) -> Option<String> {
        let name = &container.name;
        if !has_library(container, &self.library_folder) {
            return Some(format!(
                "container {name} runs without Sluice's library, so nothing limits it: it was created while the node agent was \
                 not registered with the container runtime; delete the pod"
            ));
        }
        (self.injection == Injection::Nri && !was_given_devices(container)).then(|| {
            format!(
                "container {name} has no GPU, unless NVIDIA's runtime gave it one: it was created while the node agent was not \
                 registered with the container runtime; delete the pod if its programs find no GPU"
            )
        })
    }

    /// The pod of a running container that should have a GPU.
    fn pod_with_gpu(&self, container: &Container, pods: &[PodSandbox]) -> Option<Arc<PodView>> {
        let runs =
            matches!(container.state(), ContainerState::ContainerRunning | ContainerState::ContainerCreated);
        let pod = pods.iter().find(|pod| runs && pod.id == container.pod_sandbox_id)?;
        GpuRequest::from_annotations(&pod.annotations).ok()??;
        let from_runtime = || PodView {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            annotations: pod.annotations.clone(),
            ..PodView::default()
        };
        let known = self.known_pod(&pod.uid).unwrap_or_else(|| Arc::new(from_runtime()));
        known.gets_gpu(&container.name).then_some(known)
    }
}
