//! The containers of a pod, and what each needs to see its GPU or none.

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use serde_json::{Value, json};
use sluice_placement::annotations::{Mistake, keys};

use super::amounts::StatedAmount;

/// The variable that the NVIDIA container runtime reads.
pub(super) const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// One container and its position in the pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodContainer<'a> {
    list: &'static str,
    index: usize,
    pub(super) spec: &'a Container,
}

impl<'a> PodContainer<'a> {
    /// Every container; init containers first, as they start.
    pub(super) fn all(spec: &'a PodSpec) -> Vec<Self> {
        let in_list = |list: &'static str, containers: &'a [Container]| {
            containers.iter().enumerate().map(move |(index, spec)| Self { list, index, spec })
        };
        let init = spec.init_containers.as_deref().unwrap_or_default();
        in_list("initContainers", init).chain(in_list("containers", &spec.containers)).collect()
    }

    /// Its path in JSON.
    pub(super) fn path(&self) -> String {
        format!("/spec/{}/{}", self.list, self.index)
    }

    /// Its path in messages.
    pub(super) fn shown(&self) -> String {
        format!("spec.{}[{}]", self.list, self.spec.name)
    }

    /// Whether it is an app container, neither an init container nor a sidecar among them.
    pub(super) fn is_app(&self) -> bool {
        self.list == "containers"
    }

    /// Whether it runs as long as the pod: app containers, and init containers that are restarted (sidecars).
    pub(super) fn is_long_running(&self) -> bool {
        self.is_app() || self.spec.restart_policy.as_deref() == Some("Always")
    }

    /// The number of device slots that it requests itself.
    pub(super) fn device_slots(&self) -> Result<Option<u64>, Mistake> {
        match self.stated(keys::RESOURCE).next() {
            None => Ok(None),
            Some(StatedAmount { path, text, value: None }) => Err(Mistake::new(path, text, "a whole number")),
            Some(stated) => Ok(stated.value),
        }
    }

    /// The variables that name the visible GPUs.
    pub(super) fn visible(&self) -> impl Iterator<Item = &'a EnvVar> + use<'a> {
        self.spec.env.iter().flatten().filter(|variable| variable.name == VISIBLE_DEVICES)
    }
}

/// The variable that shows a container the GPU that the scheduler assigns.
pub(super) fn assigned_variable() -> Value {
    let path = format!("metadata.annotations['{}']", keys::ASSIGNED_GPU);
    json!({"name": VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}})
}

/// The variable that shows a container no GPU, whatever its image sets.
pub(super) fn void_variable() -> Value {
    json!({"name": VISIBLE_DEVICES, "value": "void"})
}

/// Whether this is [`assigned_variable`].
pub(super) fn is_assigned(variable: &EnvVar) -> bool {
    let path = variable.value_from.as_ref().and_then(|source| source.field_ref.as_ref());
    let wanted = format!("metadata.annotations['{}']", keys::ASSIGNED_GPU);
    path.is_some_and(|path| path.field_path == wanted)
}

/// Whether this shows no GPU.
pub(super) fn is_void(variable: &EnvVar) -> bool {
    variable.value_from.is_none() && matches!(variable.value.as_deref(), None | Some("" | "void" | "none"))
}
