//! The containers of a pod: which of them get the GPU, and what each needs for it.

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec};
use serde_json::{Value, json};
use sluice_placement::annotations::{GpuRequest, Mistake, keys};

use super::amounts::{self, StatedAmount};

/// The variable that the NVIDIA container runtime reads.
pub(super) const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// The annotation by which kubectl and istio find the main container.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

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

    /// Whether it runs as long as the pod: app containers, and init containers that are restarted (sidecars).
    pub(super) fn is_long_running(&self) -> bool {
        self.list == "containers" || self.spec.restart_policy.as_deref() == Some("Always")
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

/// Names of the containers that get the GPU. In this order: the named containers; those that request a resource of Sluice; the
/// app container that istio and kubectl take for the main one; the first.
///
/// # Errors
/// Names that are no containers, containers that request a resource of Sluice and were not chosen, more than one that runs as
/// long as the pod, and an init container that ends and follows a chosen sidecar.
pub(super) fn choose(
    pod: &Pod,
    containers: &[PodContainer<'_>],
    request: &GpuRequest,
) -> Result<Vec<String>, Vec<Mistake>> {
    let with_resource: Vec<(String, &str)> = containers
        .iter()
        .filter_map(|container| Some((container.spec.name.clone(), amounts::named_resource(container)?)))
        .collect();
    let default = pod.metadata.annotations.as_ref().and_then(|map| map.get(DEFAULT_CONTAINER));
    let mut apps = containers
        .iter()
        .filter(|container| container.list == "containers")
        .map(|container| &container.spec.name);
    let first = apps.clone().next();
    let default = default.filter(|name| apps.any(|app| app == *name));
    let names: Vec<String> = if !request.containers.is_empty() {
        request.containers.clone()
    } else if !with_resource.is_empty() {
        with_resource.iter().map(|(name, _)| name.clone()).collect()
    } else {
        default.or(first).cloned().into_iter().collect()
    };
    let mistakes = mistakes(containers, &names, &with_resource);
    if mistakes.is_empty() { Ok(names) } else { Err(mistakes) }
}

fn mistakes(
    containers: &[PodContainer<'_>],
    names: &[String],
    with_resource: &[(String, &str)],
) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let all: Vec<&str> = containers.iter().map(|container| container.spec.name.as_str()).collect();
    for name in names.iter().filter(|name| !all.contains(&name.as_str())) {
        let allowed = format!("the pod's containers are {}", all.join(", "));
        mistakes.push(Mistake::new(keys::CONTAINER, name, allowed));
    }
    for (name, resource) in with_resource.iter().filter(|(name, _)| !names.contains(name)) {
        let allowed = format!("container {name} names the resource {resource} as well: name it too");
        mistakes.push(Mistake::new(keys::CONTAINER, names.join(","), allowed));
    }
    let chosen = containers.iter().filter(|container| names.contains(&container.spec.name));
    let long: Vec<&str> = chosen
        .clone()
        .filter(|container| container.is_long_running())
        .map(|container| container.spec.name.as_str())
        .collect();
    if long.len() > 1 {
        let allowed =
            "at most one container that runs as long as the pod (beside it, init containers that end)";
        mistakes.push(Mistake::new(keys::CONTAINER, long.join(","), allowed));
    }
    // The app containers are last in the order, so only a sidecar can be followed by a container that ends.
    let mut from_sidecar = chosen.skip_while(|container| !container.is_long_running());
    let sidecar = from_sidecar.next().map(|container| container.spec.name.as_str()).unwrap_or_default();
    for later in from_sidecar.filter(|container| !container.is_long_running()) {
        let later = later.spec.name.as_str();
        let allowed = format!(
            "init container {later} starts while {sidecar} runs, and Kubernetes adds up what both request: put {later} before \
             {sidecar} in spec.initContainers, or give the GPU to only one"
        );
        mistakes.push(Mistake::new(keys::CONTAINER, format!("{sidecar},{later}"), allowed));
    }
    mistakes
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
