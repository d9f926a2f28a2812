//! What a pod requests, in any of three forms: Sluice's annotations, extended resources, or KubeShare's labels.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use sluice_placement::annotations::{GpuRequest, Mistake, Mistakes, keys, kubeshare};

use super::amounts::StatedRequest;
use super::containers::PodContainer;

/// A pod's request, and the annotations to add for it.
#[derive(Debug)]
pub(super) struct PodRequest {
    pub(super) request: GpuRequest,
    /// Annotations that express a request given in another form.
    pub(super) added: BTreeMap<String, String>,
    pub(super) warnings: Vec<String>,
}

/// Reads the pod's request; `None` if it requests no GPU of Sluice.
pub(super) fn read_pod_request(
    pod: &Pod,
    containers: &[PodContainer<'_>],
) -> Result<Option<PodRequest>, Mistakes> {
    let none = BTreeMap::new();
    let stated = pod.metadata.annotations.as_ref().unwrap_or(&none);
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    let mut mistakes = misplaced(labels, stated);
    let translation = kubeshare::translate(labels, stated).unwrap_or_else(|more| {
        mistakes.extend(more);
        kubeshare::Translation::default()
    });
    let mut all = translation.annotations;
    all.extend(stated.clone());
    let amounts = StatedRequest::read(containers, &mut mistakes);
    let slots = named_slots(containers).unwrap_or_else(|more| {
        mistakes.extend(more);
        None
    });
    let derived = amounts.add_annotations(&mut all, slots.as_ref().map(|(_, slots)| *slots), &mut mistakes);
    let has_amount =
        [keys::GPUS, keys::QUOTA, keys::MEMORY, keys::LIMIT].iter().any(|key| all.contains_key(*key));
    if let Some((_, slots)) = slots.as_ref().filter(|_| !has_amount) {
        // Only the resource: this number of whole GPUs.
        all.insert(keys::QUOTA.to_owned(), slots.to_string());
    }
    let request = GpuRequest::admit(&all).unwrap_or_else(|more| {
        mistakes.extend(more.into_iter().map(|mistake| match derived.get(mistake.key.as_str()) {
            // The pod has no such annotation: the mistake is where the value stands.
            Some(stated) => Mistake::new(&stated.path, stated.text, mistake.allowed),
            None => mistake,
        }));
        None
    });
    if let Some(request) = &request {
        mistakes.extend(amounts.conflicts(&request.demand, &all));
    }
    if let (Some(request), Some((key, slots))) = (&request, slots)
        && slots != u64::from(request.demand.gpus)
    {
        let allowed = format!("{} is what the pod's annotations come to", request.demand.gpus);
        mistakes.push(Mistake::new(key, slots.to_string(), allowed));
    }
    Mistakes::check(mistakes)?;
    all.retain(|key, _| !stated.contains_key(key));
    Ok(request.map(|request| PodRequest { request, added: all, warnings: translation.warnings }))
}

/// Keys at a place where they have no effect, and the key that users may not write.
fn misplaced(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Vec<Mistake> {
    let as_labels = labels.iter().filter(|(key, _)| keys::USER.contains(&key.as_str()));
    let mut mistakes: Vec<Mistake> =
        as_labels.map(|(key, value)| Mistake::new(key, value, "an annotation, not a label")).collect();
    if let Some(value) = annotations.get(keys::ASSIGNED_GPU) {
        mistakes.push(Mistake::new(keys::ASSIGNED_GPU, value, "only the scheduler writes it; leave it out"));
    }
    mistakes
}

/// The device slots that containers request themselves, and where. All have to request the same number.
fn named_slots(containers: &[PodContainer<'_>]) -> Result<Option<(String, u64)>, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let mut named: Option<(String, u64)> = None;
    for container in containers {
        let key = format!("{}.resources[{}]", container.shown(), keys::RESOURCE);
        match (container.device_slots(), &named) {
            (Err(mistake), _) => mistakes.push(mistake),
            (Ok(Some(slots)), None) if slots > 0 => named = Some((key, slots)),
            (Ok(Some(slots)), Some((first, wanted))) if slots > 0 && slots != *wanted => {
                mistakes.push(Mistake::new(key, slots.to_string(), format!("{wanted}, as in {first}")));
            }
            (Ok(_), _) => {}
        }
    }
    if mistakes.is_empty() { Ok(named) } else { Err(mistakes) }
}
