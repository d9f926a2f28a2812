//! Replaces the annotations of a pod by a claim (DRA), in the namespaces whose pods get claims.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use sluice_placement::annotations::{Mistake, Mistakes, keys};

use super::choice::{self, Choice};
use super::containers::{self, PodContainer};
use super::patch::{self, Operation};
use super::plan::{DEFAULT_SCHEDULER, Plan, Settings};
use super::pod_request::read_pod_request;
use super::{amounts, compatibility, platform};
use crate::translated::{CLAIM, LABEL, RECORD, claim_spec, record, template_name};

/// What a pod of such a namespace needs; `None` if it requests no GPU of Sluice, or is translated already.
pub(super) fn plan(pod: &Pod, settings: &Settings) -> Result<Option<Plan>, Mistakes> {
    let stated = pod.metadata.annotations.as_ref();
    let Some(spec) = pod.spec.as_ref().filter(|_| stated.is_none_or(|stated| !stated.contains_key(RECORD)))
    else {
        return Ok(None);
    };
    let containers = PodContainer::all(spec);
    let mut mistakes = compatibility::scheduling_mistakes(spec, false);
    let requested = match read_pod_request(pod, &containers) {
        Ok(None) => return Ok(None),
        Ok(Some(requested)) => requested,
        Err(more) => {
            mistakes.extend(more);
            return Mistakes::check(mistakes).map(|()| None);
        }
    };
    mistakes.extend(settings.sandboxes.mistake(spec.runtime_class_name.as_deref()));
    mistakes.extend(platform::mistakes(spec));
    for container in &containers {
        if let Some(resource) = amounts::named_resource(container) {
            let key = format!("{}.resources[{resource}]", container.shown());
            let allowed = "only annotations: pods of this namespace get claims, and no node with claims has this resource";
            mistakes.push(Mistake::missing(key, allowed));
        }
    }
    let choice = choice::choose(pod, &containers, &requested.request).unwrap_or_else(|more| {
        mistakes.extend(more);
        Choice::default()
    });
    let mut annotations = requested.added;
    let own = stated.into_iter().flatten().filter(|(key, _)| key.starts_with(keys::PREFIX));
    annotations.extend(own.clone().map(|(key, value)| (key.clone(), value.clone())));
    // Which containers have the claim is in their own fields.
    annotations.remove(keys::CONTAINER);
    mistakes.extend(claim_spec(&requested.request, &annotations).err());
    Mistakes::check(mistakes)?;

    let record = record(&annotations);
    let mut operations: Vec<Operation> = own.map(|(key, _)| patch::remove_annotation(key)).collect();
    let recorded = [(RECORD.to_owned(), record.clone())].into();
    operations.extend(patch::annotations(stated.is_some(), &recorded));
    operations.extend(patch::label(pod.metadata.labels.as_ref(), LABEL, "true"));
    let entry = json!({"name": CLAIM, "resourceClaimTemplateName": template_name(&record)});
    operations.push(append("/spec/resourceClaims", spec.resource_claims.is_some(), entry));
    if spec.scheduler_name.as_deref() == Some(keys::SCHEDULER_NAME) {
        operations.push(patch::add("/spec/schedulerName".to_owned(), json!(DEFAULT_SCHEDULER)));
    }
    for container in &containers {
        if choice.names.contains(&container.spec.name) {
            operations.push(use_claim(container));
        } else if container.visible().next().is_none() {
            operations.push(patch::variable(
                &container.path(),
                container.spec.env.is_some(),
                containers::void_variable(),
            ));
        }
    }
    let mut warnings = requested.warnings;
    warnings.extend(choice.warning);
    // No webhook sees the pod again: it has no key of Sluice any more.
    Ok(Some(Plan { patch: operations, warnings, ..Plan::default() }))
}

fn use_claim(container: &PodContainer<'_>) -> Operation {
    let (path, used) = (format!("{}/resources", container.path()), json!({"name": CLAIM}));
    match &container.spec.resources {
        None => patch::add(path, json!({"claims": [used]})),
        Some(resources) => append(&format!("{path}/claims"), resources.claims.is_some(), used),
    }
}

/// Adds a member to a list that may be absent.
fn append(path: &str, is_there: bool, member: serde_json::Value) -> Operation {
    if is_there {
        patch::add(format!("{path}/-"), member)
    } else {
        patch::add(path.to_owned(), json!([member]))
    }
}
