//! Bind: one call sets the pod's node and its GPUs.
//!
//! The API server merges the annotations of a Binding into the pod in the transaction that sets `spec.nodeName`. It
//! does so only if the pod has the UID of the Binding, has no node yet, and is not being deleted
//! (`pkg/registry/core/pod/storage/storage.go`, `setPodNodeAndMetadata`, read in 1.34.4). So a pod is never bound
//! without its GPU, and never confused with a deleted pod of the same name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference};
use kube::api::{Api, ObjectMeta, PostParams};
use sluice_placement::annotations::keys;
use sluice_placement::{CannotBind, Placement};

use super::events::PodEvent;
use super::extender::{BIND_AFTERMATH, Extender, PlacementState};
use super::leadership::LeadershipState;
use super::metrics::Outcome;
use super::objects::Pod;
use super::pod_watch;
use super::wire::{ExtenderBindingArgs, ExtenderBindingResult};

/// Interval at which the API server is asked how a bind ended.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Result of a Binding request.
#[derive(Debug)]
enum BindResult {
    /// The pod is bound.
    Done,
    /// The pod is not bound, and this request will not bind it.
    Refused(String),
    /// Unknown: the API server has to be asked.
    Unknown(String),
}

impl Extender {
    /// Answers bind. The work continues to its end in a task of its own, even if the caller gives up.
    pub(crate) async fn bind(self: Arc<Self>, args: ExtenderBindingArgs) -> (ExtenderBindingResult, Outcome) {
        let bind = tokio::spawn(async move { self.run_bind(&args).await });
        let (outcome, error) = match bind.await {
            Ok(Ok(())) => (Outcome::Bound, String::new()),
            Ok(Err((outcome, error))) => (outcome, error),
            Err(panic) => (Outcome::Error, format!("the bind panicked: {panic}")),
        };
        (ExtenderBindingResult { error }, outcome)
    }

    async fn run_bind(self: &Arc<Self>, args: &ExtenderBindingArgs) -> Result<(), (Outcome, String)> {
        // Counted before the leadership is checked. So once the extender is inactive and the count is 0, no bind
        // begins any more.
        let _sending = self.begin_sending();
        if self.leadership.state() != LeadershipState::Active {
            return Err((Outcome::Inactive, "Sluice's extender is not active".to_owned()));
        }
        let earlier_result_unknown = self.is_binding(args);
        // Without a deadline: the watch may be interrupted longer than any deadline, and the share would then be given
        // twice.
        let (choice, number) = self.begin_bind(args).map_err(|cannot| {
            let outcome =
                if cannot == CannotBind::NotReserved { Outcome::NotReserved } else { Outcome::Refused };
            (outcome, cannot.to_string())
        })?;
        let result = self.send(args, &choice).await;
        // An earlier attempt with an unknown result may still succeed.
        if matches!(result, BindResult::Unknown(_))
            || earlier_result_unknown && matches!(result, BindResult::Refused(_))
        {
            tokio::spawn(Arc::clone(self).resolve_unknown(args.clone(), number));
        }
        match result {
            BindResult::Done => {
                self.record_bound(args);
                self.events.add(PodEvent::assigned(args, &choice));
                Ok(())
            }
            BindResult::Refused(why) => {
                if !earlier_result_unknown {
                    self.abandon(args, number);
                }
                Err((Outcome::Refused, why))
            }
            BindResult::Unknown(why) => Err((Outcome::Unknown, why)),
        }
    }

    /// Keeps the share reserved until the result of the bind is known. The number identifies this bind of the pod to the
    /// node.
    fn begin_bind(&self, args: &ExtenderBindingArgs) -> Result<(Placement, u64), CannotBind> {
        let mut state = self.state();
        let mut choice = state.index.begin_bind(&args.pod_uid, &args.node, u64::MAX);
        // The reservation may have expired while the pod waited at Permit.
        if choice == Err(CannotBind::NotReserved) && state.reserve_again(&args.pod_uid, &args.node, u64::MAX)
        {
            choice = state.index.begin_bind(&args.pod_uid, &args.node, u64::MAX);
        }
        let choice = choice?;
        let number = state.binds.entry(key(args)).or_insert(0);
        *number += 1;
        Ok((choice, *number))
    }

    /// Releases the share: the bind did not happen and will not. A later bind of the pod to the node takes precedence.
    fn abandon(&self, args: &ExtenderBindingArgs, number: u64) {
        let mut state = self.state();
        if state.binds.get(&key(args)) == Some(&number) {
            state.binds.remove(&key(args));
            state.index.abandon(&args.pod_uid, &args.node);
        }
    }

    /// Asks the API server for the result of a bind until it is known.
    async fn resolve_unknown(self: Arc<Self>, args: ExtenderBindingArgs, number: u64) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &args.pod_namespace);
        let over = self.clock.in_ns(self.policy.bind_timeout + BIND_AFTERMATH);
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            if self.state().binds.get(&key(&args)) != Some(&number) {
                return;
            }
            // Read before the request, so that an answer "not bound" dates from after this moment.
            let is_over = self.clock.now_ns() >= over;
            match tokio::time::timeout(self.policy.bind_timeout, pods.get_opt(&args.pod_name)).await {
                Ok(Ok(Some(pod))) if pod.uid() == Some(&*args.pod_uid) => {
                    if pod.node().is_some() || pod.has_ended() {
                        forget_binds(&mut self.state(), &args);
                        return pod_watch::apply_pod(&self, &pod);
                    }
                    if is_over {
                        return self.abandon(&args, number);
                    }
                }
                // The pod is gone, or another pod has its name.
                Ok(Ok(_)) => return self.abandon(&args, number),
                Ok(Err(error)) => {
                    tracing::warn!(%error, pod = args.pod_name, "cannot read whether a pod is bound")
                }
                Err(_) => {}
            }
        }
    }

    fn is_binding(&self, args: &ExtenderBindingArgs) -> bool {
        let state = self.state();
        state.index.reservations(&args.pod_uid).iter().any(|claim| {
            *claim.node == *args.node
                && matches!(claim.state, sluice_placement::ReservationState::Binding { .. })
        })
    }

    fn record_bound(&self, args: &ExtenderBindingArgs) {
        let mut state = self.state();
        forget_binds(&mut state, args);
        state.attempts.remove(&args.pod_uid);
        if state.index.bound(&args.pod_uid, &args.node) {
            state.unobserved_binds.insert(args.pod_uid.clone());
        }
    }

    async fn send(&self, args: &ExtenderBindingArgs, choice: &Placement) -> BindResult {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &args.pod_namespace);
        let binding = binding(args, choice);
        let parameters = PostParams::default();
        let call =
            pods.create_subresource::<_, serde_json::Value>("binding", &args.pod_name, &parameters, &binding);
        match tokio::time::timeout(self.policy.bind_timeout, call).await {
            Ok(Ok(_)) => BindResult::Done,
            Ok(Err(error)) => classify(&error),
            Err(_) => BindResult::Unknown(format!(
                "the API server did not answer within {:?}",
                self.policy.bind_timeout
            )),
        }
    }
}

/// Key of a bind in [`PlacementState::binds`].
fn key(args: &ExtenderBindingArgs) -> (String, String) {
    (args.pod_uid.clone(), args.node.clone())
}

/// The pod is bound or has ended, so the result of each of its binds is known.
fn forget_binds(state: &mut PlacementState, args: &ExtenderBindingArgs) {
    state.binds.retain(|(pod, _), _| *pod != args.pod_uid);
}

fn binding(args: &ExtenderBindingArgs, choice: &Placement) -> Binding {
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

/// What an error of the API server says about the bind.
///
/// A conflict means that the pod has a node, another UID, or is being deleted; the watch shows which. It may be bound
/// by an earlier request of ours whose answer was lost.
fn classify(error: &kube::Error) -> BindResult {
    match error {
        kube::Error::Api(status) => match status.code {
            409 | 408 | 500.. => BindResult::Unknown(status.message.clone()),
            _ => BindResult::Refused(status.message.clone()),
        },
        kube::Error::BuildRequest(error) => BindResult::Refused(error.to_string()),
        other => BindResult::Unknown(other.to_string()),
    }
}
