//! The two webhooks' verdicts on a request.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use sluice_core::request::{Mistake, Mistakes, keys, kubeshare};

use super::containers::VISIBLE_DEVICES;
use super::plan::{Settings, plan};
use super::review::{Operation, Request, Verdict};

/// What a new pod still needs.
pub(super) fn mutate(request: &Request, settings: &Settings) -> Verdict {
    if !is_pods(request) || request.operation != Operation::Create || request.sub_resource.is_some() {
        return Verdict::NotOurs;
    }
    match pod(&request.object).and_then(|pod| plan(&pod, settings).map_err(|mistakes| mistakes.to_string())) {
        Ok(None) => Verdict::NotOurs,
        // The validating webhook tells the warnings: it runs last and sees every container.
        Ok(Some(plan)) => Verdict::Admitted { patch: plan.patch, warnings: Vec::new() },
        Err(message) => Verdict::Refused(message),
    }
}

/// Whether the pod may be created or changed so.
pub(super) fn validate(request: &Request, settings: &Settings) -> Verdict {
    if !is_pods(request) {
        return Verdict::NotOurs;
    }
    let verdict = match (request.operation, request.sub_resource.as_deref()) {
        (Operation::Create, None) => created(request, settings),
        (Operation::Update, None) => updated(request),
        (Operation::Update, Some("ephemeralcontainers")) => debugged(request),
        _ => Ok(Verdict::NotOurs),
    };
    verdict.unwrap_or_else(Verdict::Refused)
}

fn is_pods(request: &Request) -> bool {
    request.resource.group.is_empty() && request.resource.resource == "pods"
}

fn pod(object: &Value) -> Result<Pod, String> {
    serde::Deserialize::deserialize(object).map_err(|error| format!("the object is no pod: {error}"))
}

fn created(request: &Request, settings: &Settings) -> Result<Verdict, String> {
    let plan = plan(&pod(&request.object)?, settings).map_err(|mistakes| mistakes.to_string())?;
    let Some(plan) = plan else {
        return Ok(Verdict::NotOurs);
    };
    if plan.patch.is_empty() {
        return Ok(Verdict::Admitted { patch: Vec::new(), warnings: plan.warnings });
    }
    let missing = serde_json::to_string(&plan.patch).map_err(|error| error.to_string())?;
    Err(format!(
        "the pod lacks what Sluice's mutating webhook adds; another webhook took it away, or that webhook is not \
         configured: {missing}"
    ))
}

/// Keys of ours are part of what was promised at creation: node and GPU were chosen by them.
fn updated(request: &Request) -> Result<Verdict, String> {
    let (new, old) = (pod(&request.object)?, pod(&request.old_object)?);
    let none = BTreeMap::new();
    let mut mistakes = changes(
        new.metadata.annotations.as_ref().unwrap_or(&none),
        old.metadata.annotations.as_ref().unwrap_or(&none),
        keys::PREFIX,
    );
    mistakes.extend(changes(
        new.metadata.labels.as_ref().unwrap_or(&none),
        old.metadata.labels.as_ref().unwrap_or(&none),
        kubeshare::PREFIX,
    ));
    match Mistakes::some(mistakes) {
        Some(mistakes) => Err(mistakes.to_string()),
        None => Ok(Verdict::Admitted { patch: Vec::new(), warnings: Vec::new() }),
    }
}

fn changes(new: &BTreeMap<String, String>, old: &BTreeMap<String, String>, prefix: &str) -> Vec<Mistake> {
    let keys: BTreeSet<&String> =
        new.keys().chain(old.keys()).filter(|key| key.starts_with(prefix)).collect();
    let changed = keys.into_iter().filter(|key| new.get(*key) != old.get(*key));
    let mistake = |key: &String| {
        let allowed = match old.get(key) {
            Some(value) => format!("{value:?} cannot change after the pod's creation; make a new pod"),
            None => "it cannot be added after the pod's creation; make a new pod".to_owned(),
        };
        match new.get(key) {
            Some(value) => Mistake::new(key, value, allowed),
            None => Mistake::missing(key, allowed),
        }
    };
    changed.map(mistake).collect()
}

/// A debugging container in a pod of ours gets no GPU: it has no seat, and the pod's quota is not for it to see.
fn debugged(request: &Request) -> Result<Verdict, String> {
    let pod = pod(&request.object)?;
    let annotated = pod.metadata.annotations.iter().flatten().any(|(key, _)| key.starts_with(keys::PREFIX));
    let Some(spec) = pod.spec.filter(|_| annotated) else {
        return Ok(Verdict::NotOurs);
    };
    let mut mistakes = Vec::new();
    for container in spec.ephemeral_containers.iter().flatten() {
        let place = format!("spec.ephemeralContainers[{}]", container.name);
        let variables = container.env.iter().flatten().filter(|variable| variable.name == VISIBLE_DEVICES);
        for variable in variables.filter(|variable| !super::containers::is_void(variable)) {
            let key = format!("{place}.env[{VISIBLE_DEVICES}]");
            let value = variable.value.clone().unwrap_or_else(|| "valueFrom".to_owned());
            mistakes.push(Mistake::new(key, value, "void or nothing: debugging containers get no GPU"));
        }
        let resources = container.resources.as_ref();
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        if let Some(seats) = limits.and_then(|limits| limits.get(keys::RESOURCE)) {
            let key = format!("{place}.resources.limits[{}]", keys::RESOURCE);
            mistakes.push(Mistake::new(key, &seats.0, "debugging containers get no GPU"));
        }
    }
    match Mistakes::some(mistakes) {
        Some(mistakes) => Err(mistakes.to_string()),
        None => Ok(Verdict::Admitted { patch: Vec::new(), warnings: Vec::new() }),
    }
}
