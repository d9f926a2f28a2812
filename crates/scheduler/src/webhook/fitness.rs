//! Whether the rest of the pod lets it run on a shared GPU.

use k8s_openapi::api::core::v1::{EnvVar, PodSpec};
use sluice_placement::annotations::{GpuRequest, Mistake, Priority, keys, kubeshare};

use super::containers::{Place, VISIBLE_DEVICES, is_assigned, is_void};
use super::plan::DEFAULT_SCHEDULER;

/// What keeps the pod from being scheduled by us.
pub(super) fn unfit(spec: &PodSpec, from_kubeshare: bool) -> Vec<Mistake> {
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
        let allowed = "nothing: a pod that is bound at birth passes by the scheduler, and nobody assigns it a GPU; use \
                       spec.nodeSelector or affinity";
        mistakes.push(Mistake::new("spec.nodeName", node, allowed));
    }
    for place in Place::all(spec) {
        mistakes.extend(foreign_gpus(&place));
    }
    mistakes
}

/// Whole GPUs of NVIDIA's device plugin: what it sets in the environment and what we set exclude each other.
fn foreign_gpus(place: &Place<'_>) -> Option<Mistake> {
    let limits = place.container.resources.as_ref()?.limits.as_ref()?;
    let foreign = |name: &str| name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-");
    let (name, quantity) = limits.iter().find(|(name, _)| foreign(name))?;
    let key = format!("{}.resources.limits[{name}]", place.shown());
    Some(Mistake::new(key, &quantity.0, "not together with GPUs of Sluice in one pod"))
}

/// Values of `NVIDIA_VISIBLE_DEVICES` that contradict the scheduler's choice.
pub(super) fn own_devices(place: &Place<'_>, chosen: bool) -> Vec<Mistake> {
    let key = format!("{}.env[{VISIBLE_DEVICES}]", place.shown());
    let (fits, allowed): (fn(&EnvVar) -> bool, &str) = if chosen {
        (is_assigned, "leave it out: it is set to the GPU that the scheduler will have chosen")
    } else {
        (is_void, "void or nothing: sluice.dev/container does not name this container")
    };
    let wrong = place.visible().filter(|variable| !fits(variable));
    let shown = |variable: &EnvVar| match &variable.value_from {
        Some(_) => "valueFrom".to_owned(),
        None => variable.value.clone().unwrap_or_default(),
    };
    wrong.map(|variable| Mistake::new(&key, shown(variable), allowed)).collect()
}

/// Seats that a container with a GPU states itself, and that are not those of its request. None of them at all would be
/// worse than too many: the variable would still show it the GPU, and kubelet would not bring the library.
pub(super) fn own_seats(place: &Place<'_>, seats: u32) -> Vec<Mistake> {
    let wrong = place.stated_seats().filter(|(_, _, stated)| *stated != Some(u64::from(seats)));
    let allowed = format!("{seats} or nothing: the container gets the pod's GPU");
    wrong.map(|(key, value, _)| Mistake::new(key, value, &allowed)).collect()
}

/// What the user should know.
pub(super) fn cautions(request: &GpuRequest, spec: &PodSpec, places: &[Place<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Priority::High | Priority::Normal = request.priority {
        let (name, weight) = (request.priority, request.priority.weight());
        warnings.push(format!(
            "{}: {name} counts as best-effort with weight {weight} until priorities come",
            keys::PRIORITY
        ));
    }
    if request.gang.is_some() {
        warnings.push(format!("{} has no effect yet: pods of a gang are scheduled one by one", keys::GANG));
    }
    let privileged = |place: &Place<'_>| {
        place.container.security_context.as_ref().and_then(|context| context.privileged) == Some(true)
    };
    if let Some(place) = places.iter().find(|place| privileged(place)) {
        let name = place.shown();
        warnings.push(format!("{name} is privileged: it can reach every GPU of the node, past its quota"));
    }
    if spec.host_pid == Some(true) {
        warnings.push("spec.hostPID: the pod can reach processes of other GPU users on its node".to_owned());
    }
    warnings
}
