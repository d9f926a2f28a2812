//! The properties of a pod that the agent needs. None of them changes with every heartbeat.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus};
use sluice_placement::annotations::{GpuRequest, keys};

/// One pod of this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodView {
    /// `metadata.uid`.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// It has succeeded or failed: its containers have ended and none will start again.
    pub has_ended: bool,
    /// When it was bound to this node, seconds since 1970; the creation time if the status does not say.
    pub bound_at: i64,
    /// When it was created, seconds since 1970.
    pub created_at: i64,
    /// How long it may take to end, seconds; `None`: the API server's default.
    pub grace_seconds: Option<i64>,
    /// Its annotations under `sluice.dev/`.
    pub annotations: BTreeMap<String, String>,
    /// The container that holds the GPU, the first one of several: the pod's metrics carry its name.
    pub container: String,
    /// Number of containers with the GPU that run as long as the pod. Each has device slots of its own.
    pub long_running: u32,
    /// The RuntimeClass that it names.
    pub runtime_class: Option<String>,
    /// Names of its containers by the runtime's id.
    pub container_names: BTreeMap<String, String>,
    /// Whether its condition `sluice.dev/Suspended` is `True`; `None` without the condition.
    pub suspended: Option<bool>,
}

impl PodView {
    /// Reads a pod. `None` for an object without a uid, which the API server does not send.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let created_at = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        let annotations = metadata.annotations.iter().flatten();
        let ours = annotations.filter(|(key, _)| key.starts_with(keys::PREFIX));
        let status = pod.status.as_ref();
        Some(Self {
            uid: metadata.uid.clone()?,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            has_ended: matches!(
                status.and_then(|status| status.phase.as_deref()),
                Some("Succeeded" | "Failed")
            ),
            bound_at: status.and_then(bound_at).unwrap_or(created_at),
            created_at,
            grace_seconds: pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds),
            annotations: ours.map(|(key, value)| (key.clone(), value.clone())).collect(),
            container: pod.spec.as_ref().and_then(main_container).unwrap_or_default(),
            long_running: pod.spec.as_ref().map_or(0, long_running),
            runtime_class: pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.clone()),
            container_names: status.map(container_names).unwrap_or_default(),
            suspended: status.and_then(suspended),
        })
    }

    /// Whether this container gets the pod's GPU.
    #[must_use]
    pub fn gets_gpu(&self, container: &str) -> bool {
        let request = GpuRequest::from_annotations(&self.annotations).ok().flatten();
        let named = request.map(|request| request.containers).unwrap_or_default();
        // The webhook records its choice. A pod that did not pass it asks for a device slot by itself.
        if named.is_empty() {
            self.container == container
        } else {
            named.iter().any(|name| name == container)
        }
    }

    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// When the scheduler bound it.
fn bound_at(status: &PodStatus) -> Option<i64> {
    let is_binding =
        |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "True";
    let condition = status.conditions.iter().flatten().find(is_binding)?;
    Some(condition.last_transition_time.as_ref()?.0.as_second())
}

fn suspended(status: &PodStatus) -> Option<bool> {
    let conditions = status.conditions.iter().flatten();
    let ours = conditions.filter(|condition| condition.type_ == keys::SUSPENDED_CONDITION);
    ours.map(|condition| condition.status == "True").next()
}

fn has_slots(container: &&Container) -> bool {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    limits.and_then(|limits| limits.get(keys::RESOURCE)).is_some_and(|slots| slots.0 != "0")
}

fn has_claims(container: &&Container) -> bool {
    let resources = container.resources.as_ref();
    resources.and_then(|resources| resources.claims.as_ref()).is_some_and(|claims| !claims.is_empty())
}

fn sidecars(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    init.filter(|container| container.restart_policy.as_deref() == Some("Always"))
}

/// The first app container that asks for our resource, else the first sidecar that does, else the first container with a claim, else the
/// first container.
fn main_container(spec: &PodSpec) -> Option<String> {
    let app = spec.containers.iter().find(has_slots);
    let claiming = spec.containers.iter().find(has_claims);
    let chosen = app.or_else(|| sidecars(spec).find(has_slots)).or(claiming).or(spec.containers.first())?;
    Some(chosen.name.clone())
}

fn long_running(spec: &PodSpec) -> u32 {
    let count = spec.containers.iter().chain(sidecars(spec)).filter(has_slots).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Of all kinds of containers, those that have just been replaced included.
fn container_names(status: &PodStatus) -> BTreeMap<String, String> {
    let lists =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let mut names = BTreeMap::new();
    for container in lists.into_iter().flatten().flatten() {
        for id in ids(container) {
            // `containerd://0123…`: the cgroup contains only the part behind `://`.
            let id = id.split_once("://").map_or(id, |(_, id)| id);
            names.insert(id.to_owned(), container.name.clone());
        }
    }
    names
}

fn ids(container: &ContainerStatus) -> impl Iterator<Item = &str> {
    let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let before = before.and_then(|terminated| terminated.container_id.as_deref());
    container.container_id.as_deref().into_iter().chain(before).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests;
