//! The rule by which bound pods become clients of GPUs, and its application whenever pods or GPUs change. The rule is
//! pure: the same pods and GPUs give the same clients.
//!
//! Annotated pods have an assignment of the scheduler, other pods have prepared claims (`claims`).
//!
//! The agent accepts the scheduler's assignment and checks it. A pod with an impossible assignment (a GPU that is not on this node,
//! more than the GPU has) is refused with a reason; other pods are not affected. Pods that were bound first keep what they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_placement::annotations::{self, GpuRequest};
use sluice_placement::inventory::NodeInventory;
use sluice_placement::{Countable, MemoryUse, on_host};
use sluice_proto::control::Client;
use sluice_units::{Share, WHOLE_PPM};
use tokio::sync::watch;
use tracing::{info, warn};

use super::claims;
use super::client::client;
use super::refusal::Refusal;
use super::suspensions;
use super::{PodView, Pods, PodsWatch};
use crate::prepared_claims::PreparedClaims;
use crate::tasks::replace_if_new;

/// The clients of each GPU, and the pods that were refused.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assignments {
    /// The clients of each GPU by its UUID.
    pub sets: BTreeMap<String, Vec<Client>>,
    /// The GPUs of each pod that has any.
    pub gpus: BTreeMap<String, Vec<String>>,
    /// The GPUs that each pod's annotations or claims assign to it, refused pods included.
    pub named: BTreeMap<String, Vec<String>>,
    /// The pods that have ended.
    pub ended: BTreeSet<String>,
    /// What the pods that are assigned to each GPU request of it, by its UUID. Refused pods and GPUs that are not on this node are
    /// included: the cluster's scheduler subtracts the requests of every bound pod from the node.
    pub requested: BTreeMap<String, Countable>,
    /// Why a pod got nothing, by its uid.
    pub refused: BTreeMap<String, Refusal>,
}

/// What a GPU has not promised to a pod yet.
struct Remaining {
    /// Memory that pods may request.
    usable: u64,
    total: u64,
    share_ppm: u32,
    /// What pods have been promised of all memory. A pod that was bound while more was usable keeps its place.
    promised: MemoryUse,
    /// Memory of the host for what leaves the GPU.
    host: u64,
}

impl Remaining {
    /// Bytes of the host that no pod was promised.
    fn free_on_host(&self) -> u64 {
        self.host.saturating_sub(self.promised.on_host())
    }
}

/// Decides the clients of each GPU. `before` is the previous decision: its pods are considered first, so that a running pod never
/// loses its place to a pod that was bound in the same second.
#[must_use]
pub fn assign(
    pods: &Pods,
    prepared: &PreparedClaims,
    inventory: &NodeInventory,
    before: &Assignments,
) -> Assignments {
    let mut result = Assignments::default();
    let mut remaining: BTreeMap<&str, Remaining> = BTreeMap::new();
    for gpu in &inventory.gpus {
        let (usable, total, host) = (gpu.memory_bytes, gpu.memory_total(), gpu.host_memory_bytes);
        let promised = MemoryUse::default();
        remaining.insert(&gpu.uuid, Remaining { usable, total, share_ppm: WHOLE_PPM, promised, host });
        result.sets.insert(gpu.uuid.clone(), Vec::new());
    }
    result.ended = pods.values().filter(|pod| pod.has_ended).map(|pod| pod.uid.clone()).collect();
    let mut order: Vec<&Arc<PodView>> = pods.values().filter(|pod| !pod.has_ended).collect();
    order.sort_by_key(|pod| (!before.gpus.contains_key(&pod.uid), pod.bound_at, pod.created_at, &pod.uid));
    for pod in order {
        let refusal = match read_request(pod) {
            Ok(None) => continue,
            Ok(Some((request, gpus))) => {
                result.named.insert(pod.uid.clone(), gpus.clone());
                for gpu in &gpus {
                    *result.requested.entry(gpu.clone()).or_default() += requested_of_each(pod, &request);
                }
                let clients = clients_of(pod, &request, &gpus, &remaining, before);
                let refusal = result.give(&pod.uid, gpus, clients, &mut remaining);
                refusal.map(|refusal| because_of_host(refusal, &request, &remaining))
            }
            Err(refusal) => Some(refusal),
        };
        result.refused.extend(refusal.map(|refusal| (pod.uid.clone(), refusal)));
    }
    let mut claiming: Vec<_> = claims::clients(prepared).into_iter().collect();
    claiming.sort_by_key(|(pod_uid, _)| !before.gpus.contains_key(pod_uid));
    for (pod_uid, clients) in claiming {
        let refusal = match clients {
            _ if result.named.contains_key(&pod_uid) => Some(Refusal::AssignedAndClaimed),
            Ok(clients) => {
                let gpus: Vec<String> = clients.keys().cloned().collect();
                result.named.insert(pod_uid.clone(), gpus.clone());
                let is_present = |gpu: &String| remaining.contains_key(gpu.as_str());
                let present = clients.into_iter().filter(|(gpu, _)| is_present(gpu)).collect();
                result.give(&pod_uid, gpus, present, &mut remaining)
            }
            Err(refusal) => Some(refusal),
        };
        result.refused.extend(refusal.map(|refusal| (pod_uid, refusal)));
    }
    // The order does not depend on the order of binding: an unchanged set is not pushed to the manager again.
    for clients in result.sets.values_mut() {
        clients.sort_by(|one, other| one.pod_uid.cmp(&other.pod_uid));
    }
    result
}

/// Whether a pod with these annotations requests a GPU, rightly or wrongly, or has one assigned.
#[must_use]
pub fn uses_sluice(annotations: &BTreeMap<String, String>) -> bool {
    !matches!(
        (GpuRequest::from_annotations(annotations), annotations::assigned(annotations)),
        (Ok(None), Ok(None))
    )
}

/// What the pod's containers request of each of its GPUs together.
fn requested_of_each(pod: &PodView, request: &GpuRequest) -> Countable {
    let of_one = request.demand.countable_per_gpu();
    // Without a container that runs as long as the pod, an init container has the slots.
    Countable { slots: of_one.slots.saturating_mul(pod.long_running.max(1).into()), ..of_one }
}

/// Reads a pod's request and its assigned GPUs; `None` if the pod does not use Sluice.
fn read_request(pod: &PodView) -> Result<Option<(GpuRequest, Vec<String>)>, Refusal> {
    let request = GpuRequest::from_annotations(&pod.annotations).map_err(Refusal::Annotations)?;
    let gpus = annotations::assigned(&pod.annotations).map_err(Refusal::Assignment)?;
    let (request, gpus) = match (request, gpus) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(Refusal::NoRequest),
        (Some(_), None) => return Err(Refusal::NotAssigned),
        (Some(request), Some(gpus)) => (request, gpus),
    };
    let asked = request.demand.gpus as usize;
    if gpus.len() != asked || gpus.iter().collect::<BTreeSet<_>>().len() != gpus.len() {
        return Err(Refusal::WrongCount { asked, given: gpus.len() });
    }
    Ok(Some((request, gpus)))
}

/// The client that the request makes of the pod on each of its GPUs that the node has. A GPU that was absent when the agent started does not
/// end the pod's limits on its other GPUs, which it shares.
///
/// A pod whose memory stays on the GPU keeps it there, also when the host has a place again: its processes have attached without host memory.
fn clients_of(
    pod: &PodView,
    request: &GpuRequest,
    gpus: &[String],
    remaining: &BTreeMap<&str, Remaining>,
    before: &Assignments,
) -> Vec<(String, Client)> {
    let client_on = |gpu: &String| {
        let free = remaining.get(gpu.as_str())?;
        // A pod alone on the GPU needs no room for the contexts of others.
        let is_alone = request.demand.share == Share::ONE;
        let memory_bytes = request.demand.memory_on(if is_alone { free.total } else { free.usable });
        // Without a place on the host its memory stays on the GPU, as far as there is room.
        let may_leave = request.demand.overcommits
            && !before.keeps_on_gpu(&pod.uid, gpu)
            && on_host(memory_bytes) <= free.free_on_host();
        Some((gpu.clone(), client(&pod.uid, &pod.namespace, &pod.name, request, memory_bytes, may_leave)))
    };
    gpus.iter().filter_map(client_on).collect()
}

impl Assignments {
    /// Whether the pod is a client of this GPU whose memory stays there.
    fn keeps_on_gpu(&self, pod_uid: &str, gpu: &str) -> bool {
        let clients = self.sets.get(gpu).into_iter().flatten();
        clients.filter(|client| client.pod_uid == pod_uid).any(|client| !client.overcommit)
    }

    /// Makes these clients of a pod with these GPUs, all of them or none. Returns why not.
    fn give(
        &mut self,
        pod_uid: &str,
        gpus: Vec<String>,
        clients: Vec<(String, Client)>,
        remaining: &mut BTreeMap<&str, Remaining>,
    ) -> Option<Refusal> {
        if let Some(gpu) = gpus.first().filter(|_| clients.is_empty()) {
            return Some(Refusal::ForeignGpu { gpu: gpu.clone() });
        }
        if let Err(refusal) = reserve(&clients, remaining) {
            return Some(refusal);
        }
        for (gpu, client) in clients {
            self.sets.entry(gpu).or_default().push(client);
        }
        self.gpus.insert(pod_uid.to_owned(), gpus);
        None
    }
}

/// A pod whose memory may leave the GPU is refused for the host's memory, if that is why it would have had to stay.
fn because_of_host(refusal: Refusal, request: &GpuRequest, remaining: &BTreeMap<&str, Remaining>) -> Refusal {
    let Refusal::NoMemoryLeft { gpu, free, asked } = refusal else { return refusal };
    let on_gpu = remaining.get(gpu.as_str()).filter(|_| request.demand.overcommits);
    match on_gpu.map(Remaining::free_on_host) {
        Some(free) if free < on_host(asked) => Refusal::NoHostMemoryLeft { gpu, free, asked: on_host(asked) },
        Some(_) | None => Refusal::NoMemoryLeft { gpu, free, asked },
    }
}

/// Reserves what the clients of a pod are promised, or nothing.
fn reserve(clients: &[(String, Client)], remaining: &mut BTreeMap<&str, Remaining>) -> Result<(), Refusal> {
    for (gpu, client) in clients {
        let Some(free) = remaining.get(gpu.as_str()) else { continue };
        if client.quota_ppm > free.share_ppm {
            return Err(Refusal::NoShareLeft {
                gpu: gpu.clone(),
                free_ppm: free.share_ppm,
                asked_ppm: client.quota_ppm,
            });
        }
        let room = free.promised.room(free.total, client.overcommit);
        if client.memory_bytes > room {
            return Err(Refusal::NoMemoryLeft { gpu: gpu.clone(), free: room, asked: client.memory_bytes });
        }
    }
    for (gpu, client) in clients {
        if let Some(free) = remaining.get_mut(gpu.as_str()) {
            free.share_ppm -= client.quota_ppm;
            free.promised = free.promised.and(client.memory_bytes, client.overcommit);
        }
    }
    Ok(())
}

/// Publishes the assignments whenever pods, claims or GPUs change, until these no longer come. `on_refusal` is called once for
/// each refusal, `on_suspension` for each pod that has been suspended (`true`) or resumed since the agent knows its pods.
pub async fn publish_assignments(
    assignments: watch::Sender<Option<Arc<Assignments>>>,
    mut pods: PodsWatch,
    mut prepared: watch::Receiver<Arc<PreparedClaims>>,
    mut inventory: watch::Receiver<NodeInventory>,
    mut on_refusal: impl FnMut(&PodView, &Refusal),
    mut on_suspension: impl FnMut(&PodView, bool),
) {
    loop {
        let known = pods.borrow_and_update().clone();
        let gpus = inventory.borrow_and_update().clone();
        let claims = Arc::clone(&prepared.borrow_and_update());
        if let Some(known) = known {
            let is_first = assignments.borrow().is_none();
            let before = assignments.borrow().clone().unwrap_or_default();
            let now = assign(&known, &claims, &gpus, &before);
            // The same reason with other numbers is not reported again.
            let kind = std::mem::discriminant::<Refusal>;
            let is_new = |uid: &str, why| before.refused.get(uid).map(kind) != Some(kind(why));
            for (uid, why) in now.refused.iter().filter(|(uid, why)| is_new(uid, why)) {
                if let Some(pod) = known.get(uid) {
                    warn!(pod = pod.full_name(), uid, %why, "the pod gets no GPU");
                    on_refusal(pod, why);
                }
            }
            // What is suspended already when the agent starts, an earlier agent has reported.
            let changes = if is_first { Vec::new() } else { suspensions::changes(&before.sets, &now.sets) };
            for (pod, suspended) in
                changes.iter().filter_map(|(uid, suspended)| Some((known.get(*uid)?, *suspended)))
            {
                info!(pod = pod.full_name(), suspended, "the pod was suspended or resumed");
                on_suspension(pod, suspended);
            }
            assignments.send_if_modified(|last| replace_if_new(last, Some(Arc::new(now))));
        }
        tokio::select! {
            changed = pods.changed() => if changed.is_err() { return },
            // Without DRA there is no driver that prepares claims, so this branch is disabled.
            Ok(()) = prepared.changed() => {}
            changed = inventory.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests;
