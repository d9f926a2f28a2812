//! Evicts pods by the Eviction API: PodDisruptionBudgets are respected, and the pod may end by itself within 30 seconds. A pod that has
//! ended is not evicted: the API server would delete it, and its logs and result would be lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use sluice_rate_limiter::Backoff;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::events::{EventQueue, Reason, about_pod};
use crate::pods::{PodView, Pods, PodsWatch};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long an evicted pod may take to end. The tenant chooses the grace period of its pod, and could choose hours.
const LONGEST_GRACE_SECONDS: i64 = 30;

/// Why a pod is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A process of it violated its limits, and its manager asks for the eviction. The manager stops the process meanwhile.
    Violation,
    /// No program can work on a GPU of it.
    LostGpu,
}

/// A pod to be evicted.
#[derive(Debug)]
pub struct Eviction {
    /// The pod.
    pub pod: Arc<PodView>,
    /// Why.
    pub cause: Cause,
    /// The same for its event.
    pub reason: String,
    /// Cancelled when the cause has ended: the API server is not asked again.
    pub cause_ended: CancellationToken,
}

/// Evicts pods until there is no sender. A pod that is being evicted is not evicted again for the same cause. Each cause has an eviction of
/// its own, because it ends with its cause.
pub async fn serve(
    client: Client,
    pods: PodsWatch,
    events: EventQueue,
    mut requests: UnboundedReceiver<Eviction>,
) {
    let mut running = JoinSet::new();
    let mut active: BTreeMap<(String, Cause), (u64, CancellationToken)> = BTreeMap::new();
    let mut serial = 0;
    loop {
        tokio::select! {
            request = requests.recv() => {
                let Some(eviction) = request else { return };
                let key = (eviction.pod.uid.clone(), eviction.cause);
                if active.get(&key).is_some_and(|(_, cause_ended)| !cause_ended.is_cancelled()) {
                    continue;
                }
                serial += 1;
                active.insert(key.clone(), (serial, eviction.cause_ended.clone()));
                let (client, pods, events) = (client.clone(), pods.clone(), events.clone());
                running.spawn(async move {
                    let cause_ended = eviction.cause_ended.clone();
                    cause_ended.run_until_cancelled(evict(client, eviction, pods, events)).await;
                    (key, serial)
                });
            }
            // A cancelled eviction may end when the next one of its pod and cause has begun.
            Some(Ok((key, ended))) = running.join_next() => {
                if active.get(&key).is_some_and(|(serial, _)| *serial == ended) {
                    active.remove(&key);
                }
            }
        }
    }
}

/// Asks until the pod is evicted, has ended or is gone, then waits until it is gone.
async fn evict(client: Client, eviction: Eviction, mut pods: PodsWatch, events: EventQueue) {
    let Eviction { pod, cause, reason, .. } = eviction;
    let evicted = match cause {
        Cause::Violation => Reason::EvictedForViolation,
        Cause::LostGpu => Reason::EvictedForLostGpu,
    };
    let grace_seconds = pod.grace_seconds.map_or(LONGEST_GRACE_SECONDS, |own| own.min(LONGEST_GRACE_SECONDS));
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    // Another pod may have this name by now. (`Api::evict` of kube 5 misspells the field of these options.)
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": { "gracePeriodSeconds": grace_seconds, "preconditions": { "uid": pod.uid } },
    });
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut was_refused = false;
    let is_running = |pods: &Pods| pods.get(&pod.uid).is_some_and(|known| !known.has_ended);
    while pods.borrow().as_deref().is_some_and(is_running) {
        let answer: Result<Value, Error> =
            api.create_subresource("eviction", &pod.name, &PostParams::default(), &body).await;
        match answer {
            Ok(_) => {
                info!(namespace = pod.namespace, pod = pod.name, "pod is evicted: {reason}");
                events.publish(about_pod(&pod), evicted, format!("evicted: {reason}"));
                break;
            }
            Err(Error::Api(why)) if why.code == 404 => break,
            Err(why) => {
                if !was_refused {
                    warn!(namespace = pod.namespace, pod = pod.name, %why, "pod cannot be evicted, trying again");
                    let note = format!("not evicted yet ({why}), tried again: {reason}");
                    events.publish(about_pod(&pod), Reason::EvictionRefused, note);
                }
                was_refused = true;
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
    // An error means that the agent ends.
    let is_gone =
        |pods: &Option<_>| pods.as_ref().is_some_and(|pods: &Arc<Pods>| !pods.contains_key(&pod.uid));
    let _ = pods.wait_for(is_gone).await;
}

#[cfg(test)]
mod tests;
