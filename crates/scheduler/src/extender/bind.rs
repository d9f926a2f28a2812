//! Bind: the pod gets its node and its GPUs in one call.
//!
//! The API server merges the annotations of a Binding into the pod in the same transaction that sets `spec.nodeName`,
//! and only if the pod has the UID of the Binding, has no node yet and is not being deleted
//! (`pkg/registry/core/pod/storage/storage.go`, `setPodNodeAndMetadata`, read in 1.34.4). So there is no moment at which
//! a pod is bound without its GPU, and a pod that was deleted and made again under its name is not confused with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Binding, ObjectReference};
use kube::api::{Api, ObjectMeta, PostParams};
use sluice_core::placement::{CannotBind, Choice};
use sluice_core::request::keys;

use super::events::Assignment;
use super::extender::{BIND_AFTERMATH, Extender};
use super::metrics::Outcome;
use super::objects::Pod;
use super::role::State;
use super::wire::{ExtenderBindingArgs, ExtenderBindingResult};

/// How a call of the API ended.
#[derive(Debug)]
enum Sent {
    /// Bound.
    Done,
    /// Not bound, and it will not be by this call.
    Refused(String),
    /// Nobody knows: the watch will show it.
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

    async fn bind_to_the_end(&self, args: &ExtenderBindingArgs) -> Result<(), (Outcome, String)> {
        if self.role.state() != State::Active {
            return Err((Outcome::Inactive, "Sluice's extender is not active".to_owned()));
        }
        let deadline = self.clock.in_ns(self.policy.bind_timeout + BIND_AFTERMATH);
        let was_unknown = self.is_binding(args);
        let choice =
            self.state().index.begin_bind(&args.pod_uid, &args.node, deadline).map_err(|cannot| {
                let outcome =
                    if cannot == CannotBind::NotReserved { Outcome::NotReserved } else { Outcome::Refused };
                (outcome, cannot.to_string())
            })?;
        match self.send(args, &choice).await {
            Sent::Done => {
                self.bound(args);
                self.events.assigned(Assignment::new(args, &choice));
                Ok(())
            }
            Sent::Refused(why) => {
                // An earlier attempt of which nobody knows the end may still succeed.
                if !was_unknown {
                    self.state().index.abandon(&args.pod_uid, &args.node);
                }
                Err((Outcome::Refused, why))
            }
            Sent::Unknown(why) => Err((Outcome::Unknown, why)),
        }
    }

    fn is_binding(&self, args: &ExtenderBindingArgs) -> bool {
        let state = self.state();
        state.index.claims(&args.pod_uid).iter().any(|claim| {
            *claim.node == *args.node && matches!(claim.hold, sluice_core::placement::Hold::Binding { .. })
        })
    }

    fn bound(&self, args: &ExtenderBindingArgs) {
        let mut state = self.state();
        if state.index.bound(&args.pod_uid, &args.node) {
            state.unseen.insert(args.pod_uid.clone());
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
