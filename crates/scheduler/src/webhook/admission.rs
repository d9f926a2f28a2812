//! The decisions of the two webhooks on a request.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use sluice_placement::annotations::{Mistake, changeable_mistake, keys, kubeshare};

use super::claims;
use super::ephemeral_containers;
use super::output_annotations;
use super::plan::{Plan, Settings, plan};
use super::review::{Decision, Operation, Request};
use super::translation;

/// The sub-resource by which `kubectl debug` adds containers to a running pod.
const DEBUGGING: &str = "ephemeralcontainers";

/// Completes a new pod, or a new debugging container.
pub(super) fn mutate(request: &Request, settings: &Settings) -> Decision {
    if !is_pods(request) {
        return Decision::NotOurs;
    }
    let decision = match (request.operation, request.sub_resource.as_deref()) {
        (Operation::Create, None) => completed(request, settings),
        (Operation::Update, Some(DEBUGGING)) => ephemeral_containers::complete(request),
        _ => Ok(Decision::NotOurs),
    };
    decision.unwrap_or_else(Decision::Refused)
}

/// Decides whether the pod, or the claim, may be created or changed like this.
pub(super) fn validate(request: &Request, settings: &Settings) -> Decision {
    if let Some(decision) = claims::validate(request) {
        return decision;
    }
    if !is_pods(request) {
        return Decision::NotOurs;
    }
    let decision = match (request.operation, request.sub_resource.as_deref()) {
        (Operation::Create, None) => created(request, settings),
        (Operation::Update, None) => updated(request),
        (Operation::Update, Some(DEBUGGING)) => ephemeral_containers::check(request),
        _ => Ok(Decision::NotOurs),
    };
    decision.unwrap_or_else(Decision::Refused)
}

fn is_pods(request: &Request) -> bool {
    request.resource.group.is_empty() && request.resource.resource == "pods"
}

pub(super) fn pod(object: &Value) -> Result<Pod, String> {
    serde::Deserialize::deserialize(object).map_err(|error| format!("the object is no pod: {error}"))
}

fn completed(request: &Request, settings: &Settings) -> Result<Decision, String> {
    let mut pod = pod(&request.object)?;
    let removal = pod.metadata.annotations.as_mut().map(output_annotations::remove_from).unwrap_or_default();
    let plan = plan_of(&pod, request, settings)?;
    if plan.is_none() && removal.patch.is_empty() {
        return Ok(Decision::NotOurs);
    }
    let plan = plan.unwrap_or_default();
    if gets_claim(request, settings) {
        return Ok(Decision::Admitted {
            patch: removal.patch.into_iter().chain(plan.patch).collect(),
            warnings: removal.warnings.into_iter().chain(plan.warnings).collect(),
        });
    }
    // The validating webhook returns the other warnings: it runs last and sees every container. It does not see which choice the user made,
    // and not what was removed.
    Ok(Decision::Admitted {
        patch: removal.patch.into_iter().chain(plan.hints).chain(plan.patch).collect(),
        warnings: removal.warnings.into_iter().chain(plan.choice_warning).collect(),
    })
}

fn gets_claim(request: &Request, settings: &Settings) -> bool {
    settings.claims_in.contains(request.namespace.as_deref().unwrap_or_default())
}

fn plan_of(pod: &Pod, request: &Request, settings: &Settings) -> Result<Option<Plan>, String> {
    let plan = if gets_claim(request, settings) { translation::plan } else { plan };
    plan(pod, settings).map_err(|mistakes| mistakes.to_string())
}

fn created(request: &Request, settings: &Settings) -> Result<Decision, String> {
    let plan = plan_of(&pod(&request.object)?, request, settings)?;
    let Some(plan) = plan else {
        return Ok(Decision::NotOurs);
    };
    if plan.patch.is_empty() {
        return Ok(Decision::Admitted { patch: Vec::new(), warnings: plan.warnings });
    }
    let missing = serde_json::to_string(&plan.patch).map_err(|error| error.to_string())?;
    Err(format!(
        "the pod lacks what Sluice's mutating webhook adds; another webhook took it away, or that webhook is not \
         configured: {missing}"
    ))
}

/// Annotations of Sluice cannot change after creation: node and GPU were chosen by them. Those that the choice does not depend on can.
fn updated(request: &Request) -> Result<Decision, String> {
    let (new, old) = (pod(&request.object)?, pod(&request.old_object)?);
    let none = BTreeMap::new();
    let annotations = new.metadata.annotations.as_ref().unwrap_or(&none);
    let before = old.metadata.annotations.as_ref().unwrap_or(&none);
    let mut mistakes = changes(annotations, before, keys::PREFIX);
    mistakes.extend(wrong_changes(annotations, before));
    mistakes.extend(changes(
        new.metadata.labels.as_ref().unwrap_or(&none),
        old.metadata.labels.as_ref().unwrap_or(&none),
        kubeshare::PREFIX,
    ));
    Decision::admitted_unless(mistakes)
}

fn changes(new: &BTreeMap<String, String>, old: &BTreeMap<String, String>, prefix: &str) -> Vec<Mistake> {
    let is_fixed = |key: &&String| key.starts_with(prefix) && !keys::CHANGEABLE.contains(&key.as_str());
    let keys: BTreeSet<&String> = new.keys().chain(old.keys()).filter(is_fixed).collect();
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

/// Wrong new values of the keys that may change. They mean something only on a pod that requests a GPU.
fn wrong_changes(new: &BTreeMap<String, String>, old: &BTreeMap<String, String>) -> Vec<Mistake> {
    let requests = |key: &str| keys::USER.contains(&key) && !keys::CHANGEABLE.contains(&key);
    let has_request = old.keys().any(|key| requests(key));
    let changed = keys::CHANGEABLE.iter().filter_map(|key| Some((*key, new.get(*key)?)));
    let changed = changed.filter(|(key, value)| old.get(*key) != Some(value));
    let mistake = |(key, value): (&str, &String)| {
        let elsewhere = || Mistake::new(key, value, "only on a pod whose annotations request a GPU");
        changeable_mistake(key, value).or_else(|| (!has_request).then(elsewhere))
    };
    changed.filter_map(mistake).collect()
}
