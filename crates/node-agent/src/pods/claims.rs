//! The pods with prepared claims. The shares of a pod on one GPU are added up, because a client is a pod.

use std::collections::BTreeMap;

use sluice_placement::annotations::GpuRequest;
use sluice_proto::control::Client;
use sluice_units::WHOLE_PPM;

use super::client::client;
use super::refusal::Refusal;
use crate::prepared_claims::{PreparedClaim, PreparedClaims};

/// The client of each GPU of each pod with claims, by the pod's uid; or why its claims make none.
pub(super) fn clients(
    prepared: &PreparedClaims,
) -> BTreeMap<String, Result<BTreeMap<String, Client>, Refusal>> {
    let mut by_pod: BTreeMap<&str, Vec<&PreparedClaim>> = BTreeMap::new();
    for claim in prepared.values() {
        by_pod.entry(&claim.pod_uid).or_default().push(claim);
    }
    by_pod.into_iter().map(|(pod_uid, claims)| (pod_uid.to_owned(), clients_of(&claims))).collect()
}

/// The pod's client on each GPU.
fn clients_of(claims: &[&PreparedClaim]) -> Result<BTreeMap<String, Client>, Refusal> {
    let mut found: BTreeMap<String, Client> = BTreeMap::new();
    for claim in claims {
        for share in &claim.shares {
            let request = GpuRequest::from_annotations(&share.annotations).map_err(Refusal::Annotations)?;
            let request = request.ok_or(Refusal::NoRequest)?;
            let memory_bytes = request.demand.memory_bytes.unwrap_or(0);
            let new = client(&claim.pod_uid, &claim.namespace, &claim.pod, &request, memory_bytes, false);
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
