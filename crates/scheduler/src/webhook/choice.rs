//! The choice of the containers that get the GPU. The entry point is [`choose`].

use k8s_openapi::api::core::v1::Pod;
use sluice_placement::annotations::{GpuRequest, Mistake, keys};

use super::amounts;
use super::containers::PodContainer;
use super::sidecars;

/// The annotation by which kubectl finds the main container. Some injectors set it to the first app container.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The containers that get the GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Their names.
    pub(super) names: Vec<String>,
    /// The choice and its reason, if the pod has several app containers and does not state the choice itself.
    pub(super) warning: Option<String>,
}

impl Choice {
    fn stated(names: Vec<String>) -> Self {
        Self { names, warning: None }
    }

    /// A choice that the user did not make. API servers may cut warnings of more than 256 characters.
    fn derived(name: &str, reason: &str) -> Self {
        let warning =
            format!("container {name} gets the GPU: {reason}; {}: {name} states the choice", keys::CONTAINER);
        Self { names: vec![name.to_owned()], warning: Some(warning) }
    }
}

/// Chooses the containers that get the GPU. In this order: the containers that `sluice.dev/container` names; those that request a
/// resource of Sluice; the only app container, injected sidecars left out; the app container that kubectl takes for the main one.
///
/// # Errors
/// Several app containers of which nothing names one. Names that are no containers, containers that request a resource of Sluice
/// and were not chosen, several that run as long as the pod and are not named, and an init container that ends and follows a chosen sidecar.
pub(super) fn choose(
    pod: &Pod,
    containers: &[PodContainer<'_>],
    request: &GpuRequest,
) -> Result<Choice, Vec<Mistake>> {
    let with_resource: Vec<(String, &str)> = containers
        .iter()
        .filter_map(|container| Some((container.spec.name.clone(), amounts::named_resource(container)?)))
        .collect();
    let choice = if !request.containers.is_empty() {
        Choice::stated(request.containers.clone())
    } else if !with_resource.is_empty() {
        Choice::stated(with_resource.iter().map(|(name, _)| name.clone()).collect())
    } else {
        let apps = containers.iter().filter(|container| container.is_app());
        let apps: Vec<&str> = apps.map(|container| container.spec.name.as_str()).collect();
        let annotations = pod.metadata.annotations.as_ref();
        let default = annotations.and_then(|map| map.get(DEFAULT_CONTAINER)).map(String::as_str);
        among(&apps, default).map_err(|mistake| vec![mistake])?
    };
    let is_named = !request.containers.is_empty();
    let mistakes = mistakes(containers, &choice.names, &with_resource, is_named);
    if mistakes.is_empty() { Ok(choice) } else { Err(mistakes) }
}

/// The choice among app containers, none of which is named by the request. `default` is the container that kubectl takes for the main one.
fn among(apps: &[&str], default: Option<&str>) -> Result<Choice, Mistake> {
    if let [only] = apps {
        return Ok(Choice::stated(vec![(*only).to_owned()]));
    }
    let (injected, own): (Vec<&str>, Vec<&str>) =
        apps.iter().partition(|name| sidecars::injector(name).is_some());
    if let [only] = own[..] {
        let added = |name: &&str| Some(format!("{name} is added by {}", sidecars::injector(name)?));
        let reason: Vec<String> = injected.iter().filter_map(added).collect();
        return Ok(Choice::derived(only, &reason.join(", ")));
    }
    if let Some(main) = default.filter(|name| own.contains(name)) {
        return Ok(Choice::derived(main, &format!("{DEFAULT_CONTAINER} names it")));
    }
    let candidates = if own.is_empty() { apps } else { &own };
    let allowed = format!(
        "one of {}: the pod has several containers, and nothing names the one that gets the GPU",
        candidates.join(", ")
    );
    Err(Mistake::missing(keys::CONTAINER, allowed))
}

fn mistakes(
    containers: &[PodContainer<'_>],
    names: &[String],
    with_resource: &[(String, &str)],
    is_named: bool,
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
    if long.len() > 1 && !is_named {
        // Elsewhere each of them would get a GPU of its own.
        let allowed = format!(
            "{} request resources of Sluice: name them all if they share the pod's GPU",
            long.join(", ")
        );
        mistakes.push(Mistake::missing(keys::CONTAINER, allowed));
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
