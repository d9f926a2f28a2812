//! Bind: the pod gets its node and its GPUs in one call.
//!
//! The API server merges the annotations of a Binding into the pod in the same transaction that sets `spec.nodeName`,
//! and only if the pod has the UID of the Binding, has no node yet and is not being deleted
//! (`pkg/registry/core/pod/storage/storage.go`, `setPodNodeAndMetadata`, read in 1.34.4). So there is no moment at which
//! a pod is bound without its GPU, and a pod that was deleted and made again under its name is not confused with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference};
use kube::api::{Api, ObjectMeta, PostParams};
use sluice_placement::annotations::keys;
use sluice_placement::{CannotBind, Choice};

use super::events::Assignment;
use super::extender::{BIND_AFTERMATH, Extender};
use super::leadership::LeadershipState;
use super::metrics::Outcome;
use super::objects::Pod;
use super::pod_watch;
use super::wire::{ExtenderBindingArgs, ExtenderBindingResult};

/// How often the API server is asked how a bind ended.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How a call of the API ended.
#[derive(Debug)]
enum Sent {
    /// Bound.
    Done,
    /// Not bound, and it will not be by this call.
    Refused(String),
    /// Nobody knows: the API server has to be asked.
    Unknown(String),
}

impl Extender {
    /// Answers bind. Goes on to its end in a task of its own, whether or not anyone waits for the answer.
    pub(crate) async fn bind(self: Arc<Self>, args: ExtenderBindingArgs) -> (ExtenderBindingResult, Outcome) {
        let bind = tokio::spawn(async move { self.bind_to_the_end(&args).await });
        let (outcome, error) = match bind.await {
            Ok(Ok(())) => (Outcome::Bound, String::new()),
            Ok(Err((outcome, error))) => (outcome, error),
            Err(panic) => (Outcome::Error, format!("the bind broke off: {panic}")),
        };
        (ExtenderBindingResult { error }, outcome)
    }

    async fn bind_to_the_end(self: &Arc<Self>, args: &ExtenderBindingArgs) -> Result<(), (Outcome, String)> {
        // Counted before the question whether we lead: who has seen us stop and nothing under way sees nothing more begin.
        let _sending = self.begin_sending();
        if self.leadership.state() != LeadershipState::Active {
            return Err((Outcome::Inactive, "Sluice's extender is not active".to_owned()));
        }
        let was_unknown = self.is_binding(args);
        // No deadline: our watch may be blind for longer than any, and then the share would be given twice.
        let (choice, number) = self.begin(args).map_err(|cannot| {
            let outcome =
                if cannot == CannotBind::NotReserved { Outcome::NotReserved } else { Outcome::Refused };
            (outcome, cannot.to_string())
        })?;
        let sent = self.send(args, &choice).await;
        // An earlier attempt of which nobody knows the end may still succeed.
        if matches!(sent, Sent::Unknown(_)) || was_unknown && matches!(sent, Sent::Refused(_)) {
            tokio::spawn(Arc::clone(self).find_out(args.clone(), number));
        }
        match sent {
            Sent::Done => {
                self.bound(args);
                self.events.assigned(Assignment::new(args, &choice));
                Ok(())
            }
            Sent::Refused(why) => {
                if !was_unknown {
                    self.abandon(args, number);
                }
                Err((Outcome::Refused, why))
            }
            Sent::Unknown(why) => Err((Outcome::Unknown, why)),
        }
    }

    /// Holds the share until the end of the bind is known. The number says which bind of the pod it is.
    fn begin(&self, args: &ExtenderBindingArgs) -> Result<(Choice, u64), CannotBind> {
        let mut state = self.state();
        let choice = state.index.begin_bind(&args.pod_uid, &args.node, u64::MAX)?;
        let number = state.binds.entry(args.pod_uid.clone()).or_insert(0);
        *number += 1;
        Ok((choice, *number))
    }

    /// The bind did not happen and will not. If there was a later one, that one decides.
    fn abandon(&self, args: &ExtenderBindingArgs, number: u64) {
        let mut state = self.state();
        if state.binds.get(&args.pod_uid) == Some(&number) {
            state.binds.remove(&args.pod_uid);
            state.index.abandon(&args.pod_uid, &args.node);
        }
    }

    /// Asks the API server how a bind ended, until it says so.
    async fn find_out(self: Arc<Self>, args: ExtenderBindingArgs, number: u64) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &args.pod_namespace);
        let over = self.clock.in_ns(self.policy.bind_timeout + BIND_AFTERMATH);
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            if self.state().binds.get(&args.pod_uid) != Some(&number) {
                return;
            }
            // Before the question, so that an answer that says "not bound" is from after that moment.
            let is_over = self.clock.now_ns() >= over;
            match tokio::time::timeout(self.policy.bind_timeout, pods.get_opt(&args.pod_name)).await {
                Ok(Ok(Some(pod))) if pod.uid() == Some(&*args.pod_uid) => {
                    if pod.node().is_some() || pod.has_ended() {
                        self.state().binds.remove(&args.pod_uid);
                        return pod_watch::apply_pod(&self, &pod);
                    }
                    if is_over {
                        return self.abandon(&args, number);
                    }
                }
                // The pod is gone, or another has its name.
                Ok(Ok(_)) => return self.abandon(&args, number),
                Ok(Err(error)) => {
                    tracing::warn!(%error, pod = args.pod_name, "cannot find out whether a pod is bound")
                }
                Err(_) => {}
            }
        }
    }

    fn is_binding(&self, args: &ExtenderBindingArgs) -> bool {
        let state = self.state();
        state.index.claims(&args.pod_uid).iter().any(|claim| {
            *claim.node == *args.node && matches!(claim.hold, sluice_placement::Hold::Binding { .. })
        })
    }

    fn bound(&self, args: &ExtenderBindingArgs) {
        let mut state = self.state();
        state.binds.remove(&args.pod_uid);
        if state.index.bound(&args.pod_uid, &args.node) {
            state.unobserved_binds.insert(args.pod_uid.clone());
        }
    }

    async fn send(&self, args: &ExtenderBindingArgs, choice: &Choice) -> Sent {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &args.pod_namespace);
        let binding = binding(args, choice);
        let parameters = PostParams::default();
        let call =
            pods.create_subresource::<_, serde_json::Value>("binding", &args.pod_name, &parameters, &binding);
        match tokio::time::timeout(self.policy.bind_timeout, call).await {
            Ok(Ok(_)) => Sent::Done,
            Ok(Err(error)) => classify(&error),
            Err(_) => {
                Sent::Unknown(format!("the API server did not answer within {:?}", self.policy.bind_timeout))
            }
        }
    }
}

fn binding(args: &ExtenderBindingArgs, choice: &Choice) -> Binding {
    let annotations = BTreeMap::from([(keys::ASSIGNED_GPU.to_owned(), choice.gpus.join(","))]);
    Binding {
        metadata: ObjectMeta {
            name: Some(args.pod_name.clone()),
            namespace: Some(args.pod_namespace.clone()),
            uid: Some(args.pod_uid.clone()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(choice.node.to_string()),
            ..ObjectReference::default()
        },
    }
}

/// What an error of the API says about the bind.
///
/// A conflict is a pod that has a node, another UID or its end before it: which one, the watch shows. It may be bound
/// by an earlier call of ours whose answer was lost.
fn classify(error: &kube::Error) -> Sent {
    match error {
        kube::Error::Api(status) => match status.code {
            409 | 408 | 500.. => Sent::Unknown(status.message.clone()),
            _ => Sent::Refused(status.message.clone()),
        },
        kube::Error::BuildRequest(error) => Sent::Refused(error.to_string()),
        other => Sent::Unknown(other.to_string()),
    }
}
