//! Publishes whether the path in force is proven: log, Event on the node, metric, annotation of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::pod_containers::{Lack, look};
use super::proof::{OwnPath, Proof};
use crate::node::events::{EventQueue, Reason, about_node, about_pod};
use crate::nri::{InForce, Injection};
use crate::pods::{AssignmentsWatch, PodView, PodsWatch};
use crate::tasks::replace_if_new;

/// Time between two looks at the containers of which it is not known. A container that is just being created has a process before it has
/// its mounts, so one lacks the driver only if a look this much later finds the same.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Minimum time between two looks. A look reads all of /proc, and tenants choose how often their pods change.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// How long the follower waits for a look. The file system of a tenant may keep one waiting; no other look begins before its end.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// What [`follow`] needs.
#[derive(Debug)]
pub struct Inputs {
    /// The node's name.
    pub node: String,
    /// The /proc of the node.
    pub proc: PathBuf,
    /// The path by which the agent's own container got the driver. NVML answers in it.
    pub own_path: OwnPath,
    /// The path in force.
    pub in_force: watch::Receiver<InForce>,
    /// The node's pods.
    pub pods: PodsWatch,
    /// The GPUs of the pods.
    pub assignments: AssignmentsWatch,
}

/// Reports that the agent's own container has no driver.
pub fn report_no_driver(
    node: &str,
    injection: Injection,
    why: &str,
    proof: &watch::Sender<Proof>,
    events: &EventQueue,
) {
    let asked = match injection {
        Injection::Nri => "NRI and the CDI device `all` are to give it",
        Injection::Auto => "NRI and the CDI device `all`, or NVIDIA's container runtime, are to give it",
        Injection::Runtime => {
            "NVIDIA's container runtime is to give it for NVIDIA_VISIBLE_DEVICES=all; a hardened runtime ignores the variable in \
             unprivileged containers"
        }
    };
    let note = format!(
        "the node agent's container has no driver, so the node offers no device slots: {why}. {asked}"
    );
    error!("{note}");
    events.publish(about_node(node), Reason::InjectionUnavailable, note);
    proof.send_replace(Proof::NotInAgent(why.to_owned()));
}

/// Publishes what is known, until the inputs end.
pub async fn follow(mut inputs: Inputs, proof: watch::Sender<Proof>, events: EventQueue) {
    // Until then it is unknown which containers existed before the path.
    if inputs.pods.wait_for(Option::is_some).await.is_err()
        || inputs.assignments.wait_for(Option::is_some).await.is_err()
    {
        return;
    }
    let mut follower = Follower {
        path: None,
        settled: BTreeSet::new(),
        lacking: BTreeMap::new(),
        absent: BTreeMap::new(),
        proof,
        events,
    };
    let mut running: Option<JoinHandle<Looked>> = None;
    loop {
        let in_force = inputs.in_force.borrow_and_update().clone();
        let candidates = candidates(&inputs);
        follower.begin_path(&in_force, inputs.own_path, &candidates);
        follower.settled.retain(|id| candidates.contains_key(id));
        follower.lacking.retain(|id, _| candidates.contains_key(id));
        follower.absent.retain(|id, _| candidates.contains_key(id));
        let unknown: BTreeMap<String, usize> = candidates
            .iter()
            .filter(|(id, _)| !follower.settled.contains(*id))
            .map(|(id, candidate)| (id.clone(), candidate.gpus))
            .collect();
        if in_force.label().is_some() && !unknown.is_empty() {
            let proc = inputs.proc.clone();
            let look = running.get_or_insert_with(|| {
                tokio::task::spawn_blocking(move || Looked { found: look(&proc, &unknown), sought: unknown })
            });
            if let Ok(looked) = tokio::time::timeout(LONGEST_LOOK, look).await {
                running = None;
                follower.apply(&inputs.node, looked.unwrap_or_default(), &candidates);
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        let is_pending = candidates.keys().any(|id| !follower.settled.contains(id));
        tokio::select! {
            changed = inputs.in_force.changed() => if changed.is_err() { return },
            changed = inputs.pods.changed() => if changed.is_err() { return },
            changed = inputs.assignments.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK_EVERY), if is_pending => {}
        }
    }
}

/// The containers that a look searched for, and those that it found.
#[derive(Default)]
struct Looked {
    sought: BTreeMap<String, usize>,
    found: BTreeMap<String, Lack>,
}

/// A container that is to have GPUs.
struct Candidate {
    pod: Arc<PodView>,
    name: String,
    gpus: usize,
}

/// The containers with GPUs by the runtime's id.
fn candidates(inputs: &Inputs) -> BTreeMap<String, Candidate> {
    let pods = inputs.pods.borrow().clone().unwrap_or_default();
    let assignments = inputs.assignments.borrow().clone().unwrap_or_default();
    let mut found = BTreeMap::new();
    for (uid, gpus) in &assignments.gpus {
        let Some(pod) = pods.get(uid) else { continue };
        for (id, name) in pod.container_names.iter().filter(|(_, name)| pod.gets_gpu(name)) {
            let candidate = Candidate { pod: Arc::clone(pod), name: name.clone(), gpus: gpus.len() };
            found.insert(id.clone(), candidate);
        }
    }
    found
}

struct Follower {
    /// The path that the proof is about, by its label.
    path: Option<&'static str>,
    /// Containers of which it is known, those that existed before the path was in force, and those that stayed without a process.
    settled: BTreeSet<String>,
    /// Containers that lack the driver, by the time of the first look at them.
    lacking: BTreeMap<String, Instant>,
    /// Containers without a process, by the time of the first look for them.
    absent: BTreeMap<String, Instant>,
    proof: watch::Sender<Proof>,
    events: EventQueue,
}

impl Follower {
    /// Begins anew if another path is in force. Containers that exist by now got their GPUs by another one, or it is unknown by which.
    fn begin_path(
        &mut self,
        in_force: &InForce,
        own_path: OwnPath,
        candidates: &BTreeMap<String, Candidate>,
    ) {
        if self.path == in_force.label() {
            return;
        }
        self.path = in_force.label();
        self.settled = candidates.keys().cloned().collect();
        self.lacking.clear();
        self.absent.clear();
        let own = own_path.is(in_force);
        self.publish(if own { Proof::Proven("the node agent's container".to_owned()) } else { Proof::Open });
    }

    /// Applies what a look has found.
    fn apply(&mut self, node: &str, looked: Looked, candidates: &BTreeMap<String, Candidate>) {
        let Looked { sought, found } = looked;
        // One that has ended, for example: it never has a process again.
        for id in sought.into_keys().filter(|id| !found.contains_key(id)) {
            let since = *self.absent.entry(id.clone()).or_insert_with(Instant::now);
            if since.elapsed() >= LOOK_EVERY {
                self.settled.insert(id);
            }
        }
        for (id, lack) in found {
            // The path may have changed during a long look.
            let is_open = !self.settled.contains(&id);
            let Some(Candidate { pod, name, .. }) = candidates.get(&id).filter(|_| is_open) else { continue };
            let shown = format!("container {name} of pod {}", pod.full_name());
            match lack {
                None => {
                    self.settled.insert(id);
                    if !matches!(*self.proof.borrow(), Proof::Proven(_)) {
                        self.publish(Proof::Proven(shown));
                    }
                }
                Some(lack) => {
                    let since = *self.lacking.entry(id.clone()).or_insert_with(Instant::now);
                    if since.elapsed() < LOOK_EVERY {
                        continue;
                    }
                    self.settled.insert(id);
                    let note = format!(
                        "{shown} was to get a GPU {} and has no driver: {lack}",
                        if self.path == Some("nri") {
                            "by NRI and CDI"
                        } else {
                            "by NVIDIA's container runtime"
                        }
                    );
                    warn!("{note}");
                    self.events.publish(about_pod(pod), Reason::NotInjected, note.clone());
                    self.events.publish(about_node(node), Reason::InjectionFailed, note);
                    self.publish(Proof::NotInPod(shown));
                }
            }
        }
    }

    fn publish(&self, now: Proof) {
        if self.proof.send_if_modified(|last| replace_if_new(last, now.clone())) {
            info!(path = self.path, proof = now.label(), "{now}");
        }
    }
}

#[cfg(test)]
mod tests;
