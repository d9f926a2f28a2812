//! The plugin for pods with GPUs. `existing`: containers that were created without it.

mod existing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_proto::nri::{Container, ContainerAdjustment, PodSandbox};
use tokio::sync::watch;
use tracing::info;

use super::adjustment::adjustment;
use super::cdi::unsupported_reason;
use super::session::{Plugin, RuntimeName};
use super::{InForce, Injection, Places, Registration, supervisor};
use crate::device_plugin::Provision;
use crate::node::events::EventQueue;
use crate::pods::assign::uses_sluice;
use crate::pods::{AssignmentsWatch, PodView, PodsWatch};
use crate::tasks::replace_if_new;

/// How long the first registration waits for the API server's list of pods, which names the containers with a GPU.
const LONGEST_WAIT_FOR_PODS: Duration = Duration::from_secs(1);

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
    /// The path in force.
    pub(crate) in_force: watch::Receiver<InForce>,
    /// Why the runtime is not known to apply devices.
    pub(crate) unsupported_reason: Option<String>,
}

/// Serves the plugin for ever.
pub(crate) async fn serve_tenants(mut plugin: TenantPlugin) {
    let (socket, registration) = (plugin.places.socket.clone(), plugin.registration.clone());
    // Without the list the plugin is registered all the same.
    let _listed =
        tokio::time::timeout(LONGEST_WAIT_FOR_PODS, plugin.pods.wait_for(Option::is_some)).await.is_ok();
    supervisor::keep_connected(&socket, &mut plugin, |why| {
        registration.send_if_modified(|last| replace_if_new(last, Some(Err(why.to_owned()))));
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
        self.report_missing_injections(pods, containers);
        self.unsupported_reason = unsupported_reason(&runtime);
        self.registration.send_replace(Some(self.unsupported_reason.clone().map_or(Ok(runtime), Err)));
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
        let falls_back = self.injection != Injection::Nri;
        // NVIDIA's runtime serves the container.
        if falls_back && !matches!(*self.in_force.borrow(), InForce::Nri(..)) {
            return Ok(ContainerAdjustment::default());
        }
        let gpus = match self.gpus_of(pod, within).await? {
            Some(gpus) => gpus,
            None if falls_back => return Ok(ContainerAdjustment::default()),
            None => {
                return Err(format!(
                    "sluice: the node agent does not know the GPU of pod {}: the API server did not report it within {within:?}",
                    pod.uid
                ));
            }
        };
        if !self.known_pod(&pod.uid).is_some_and(|known| known.gets_gpu(&container.name)) {
            return Ok(ContainerAdjustment::default());
        }
        let devices = match self.devices(gpus).await {
            Ok(devices) => devices,
            // NVIDIA's runtime reads the variable that the webhook has set.
            Err(_) if falls_back => Vec::new(),
            Err(why) => return Err(format!("sluice: {why}")),
        };
        info!(pod = pod.uid, container = container.name, ?devices, "injected a container");
        Ok(adjustment(container, &self.provision, devices))
    }
}

impl TenantPlugin {
    fn known_pod(&self, uid: &str) -> Option<Arc<PodView>> {
        self.pods.borrow().as_ref().and_then(|pods| pods.get(uid).cloned())
    }

    /// The pod's GPUs; `None` if the API server has not reported the pod in time, which may come later than kubelet's call.
    async fn gpus_of(&mut self, pod: &PodSandbox, within: Duration) -> Result<Option<Vec<String>>, String> {
        let uid = &pod.uid;
        let is_decided = |known: &Option<Arc<crate::pods::Assignments>>| {
            known
                .as_ref()
                .is_some_and(|known| known.gpus.contains_key(uid) || known.refused.contains_key(uid))
        };
        let decided = tokio::time::timeout(within, self.assignments.wait_for(is_decided)).await;
        let Ok(Ok(known)) = decided else { return Ok(None) };
        let Some(known) = known.as_ref() else { return Ok(None) };
        match known.refused.get(uid) {
            Some(why) => Err(format!("sluice: this pod gets no GPU: {why}")),
            None => Ok(known.gpus.get(uid).cloned()),
        }
    }

    /// The CDI names of these GPUs, or why they cannot be given.
    async fn devices(&self, gpus: Vec<String>) -> Result<Vec<String>, String> {
        if let Some(why) = &self.unsupported_reason {
            return Err(why.clone());
        }
        let folders = self.places.cdi.clone();
        let named = tokio::task::spawn_blocking(move || folders.qualified(&gpus)).await;
        named.map_err(|why| why.to_string())?
    }
}

#[cfg(test)]
mod tests;
