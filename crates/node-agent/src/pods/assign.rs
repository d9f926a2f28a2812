//! The rule by which pods become clients of GPUs. Pure: the same pods and GPUs give the same clients.
//!
//! What the scheduler assigned is taken as it is, and checked: whatever cannot be true (a GPU that is not here, more than
//! a GPU has) is refused with a reason, for the pod alone. Who came first keeps what they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_core::share::WHOLE_PPM;
use sluice_placement::annotations::{self, Amount, GpuRequest, Mistake, Mistakes, WHOLE_MILLI, keys};
use sluice_placement::inventory::NodeInventory;
use sluice_proto::control::{Class, Client};

use super::{PodView, Pods};
use crate::managers::ClientSets;

/// Who is a client where, and who is not although it should.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assignments {
    /// The clients of each GPU.
    pub sets: ClientSets,
    /// The GPUs of each pod that has any.
    pub gpus: BTreeMap<String, Vec<String>>,
    /// Why a pod got nothing, by its uid.
    pub refused: BTreeMap<String, Refusal>,
}

/// Why a pod gets nothing, in words for its owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its annotations cannot be read.
    #[error("its annotations are not valid: {0}")]
    Annotations(Mistakes),
    /// Its assignment cannot be read.
    #[error("its assignment is not valid: {0}")]
    Assignment(Mistake),
    /// It has an assignment, but asks for nothing.
    #[error("it has {assigned}, but asks for no GPU: there is no {quota} and no {memory}", assigned = keys::ASSIGNED_GPU, quota = keys::QUOTA, memory = keys::MEMORY)]
    NoRequest,
    /// Nobody chose a GPU for it.
    #[error("no GPU was assigned to it ({assigned} is missing): it has to be scheduled by {scheduler}", assigned = keys::ASSIGNED_GPU, scheduler = keys::SCHEDULER_NAME)]
    NotAssigned,
    /// Its assignment names another number of GPUs than it asks for.
    #[error("it asks for {asked} GPU(s), but {assigned} names {given}", assigned = keys::ASSIGNED_GPU)]
    WrongCount {
        /// What it asks for.
        asked: u32,
        /// What it was given.
        given: usize,
    },
    /// Its GPU is not one of this node's.
    #[error("{gpu}, which was assigned to it, is not a GPU of this node")]
    NotHere {
        /// The UUID.
        gpu: String,
    },
    /// More GPU time than there is left.
    #[error("{gpu} has {free} free, {asked} asked", free = milli(*.free_milli), asked = milli(*.asked_milli))]
    NoShareLeft {
        /// The UUID.
        gpu: String,
        /// Thousandths that nobody was promised.
        free_milli: u32,
        /// Thousandths that this pod asks for.
        asked_milli: u32,
    },
    /// More memory than there is left.
    #[error("{gpu} has {free} bytes of memory free, {asked} asked")]
    NoMemoryLeft {
        /// The UUID.
        gpu: String,
        /// Bytes that nobody was promised.
        free: u64,
        /// Bytes that this pod asks for.
        asked: u64,
    },
}

fn milli(share: u32) -> String {
    format!("{}.{:03}", share / WHOLE_MILLI, share % WHOLE_MILLI)
}

/// What a pod takes of each of its GPUs.
struct Claim<'a> {
    pod: &'a PodView,
    request: GpuRequest,
    gpus: Vec<String>,
}

/// What a GPU has left.
struct Left {
    memory_total: u64,
    share_milli: u32,
    memory: u64,
}

/// Who is a client where. `before` is what was decided last time: those pods are looked at first, so that nobody who runs
/// loses its place to somebody who came in the same second.
#[must_use]
pub fn assign(pods: &Pods, inventory: &NodeInventory, before: &Assignments) -> Assignments {
    let mut result = Assignments::default();
    let mut left: BTreeMap<&str, Left> = BTreeMap::new();
    for gpu in &inventory.gpus {
        let memory = gpu.memory_bytes;
        left.insert(&gpu.uuid, Left { memory_total: memory, share_milli: WHOLE_MILLI, memory });
        result.sets.insert(gpu.uuid.clone(), Vec::new());
    }
    let mut order: Vec<&Arc<PodView>> = pods.values().filter(|pod| !pod.has_ended).collect();
    order.sort_by_key(|pod| (!before.gpus.contains_key(&pod.uid), pod.bound_at, pod.created_at, &pod.uid));
    for pod in order {
        let refusal = match claim(pod) {
            Ok(None) => continue,
            Ok(Some(claim)) => match take(&claim, &mut left) {
                Ok(clients) => {
                    for (gpu, client) in claim.gpus.iter().zip(clients) {
                        result.sets.entry(gpu.clone()).or_default().push(client);
                    }
                    result.gpus.insert(pod.uid.clone(), claim.gpus);
                    continue;
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        result.refused.insert(pod.uid.clone(), refusal);
    }
    // One order whoever came when: what did not change is not pushed again.
    for clients in result.sets.values_mut() {
        clients.sort_by(|one, other| one.pod_uid.cmp(&other.pod_uid));
    }
    result
}

/// What a pod asks for and was assigned; `None` if it is none of ours.
fn claim(pod: &PodView) -> Result<Option<Claim<'_>>, Refusal> {
    let request = GpuRequest::from_annotations(&pod.annotations).map_err(Refusal::Annotations)?;
    let gpus = annotations::assigned(&pod.annotations).map_err(Refusal::Assignment)?;
    let (request, gpus) = match (request, gpus) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(Refusal::NoRequest),
        (Some(_), None) => return Err(Refusal::NotAssigned),
        (Some(request), Some(gpus)) => (request, gpus),
    };
    let asked = match request.amount {
        Amount::Share { .. } => 1,
        Amount::Whole { gpus } => gpus,
    };
    if u32::try_from(gpus.len()) != Ok(asked) || gpus.iter().collect::<BTreeSet<_>>().len() != gpus.len() {
        return Err(Refusal::WrongCount { asked, given: gpus.len() });
    }
    Ok(Some(Claim { pod, request, gpus }))
}

/// Takes what the claim asks for from all of its GPUs, or nothing from any.
fn take(claim: &Claim<'_>, left: &mut BTreeMap<&str, Left>) -> Result<Vec<Client>, Refusal> {
    let (asked_milli, limit_milli) = match claim.request.amount {
        Amount::Share { quota_milli, limit_milli } => (quota_milli, limit_milli),
        Amount::Whole { .. } => (WHOLE_MILLI, WHOLE_MILLI),
    };
    let mut clients = Vec::with_capacity(claim.gpus.len());
    for gpu in &claim.gpus {
        let Some(there) = left.get(gpu.as_str()) else { return Err(Refusal::NotHere { gpu: gpu.clone() }) };
        if asked_milli > there.share_milli {
            return Err(Refusal::NoShareLeft {
                gpu: gpu.clone(),
                free_milli: there.share_milli,
                asked_milli,
            });
        }
        let asked = claim.request.memory_on(there.memory_total);
        if asked > there.memory {
            return Err(Refusal::NoMemoryLeft { gpu: gpu.clone(), free: there.memory, asked });
        }
        clients.push(client(claim, asked_milli, limit_milli, asked));
    }
    for (gpu, client) in claim.gpus.iter().zip(&clients) {
        if let Some(there) = left.get_mut(gpu.as_str()) {
            there.share_milli -= asked_milli;
            there.memory -= client.memory_bytes;
        }
    }
    Ok(clients)
}

fn client(claim: &Claim<'_>, quota_milli: u32, limit_milli: u32, memory_bytes: u64) -> Client {
    const PPM: u32 = WHOLE_PPM / WHOLE_MILLI;
    let class =
        if claim.request.priority.is_latency_critical() { Class::LatencyCritical } else { Class::BestEffort };
    Client {
        pod_uid: claim.pod.uid.clone(),
        namespace: claim.pod.namespace.clone(),
        pod: claim.pod.name.clone(),
        class: class.into(),
        quota_ppm: quota_milli * PPM,
        limit_ppm: limit_milli * PPM,
        memory_bytes,
        weight: claim.request.priority.weight(),
        slo_ns: claim.request.slo_ns.unwrap_or(0),
    }
}

#[cfg(test)]
#[path = "assign_tests.rs"]
mod tests;
