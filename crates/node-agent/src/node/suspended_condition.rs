//! The condition `sluice.dev/Suspended` of pods. It is `True` while the managers of all GPUs of a suspended pod withhold its grants. A pod that was
//! never suspended has no such condition.
//!
//! The agent compares what the managers report with the pod itself. So a new agent needs no record of what an earlier one has written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_placement::annotations::keys;
use sluice_proto::control::SnapshotResponse;
use sluice_rate_limiter::Backoff;
use tracing::{info, warn};

use crate::managers::{ManagerCommand, control_client};
use crate::pods::{Assignments, AssignmentsWatch, PodView, Pods, PodsWatch};

/// Minimum time between two rounds of questions to the managers, and of writes.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(500);
/// Time between rounds while nothing is expected to change. A manager may have ended and been restarted meanwhile.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a manager may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long the watch may take to deliver what was written.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// A pod that is suspended, or whose condition says so.
#[derive(Debug, Clone, PartialEq)]
struct Concerned {
    pod: Arc<PodView>,
    /// Its annotation suspends it.
    is_to_be: bool,
    /// The GPUs of which it is a client.
    gpus: Vec<String>,
}

/// Writes the conditions until pods or assignments no longer come.
pub async fn publish(
    client: Client,
    command: ManagerCommand,
    mut pods: PodsWatch,
    mut assignments: AssignmentsWatch,
) {
    let mut backoff = Backoff::new(BETWEEN_ROUNDS, LONGEST_PAUSE);
    loop {
        let known = pods.borrow_and_update().clone().unwrap_or_default();
        let assigned = assignments.borrow_and_update().clone().unwrap_or_default();
        let concerned = concerned(&known, &assigned);
        let reports = reports(&command, &concerned).await;
        let (mut written, mut has_failed, mut is_settled) = (Vec::new(), false, true);
        for one in &concerned {
            let withheld = is_withheld(one, &reports);
            is_settled &= withheld == Some(one.is_to_be);
            let Some(suspended) = withheld.filter(|withheld| differs(&one.pod, *withheld)) else { continue };
            match write(&client, &one.pod, suspended).await {
                Ok(()) => written.push((one.pod.uid.clone(), suspended)),
                Err(why) => {
                    warn!(pod = one.pod.full_name(), %why, "cannot write the condition {}", keys::SUSPENDED_CONDITION);
                    has_failed = true;
                }
            }
        }
        if !written.is_empty() {
            // Before the watch has delivered it, the next round would write it again.
            let is_seen = |pods: &Option<Arc<Pods>>| {
                let seen = |uid| pods.as_ref()?.get(uid)?.suspended;
                let is_gone = |uid| pods.as_ref().is_none_or(|pods| !pods.contains_key(uid));
                written.iter().all(|(uid, suspended)| is_gone(uid) || seen(uid) == Some(*suspended))
            };
            // Without an answer the agent ends, or the next round writes it again.
            let _ = tokio::time::timeout(SEEN_WITHIN, pods.wait_for(is_seen)).await;
        }
        if has_failed {
            tokio::time::sleep(backoff.next_delay()).await;
            continue;
        }
        backoff.succeeded();
        tokio::time::sleep(BETWEEN_ROUNDS).await;
        if !written.is_empty() || !is_settled {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(CHECK_EVERY), if !concerned.is_empty() => {}
            changed = pods.changed() => if changed.is_err() { return },
            changed = assignments.changed() => if changed.is_err() { return },
        }
    }
}

fn concerned(known: &Pods, assigned: &Assignments) -> Vec<Concerned> {
    let mut found: BTreeMap<&str, Concerned> = BTreeMap::new();
    for (gpu, clients) in &assigned.sets {
        for client in clients {
            let Some(pod) = known.get(&client.pod_uid) else { continue };
            if !client.suspended && pod.suspended != Some(true) {
                continue;
            }
            let (pod, is_to_be, gpus) = (pod.clone(), client.suspended, Vec::new());
            found.entry(&client.pod_uid).or_insert(Concerned { pod, is_to_be, gpus }).gpus.push(gpu.clone());
        }
    }
    found.into_values().collect()
}

/// What the managers of these pods report, by the UUID of their GPU. Those that do not answer are left out.
async fn reports(command: &ManagerCommand, concerned: &[Concerned]) -> BTreeMap<String, SnapshotResponse> {
    let mut reports = BTreeMap::new();
    let mut gpus: Vec<&String> = concerned.iter().flat_map(|one| &one.gpus).collect();
    gpus.sort_unstable();
    gpus.dedup();
    for gpu in gpus {
        if let Ok(report) = control_client::snapshot(&command.control(gpu), ANSWER_WITHIN).await {
            reports.insert(gpu.clone(), report);
        }
    }
    reports
}

/// Whether the pod gets no grants on any of its GPUs. `None` while a manager does not answer or does not have the pod yet: it starts.
fn is_withheld(one: &Concerned, reports: &BTreeMap<String, SnapshotResponse>) -> Option<bool> {
    let of_pod = |gpu: &String| {
        let is_pod = |client: &sluice_proto::control::Client| client.pod_uid == one.pod.uid;
        let clients = &reports.get(gpu)?.clients;
        clients.iter().find(|usage| usage.client.as_ref().is_some_and(is_pod))
    };
    let withheld: Option<Vec<bool>> =
        one.gpus.iter().map(|gpu| of_pod(gpu).map(|usage| usage.grants_withheld)).collect();
    withheld.map(|all| all.into_iter().all(|withheld| withheld))
}

fn differs(pod: &PodView, suspended: bool) -> bool {
    pod.suspended.unwrap_or(false) != suspended
}

async fn write(client: &Client, pod: &PodView, suspended: bool) -> kube::Result<()> {
    let (status, reason, message) = if suspended {
        ("True", "Suspended", "the pod gets no GPU time while it has the annotation sluice.dev/suspend")
    } else {
        ("False", "NotSuspended", "the pod gets GPU time")
    };
    let condition = PodCondition {
        type_: keys::SUSPENDED_CONDITION.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: Some(Time(Timestamp::now())),
        ..PodCondition::default()
    };
    // The API server refuses the patch if another pod has this name by now. It merges conditions by their type.
    let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    info!(pod = pod.full_name(), suspended, "wrote the condition {}", keys::SUSPENDED_CONDITION);
    Ok(())
}

#[cfg(test)]
mod tests;
