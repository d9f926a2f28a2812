//! Events about violations: on the pod, as soon as its manager has counted one. A pod that the manager wants evicted is passed on.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_proto::control::Violation;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::events::{EventQueue, Reason, about_pod};
use super::evictions::{Cause, Eviction};
use crate::managers::{ManagerCommand, ManagerStatus, control_client};
use crate::pods::PodsWatch;

/// Pause after a question that was not answered: the manager starts, or starts again.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks all managers for violations, until their statuses end.
pub async fn publish(
    command: ManagerCommand,
    mut managers: watch::Receiver<BTreeMap<String, ManagerStatus>>,
    pods: PodsWatch,
    events: EventQueue,
    evictions: UnboundedSender<Eviction>,
) {
    let announcer = Announcer { pods, events, evictions };
    let mut asked = BTreeMap::new();
    // Aborts all tasks when it is dropped.
    let mut tasks = JoinSet::new();
    loop {
        let gpus: Vec<String> = managers.borrow_and_update().keys().cloned().collect();
        for gpu in &gpus {
            asked
                .entry(gpu.clone())
                .or_insert_with(|| tasks.spawn(follow(command.clone(), gpu.clone(), announcer.clone())));
        }
        asked.retain(|gpu, task| {
            let stays = gpus.contains(gpu);
            if !stays {
                task.abort();
            }
            stays
        });
        if managers.changed().await.is_err() {
            return;
        }
    }
}

async fn follow(command: ManagerCommand, gpu: String, mut announcer: Announcer) {
    // A violation of a pod that is not known yet would be lost. An error means that the agent ends.
    let _ = announcer.pods.wait_for(Option::is_some).await;
    let (socket, mut after) = (command.control(&gpu), 0);
    loop {
        match control_client::violations(&socket, after).await {
            Ok(answer) => {
                after = answer.last;
                answer.violations.iter().for_each(|violation| announcer.announce(violation, &gpu));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[derive(Clone)]
struct Announcer {
    pods: PodsWatch,
    events: EventQueue,
    evictions: UnboundedSender<Eviction>,
}

impl Announcer {
    fn announce(&self, violation: &Violation, gpu: &str) {
        let known = self.pods.borrow().clone().unwrap_or_default();
        let Some(pod) = known.get(&violation.pod_uid) else { return };
        let Violation { kind, pid, note, .. } = violation;
        let reason = format!("{kind} on {gpu} by process {pid}: {note}");
        self.events.publish(about_pod(pod), Reason::LimitViolated, reason.clone());
        if violation.evict {
            // Without a receiver the agent ends.
            let _ = self.evictions.send(Eviction {
                pod: pod.clone(),
                cause: Cause::Violation,
                reason,
                cause_ended: CancellationToken::new(),
            });
        }
    }
}
