//! The plugin for pods with GPUs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_placement::annotations::GpuRequest;
use sluice_proto::nri::{Container, ContainerAdjustment, ContainerState, PodSandbox};
use tokio::sync::watch;
use tracing::{info, warn};

use super::adjustment::{adjustment, has_library, was_given_devices};
use super::cdi::ignores_devices;
use super::session::{Plugin, RuntimeName};
use super::{Injection, Places, Registration, supervisor};
use crate::device_plugin::Provision;
use crate::node::events::{EventQueue, Reason, about_pod};
use crate::pods::assign::uses_sluice;
use crate::pods::{AssignmentsWatch, PodView, PodsWatch};

/// Decides from the agent's knowledge what a container gets.
#[derive(Debug)]
pub(crate) struct TenantPlugin {
    pub(crate) injection: Injection,
    pub(crate) places: Places,
    pub(crate) provision: Arc<Provision>,
    /// The folder of all versions of the library.
    pub(crate) library_folder: PathBuf,
    pub(crate) pods: PodsWatch,
    pub(crate) assignments: AssignmentsWatch,
    pub(crate) events: EventQueue,
    pub(crate) registration: watch::Sender<Registration>,
    /// Why the runtime would ignore devices.
    pub(crate) ignores_devices: Option<String>,
}

/// Serves the plugin for ever.
pub(crate) async fn serve_tenants(mut plugin: TenantPlugin) {
    let (socket, registration) = (plugin.places.socket.clone(), plugin.registration.clone());
    supervisor::keep_connected(&socket, &mut plugin, |why| {
        registration.send_replace(Some(Err(why.to_owned())));
    })
    .await;
}

impl Plugin for TenantPlugin {
    fn name(&self) -> &'static str {
        "sluice"
    }

    fn index(&self) -> &'static str {
        "50"
    }

    fn registered(&mut self, runtime: RuntimeName, pods: &[PodSandbox], containers: &[Container]) {
        info!(runtime, containers = containers.len(), "registered with the runtime's NRI");
        for (pod, container) in containers.iter().filter_map(|container| with_gpu(container, pods)) {
            if let Some(note) = self.lacks(container) {
                let about = PodView {
                    uid: pod.uid.clone(),
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                    ..PodView::default()
                };
                warn!(pod = about.full_name(), container = container.name, "{note}");
                self.events.publish(about_pod(&about), Reason::NotInjected, note);
            }
        }
        self.ignores_devices = ignores_devices(&runtime);
        self.registration.send_replace(Some(self.ignores_devices.clone().map_or(Ok(runtime), Err)));
    }

    async fn adjust(
        &mut self,
        pod: &PodSandbox,
        container: &Container,
        within: Duration,
    ) -> Result<ContainerAdjustment, String> {
        // The runtime has the annotations from kubelet, and they cannot change. Pods that do not use Sluice are not delayed.
        if !uses_sluice(&pod.annotations) {
            return Ok(ContainerAdjustment::default());
        }
        let gpus = self.gpus_of(pod, within).await?;
        let view = self.pods.borrow().as_ref().and_then(|pods| pods.get(&pod.uid).cloned());
        if !view.is_some_and(|view| view.gets_gpu(&container.name)) {
            return Ok(ContainerAdjustment::default());
        }
        let devices = match (self.devices(gpus).await, self.injection) {
            (Ok(devices), _) => devices,
            (Err(why), Injection::Nri) => return Err(format!("sluice: {why}")),
            // NVIDIA's runtime reads the variable that the webhook has set.
            (Err(_), Injection::Auto | Injection::Runtime) => Vec::new(),
        };
        info!(pod = pod.uid, container = container.name, ?devices, "injected a container");
        Ok(adjustment(container, &self.provision, devices))
    }
}

impl TenantPlugin {
    /// The pod's GPUs. Waits for news from the API server, which may come later than kubelet's.
    async fn gpus_of(&mut self, pod: &PodSandbox, within: Duration) -> Result<Vec<String>, String> {
        let uid = &pod.uid;
        let is_decided = |known: &Option<Arc<crate::pods::Assignments>>| {
            known
                .as_ref()
                .is_some_and(|known| known.gpus.contains_key(uid) || known.refused.contains_key(uid))
        };
        let decided = tokio::time::timeout(within, self.assignments.wait_for(is_decided)).await;
        let Ok(Ok(known)) = decided else {
            return Err(format!(
                "sluice: the node agent does not know the GPU of pod {uid}: the API server did not report it within {within:?}"
            ));
        };
        let Some(known) = known.as_ref() else { return Ok(Vec::new()) };
        match (known.gpus.get(uid), known.refused.get(uid)) {
            (Some(gpus), _) => Ok(gpus.clone()),
            (None, Some(why)) => Err(format!("sluice: this pod gets no GPU: {why}")),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// The CDI names of these GPUs, or why they cannot be given.
    async fn devices(&self, gpus: Vec<String>) -> Result<Vec<String>, String> {
        if let Some(why) = &self.ignores_devices {
            return Err(why.clone());
        }
        let folders = self.places.cdi.clone();
        let named = tokio::task::spawn_blocking(move || folders.qualified(&gpus)).await;
        named.map_err(|why| why.to_string())?
    }

    /// What a running container with a GPU lacks, because it was created while no plugin was registered.
    fn lacks(&self, container: &Container) -> Option<String> {
        let name = &container.name;
        if !has_library(container, &self.library_folder) {
            return Some(format!(
                "container {name} runs without Sluice's library, so nothing limits it: it was created while the node agent was \
                 not registered with the container runtime; delete the pod"
            ));
        }
        (self.injection == Injection::Nri && !was_given_devices(container)).then(|| {
            format!(
                "container {name} has no GPU: it was created while the node agent was not registered with the container runtime; \
                 delete the pod"
            )
        })
    }
}

/// A running container that should have a GPU, and its pod.
fn with_gpu<'a>(container: &'a Container, pods: &'a [PodSandbox]) -> Option<(&'a PodSandbox, &'a Container)> {
    let runs =
        matches!(container.state(), ContainerState::ContainerRunning | ContainerState::ContainerCreated);
    let pod = pods.iter().find(|pod| runs && pod.id == container.pod_sandbox_id)?;
    let request = GpuRequest::from_annotations(&pod.annotations).ok()??;
    request.containers.contains(&container.name).then_some((pod, container))
}

#[cfg(test)]
mod tests;
