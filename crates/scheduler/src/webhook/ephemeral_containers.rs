//! Debugging containers in pods with a GPU get no GPU: they have no device slot, and without the library the pod's
//! limits would not hold. An image may make every GPU visible, so each new container has to say that it wants none.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvVar, EphemeralContainer, Pod};
use sluice_placement::annotations::{Mistake, keys};

use super::admission::pod;
use super::containers::{VISIBLE_DEVICES, is_void, void_variable};
use super::patch;
use super::review::{Decision, Request};

/// Adds the variable that shows no GPU to each new container without it.
pub(super) fn complete(request: &Request) -> Result<Decision, String> {
    let (new, old) = (pod(&request.object)?, pod(&request.old_object)?);
    if !is_ours(&new) {
        return Ok(Decision::NotOurs);
    }
    let bare = added(&new, &old).filter(|(_, container)| visible(container).next().is_none());
    let variable = |(index, container): (usize, &EphemeralContainer)| {
        let there = container.env.is_some();
        patch::variable(&format!("/spec/ephemeralContainers/{index}"), there, void_variable())
    };
    Ok(Decision::Admitted { patch: bare.map(variable).collect(), warnings: Vec::new() })
}

/// Checks that each new container says that it wants no GPU. Existing ones cannot change any more.
pub(super) fn check(request: &Request) -> Result<Decision, String> {
    let (new, old) = (pod(&request.object)?, pod(&request.old_object)?);
    if !is_ours(&new) {
        return Ok(Decision::NotOurs);
    }
    Decision::admitted_unless(added(&new, &old).flat_map(|(_, container)| mistakes(container)).collect())
}

fn is_ours(pod: &Pod) -> bool {
    pod.metadata.annotations.iter().flatten().any(|(key, _)| key.starts_with(keys::PREFIX))
}

/// Debugging containers that the old pod does not have, with their index in the list.
fn added<'a>(new: &'a Pod, old: &'a Pod) -> impl Iterator<Item = (usize, &'a EphemeralContainer)> {
    let known: BTreeSet<&str> = containers(old).map(|container| container.name.as_str()).collect();
    containers(new).enumerate().filter(move |(_, container)| !known.contains(container.name.as_str()))
}

fn containers(pod: &Pod) -> impl Iterator<Item = &EphemeralContainer> {
    pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten())
}

fn visible(container: &EphemeralContainer) -> impl Iterator<Item = &EnvVar> {
    container.env.iter().flatten().filter(|variable| variable.name == VISIBLE_DEVICES)
}

fn mistakes(container: &EphemeralContainer) -> Vec<Mistake> {
    const ALLOWED: &str = "void or nothing: debugging containers get no GPU";
    let path = format!("spec.ephemeralContainers[{}]", container.name);
    let key = format!("{path}.env[{VISIBLE_DEVICES}]");
    let mut mistakes = Vec::new();
    if visible(container).next().is_none() {
        let allowed = "void: debugging containers get no GPU; another webhook took it away, or Sluice's mutating webhook is \
                       not configured";
        mistakes.push(Mistake::missing(&key, allowed));
    }
    for variable in visible(container).filter(|variable| !is_void(variable)) {
        let value = variable.value.clone().unwrap_or_else(|| "valueFrom".to_owned());
        mistakes.push(Mistake::new(&key, value, ALLOWED));
    }
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    for (name, amount) in
        limits.into_iter().flatten().filter(|(name, _)| keys::RESOURCES.contains(&name.as_str()))
    {
        let key = format!("{path}.resources.limits[{name}]");
        mistakes.push(Mistake::new(key, &amount.0, "debugging containers get no GPU"));
    }
    mistakes
}
