//! Checks the rest of the pod: whether it can run on a shared GPU.

use k8s_openapi::api::core::v1::{EnvVar, PodSpec};
use sluice_placement::annotations::{Mistake, keys, kubeshare};

use super::containers::{PodContainer, VISIBLE_DEVICES, is_assigned, is_void};
use super::plan::DEFAULT_SCHEDULER;

/// What prevents Sluice's scheduler from scheduling the pod.
pub(super) fn scheduling_mistakes(spec: &PodSpec, from_kubeshare: bool) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let scheduler = spec.scheduler_name.as_deref().unwrap_or_default();
    let known = ["", DEFAULT_SCHEDULER, keys::SCHEDULER_NAME].contains(&scheduler)
        || from_kubeshare && scheduler == kubeshare::SCHEDULER_NAME;
    if !known {
        let allowed =
            format!("{} or nothing: no other scheduler knows which GPU is free", keys::SCHEDULER_NAME);
        mistakes.push(Mistake::new("spec.schedulerName", scheduler, allowed));
    }
    if let Some(node) = spec.node_name.as_ref().filter(|node| !node.is_empty()) {
        let allowed = "nothing: a pod that is created with a node bypasses the scheduler and gets no GPU; use \
                       spec.nodeSelector or affinity";
        mistakes.push(Mistake::new("spec.nodeName", node, allowed));
    }
    for container in PodContainer::all(spec) {
        mistakes.extend(foreign_gpu_mistake(&container));
    }
    mistakes
}

/// Whole GPUs of NVIDIA's device plugin: its environment variable and ours exclude each other. An amount of zero asks for nothing.
fn foreign_gpu_mistake(container: &PodContainer<'_>) -> Option<Mistake> {
    let foreign = |name: &str| name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-");
    let mut stated = container.amounts();
    let (_, stated) = stated.find(|(name, stated)| foreign(name) && stated.value != Some(0))?;
    Some(Mistake::new(stated.path, stated.text, "not together with GPUs of Sluice in one pod"))
}

/// Values of `NVIDIA_VISIBLE_DEVICES` that contradict the scheduler's choice.
pub(super) fn device_mistakes(container: &PodContainer<'_>, chosen: bool) -> Vec<Mistake> {
    let key = format!("{}.env[{VISIBLE_DEVICES}]", container.shown());
    let (fits, allowed): (fn(&EnvVar) -> bool, &str) = if chosen {
        (is_assigned, "leave it out: the scheduler sets it to the assigned GPU")
    } else {
        (is_void, "void or nothing: sluice.dev/container does not name this container")
    };
    let wrong = container.visible().filter(|variable| !fits(variable));
    let shown = |variable: &EnvVar| match &variable.value_from {
        Some(_) => "valueFrom".to_owned(),
        None => variable.value.clone().unwrap_or_default(),
    };
    wrong.map(|variable| Mistake::new(&key, shown(variable), allowed)).collect()
}

pub(super) fn warnings_for(spec: &PodSpec, containers: &[PodContainer<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    let privileged = |container: &PodContainer<'_>| {
        container.spec.security_context.as_ref().and_then(|context| context.privileged) == Some(true)
    };
    if let Some(container) = containers.iter().find(|container| privileged(container)) {
        let name = container.shown();
        warnings.push(format!("{name} is privileged: it can reach every GPU of the node, past its quota"));
    }
    for claim in spec.resource_claims.iter().flatten() {
        let name = &claim.name;
        warnings.push(format!(
            "spec.resourceClaims[{name}]: a GPU of this claim is used outside of the pod's share; claim other devices only"
        ));
    }
    if spec.host_pid == Some(true) {
        warnings.push("spec.hostPID: the pod can reach processes of other GPU users on its node".to_owned());
    }
    warnings
}
