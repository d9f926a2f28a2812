//! The pods with prepared claims. The shares of a pod on one GPU are added up, because a client is a pod.

use std::collections::BTreeMap;

use sluice_placement::annotations::GpuRequest;
use sluice_proto::control::Client;
use sluice_units::WHOLE_PPM;

use super::{Assignments, Refusal, Remaining, client};
use crate::dra::{PreparedClaim, PreparedClaims};

/// Makes clients of the pods with claims, those of the previous decision first.
pub(super) fn assign(
    prepared: &PreparedClaims,
    before: &Assignments,
    remaining: &mut BTreeMap<&str, Remaining>,
    result: &mut Assignments,
) {
    let mut by_pod: BTreeMap<&str, Vec<&PreparedClaim>> = BTreeMap::new();
    for claim in prepared.values() {
        by_pod.entry(&claim.pod_uid).or_default().push(claim);
    }
    let mut order: Vec<_> = by_pod.into_iter().collect();
    order.sort_by_key(|(pod_uid, _)| !before.gpus.contains_key(*pod_uid));
    for (pod_uid, claims) in order {
        if result.named.contains_key(pod_uid) {
            result.refused.insert(pod_uid.to_owned(), Refusal::AssignedAndClaimed);
            continue;
        }
        let refusal = match clients(&claims) {
            Ok(clients) => {
                let gpus: Vec<String> = clients.keys().cloned().collect();
                result.named.insert(pod_uid.to_owned(), gpus.clone());
                let present = clients.into_iter().filter(|(gpu, _)| remaining.contains_key(gpu.as_str()));
                let present = present.collect();
                result.give(pod_uid, gpus, present, remaining)
            }
            Err(refusal) => Some(refusal),
        };
        result.refused.extend(refusal.map(|refusal| (pod_uid.to_owned(), refusal)));
    }
}

/// The pod's client on each GPU.
fn clients(claims: &[&PreparedClaim]) -> Result<BTreeMap<String, Client>, Refusal> {
    let mut found: BTreeMap<String, Client> = BTreeMap::new();
    for claim in claims {
        for share in &claim.shares {
            let request = GpuRequest::from_annotations(&share.annotations).map_err(Refusal::Annotations)?;
            let request = request.ok_or(Refusal::NoRequest)?;
            let memory_bytes = request.demand.memory_bytes.unwrap_or(0);
            let new = client(&claim.pod_uid, &claim.namespace, &claim.pod, &request, memory_bytes);
            match found.get_mut(&share.gpu) {
                Some(sum) => add(&share.gpu, sum, &new)?,
                None => _ = found.insert(share.gpu.clone(), new),
            }
        }
    }
    Ok(found)
}

fn add(gpu: &str, sum: &mut Client, more: &Client) -> Result<(), Refusal> {
    let differs = |what| Err(Refusal::SharesDiffer { gpu: gpu.to_owned(), what });
    if sum.class != more.class {
        return differs("priorities");
    }
    if sum.slo_ns != more.slo_ns {
        return differs("latency goals");
    }
    if sum.gang != more.gang {
        return differs("gangs");
    }
    sum.quota_ppm = sum.quota_ppm.saturating_add(more.quota_ppm);
    sum.limit_ppm = sum.limit_ppm.saturating_add(more.limit_ppm).min(WHOLE_PPM);
    sum.memory_bytes = sum.memory_bytes.saturating_add(more.memory_bytes);
    Ok(())
}
