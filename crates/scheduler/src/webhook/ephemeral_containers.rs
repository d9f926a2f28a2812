//! Debugging containers in pods of ours get no GPU: they have no seat, and without the library the pod's quota would not hold
//! them. An image may name every GPU for itself, so each new one has to say that it wants none.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvVar, EphemeralContainer, Pod};
use sluice_placement::annotations::{Mistake, Mistakes, keys};

use super::admission::pod;
use super::containers::{VISIBLE_DEVICES, is_void, void_variable};
use super::patch;
use super::review::{Decision, Request};

/// The variable that shows no GPU, into each new container without it.
///
/// # Errors
/// When the object is no pod.
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

/// Whether each new container says that it wants no GPU. Those that are there cannot change any more.
///
/// # Errors
/// Every mistake at once.
pub(super) fn check(request: &Request) -> Result<Decision, String> {
    let (new, old) = (pod(&request.object)?, pod(&request.old_object)?);
    if !is_ours(&new) {
        return Ok(Decision::NotOurs);
    }
    let mistakes = added(&new, &old).flat_map(|(_, container)| mistakes(container)).collect();
    match Mistakes::some(mistakes) {
        Some(mistakes) => Err(mistakes.to_string()),
        None => Ok(Decision::Admitted { patch: Vec::new(), warnings: Vec::new() }),
    }
}

fn is_ours(pod: &Pod) -> bool {
    pod.metadata.annotations.iter().flatten().any(|(key, _)| key.starts_with(keys::PREFIX))
}

/// Debugging containers that the old pod has not, and their containers in the list.
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
    if let Some(seats) = limits.and_then(|limits| limits.get(keys::RESOURCE)) {
        let key = format!("{path}.resources.limits[{}]", keys::RESOURCE);
        mistakes.push(Mistake::new(key, &seats.0, "debugging containers get no GPU"));
    }
    mistakes
}
