//! An allocated claim to the shares of GPUs that it promises to its pod. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
};
use sluice_placement::annotations::{Amount, GpuRequest, keys, parse_quantity};
use sluice_placement::countable::WHOLE_MILLI;
use sluice_placement::inventory::NodeInventory;
use sluice_placement::share_config::{self, MEMORY, MILLI};

use super::device::device_name;
use crate::prepared_claims::{DRIVER, GpuShare, PreparedClaim};

/// All mistakes in a claim; never empty.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub(super) struct ClaimMistakes(Vec<String>);

/// Reads a claim whose devices of this node are to be prepared.
///
/// # Errors
/// Every mistake at once: where, what was found, what was expected.
pub(super) fn read(
    claim: &ResourceClaim,
    node: &str,
    inventory: &NodeInventory,
) -> Result<PreparedClaim, ClaimMistakes> {
    let mut mistakes = Vec::new();
    let status = claim.status.as_ref();
    let pods = status.and_then(|status| status.reserved_for.as_deref()).unwrap_or_default();
    let pod = match pods {
        [pod] if pod.resource == "pods" => Some(pod),
        [other] => {
            mistakes.push(format!("it is reserved for {} {}, expected a pod", other.resource, other.name));
            None
        }
        several => {
            mistakes.push(format!(
                "it is reserved for {} pods, expected one: a share belongs to one pod",
                several.len()
            ));
            None
        }
    };
    let mut shares = Vec::new();
    match status.and_then(|status| status.allocation.as_ref()) {
        Some(allocation) => shares = read_allocation(allocation, node, inventory, &mut mistakes),
        None => mistakes.push("it has no allocation".to_owned()),
    }
    match pod {
        Some(pod) if mistakes.is_empty() => Ok(PreparedClaim {
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            name: claim.metadata.name.clone().unwrap_or_default(),
            pod_uid: pod.uid.clone(),
            pod: pod.name.clone(),
            shares,
        }),
        _ => Err(ClaimMistakes(mistakes)),
    }
}

fn read_allocation(
    allocation: &AllocationResult,
    node: &str,
    inventory: &NodeInventory,
    mistakes: &mut Vec<String>,
) -> Vec<GpuShare> {
    let devices = allocation.devices.clone().unwrap_or_default();
    let settings = Settings::read(devices.config.as_deref().unwrap_or_default(), mistakes);
    let results = devices.results.unwrap_or_default();
    let ours: Vec<_> = results.iter().filter(|result| result.driver == DRIVER).collect();
    if ours.is_empty() {
        mistakes.push(format!("it has no device of the driver {DRIVER}"));
    }
    let read = |result| read_share(result, node, inventory, &settings, mistakes);
    ours.into_iter().filter_map(read).collect()
}

fn read_share(
    result: &DeviceRequestAllocationResult,
    node: &str,
    inventory: &NodeInventory,
    settings: &Settings,
    mistakes: &mut Vec<String>,
) -> Option<GpuShare> {
    let request = &result.request;
    let mut wrong = Vec::new();
    if result.pool != node {
        wrong.push(format!("its device is of the pool {}, expected {node}", result.pool));
    }
    if result.admin_access == Some(true) {
        wrong.push("adminAccess is true, but it promises nothing, expected a share".to_owned());
    }
    let gpu = inventory.gpus.iter().find(|gpu| device_name(&gpu.uuid) == result.device);
    if gpu.is_none() {
        wrong.push(format!("{} is no GPU of node {node}", result.device));
    }
    let consumed = |name: &str| {
        let consumed = result.consumed_capacity.as_ref()?.get(name)?;
        parse_quantity(&consumed.0)
    };
    let mut annotations = settings.of(request);
    match consumed(MILLI) {
        // Without a request the client gets what the others leave.
        Some(0) => {}
        Some(milli) if milli <= WHOLE_MILLI => {
            annotations
                .extend(Amount::from_milli(milli).map(|share| (keys::QUOTA.to_owned(), share.to_string())));
        }
        Some(milli) => {
            wrong.push(format!("consumedCapacity.milli is {milli}, expected at most {WHOLE_MILLI}"))
        }
        None => wrong.push(no_capacity(MILLI)),
    }
    match consumed(MEMORY) {
        Some(bytes) => _ = annotations.insert(keys::MEMORY.to_owned(), bytes.to_string()),
        None => wrong.push(no_capacity(MEMORY)),
    }
    if let Err(found) = GpuRequest::from_annotations(&annotations) {
        wrong.extend(found.iter().map(|mistake| share_config::in_words_of_claims(&mistake.to_string())));
    }
    mistakes.extend(wrong.into_iter().map(|text| format!("request {request}: {text}")));
    Some(GpuShare {
        gpu: gpu?.uuid.clone(),
        request: base(request).to_owned(),
        share_id: result.share_id.clone(),
        annotations,
    })
}

fn no_capacity(name: &str) -> String {
    format!(
        "consumedCapacity has no {name}, which a cluster with DRAConsumableCapacity (Kubernetes 1.36) writes"
    )
}

/// The request of a subrequest `request/subrequest`.
fn base(request: &str) -> &str {
    request.split_once('/').map_or(request, |(base, _)| base)
}

/// The configurations of an allocation for this driver, those of the class first.
struct Settings(Vec<Setting>);

struct Setting {
    /// The requests that it is for; empty: all.
    requests: Vec<String>,
    annotations: BTreeMap<String, String>,
}

impl Settings {
    fn read(configs: &[DeviceAllocationConfiguration], mistakes: &mut Vec<String>) -> Self {
        let mut ordered: Vec<_> = configs.iter().collect();
        // A stable sort: later entries of one source take precedence over earlier ones.
        ordered.sort_by_key(|config| config.source != "FromClass");
        let mut settings = Vec::new();
        for config in ordered {
            let Some(opaque) = config.opaque.as_ref().filter(|opaque| opaque.driver == DRIVER) else {
                continue;
            };
            let annotations = share_config::annotations(&opaque.parameters.0, mistakes);
            settings.push(Setting { requests: config.requests.clone().unwrap_or_default(), annotations });
        }
        Self(settings)
    }

    /// What the configurations say about a request. A later one takes precedence key by key.
    fn of(&self, request: &str) -> BTreeMap<String, String> {
        let applies = |setting: &&Setting| {
            let names = &setting.requests;
            names.is_empty() || names.iter().any(|name| name == request || name == base(request))
        };
        let chosen = self.0.iter().filter(applies);
        chosen.flat_map(|setting| setting.annotations.clone()).collect()
    }
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
