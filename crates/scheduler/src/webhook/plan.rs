//! What a new pod needs to run on a shared GPU, or why it cannot. The entry point is [`plan`].
//!
//! The mutating webhook applies the hints and the patch; the validating webhook requires that the patch is empty. So a second pass changes
//! nothing, whatever other webhooks did in between.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::json;
use sluice_placement::annotations::{Mistake, Mistakes, keys, kubeshare};
use sluice_placement::sandboxes::{self, SandboxRuntimeClasses};

use super::amounts::{self, ContainerAmounts};
use super::choice::{self, Choice};
use super::compatibility;
use super::containers::{self, PodContainer};
use super::node_selection;
use super::patch::{self, Operation};
use super::platform;
use super::pod_request::read_pod_request;
use crate::translated::ClaimNamespaces;

/// The scheduler of pods that name none.
pub(super) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Settings of the cluster's administrator.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// RuntimeClass for pods that name none, where the NVIDIA runtime is not the node's default.
    pub(super) runtime_class: Option<String>,
    /// RuntimeClasses whose containers run in a sandbox with a kernel of its own.
    pub(super) sandboxes: SandboxRuntimeClasses,
    /// Namespaces whose annotated pods get claims.
    pub(super) claims_in: ClaimNamespaces,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            runtime_class: None,
            sandboxes: SandboxRuntimeClasses::from(sandboxes::DEFAULT),
            claims_in: ClaimNamespaces::default(),
        }
    }
}

/// How to complete a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// What the pod needs to run on a shared GPU.
    pub(super) patch: Vec<Operation>,
    /// Additions for kube-scheduler and autoscalers: label, tolerations, node affinity. The pod also runs without them, so a pod that an older
    /// webhook completed, or from which a policy removed them, is valid.
    pub(super) hints: Vec<Operation>,
    /// What the user should know about the pod as it is in the end.
    pub(super) warnings: Vec<String>,
    /// A choice among the containers that the user did not make. Its result is recorded, so a second pass has none.
    pub(super) choice_warning: Option<String>,
}

/// What the pod needs; `None` if it requests no GPU of Sluice.
pub(super) fn plan(pod: &Pod, settings: &Settings) -> Result<Option<Plan>, Mistakes> {
    let Some(spec) = &pod.spec else {
        return Ok(None);
    };
    let containers = PodContainer::all(spec);
    let labels = pod.metadata.labels.iter().flatten();
    let from_kubeshare = labels.into_iter().any(|(label, _)| label.starts_with(kubeshare::PREFIX));
    let mut mistakes = compatibility::scheduling_mistakes(spec, from_kubeshare);
    let requested = match read_pod_request(pod, &containers) {
        Ok(None) => {
            return Mistakes::check(label_mistake(pod).into_iter().collect())
                .map(|()| kubeshare_release_plan(spec, from_kubeshare));
        }
        Ok(Some(requested)) => requested,
        Err(more) => {
            mistakes.extend(more);
            return Mistakes::check(mistakes).map(|()| None);
        }
    };
    mistakes.extend(settings.sandboxes.mistake(spec.runtime_class_name.as_deref()));
    mistakes.extend(platform::mistakes(spec));
    let choice = choice::choose(pod, &containers, &requested.request).unwrap_or_else(|more| {
        mistakes.extend(more);
        Choice::default()
    });
    let chosen = choice.names;
    let holder = amounts::share_holder(&containers, |name| chosen.iter().any(|one| one == name));
    let amounts_of = |container: &PodContainer<'_>| {
        let is_chosen = chosen.contains(&container.spec.name);
        is_chosen.then(|| ContainerAmounts::of(&requested.request.demand, container, holder))
    };
    // If no container could be chosen, it is unknown whose variable is wrong.
    for container in containers.iter().filter(|_| !chosen.is_empty()) {
        let amounts = amounts_of(container);
        mistakes.extend(compatibility::device_mistakes(container, amounts.is_some()));
        mistakes.extend(amounts.iter().flat_map(|amounts| amounts.mistakes(container)));
    }
    Mistakes::check(mistakes)?;
    let mut annotations = requested.added;
    if requested.request.containers.is_empty() {
        // Recorded, so that containers which other webhooks insert first do not change the choice.
        annotations.insert(keys::CONTAINER.to_owned(), chosen.join(","));
    }
    let mut hints = patch::label(pod.metadata.labels.as_ref(), keys::POD_LABEL, "true");
    hints.extend(node_selection::tolerations(spec));
    hints.extend(node_selection::model_affinity(spec, &requested.request.demand.models));
    let mut operations = pod_operations(pod, spec, &annotations, settings);
    for container in &containers {
        let amounts = amounts_of(container).map(ContainerAmounts::to_map);
        operations.extend(container_operations(container, amounts.as_ref()));
    }
    let mut warnings = requested.warnings;
    warnings.extend(compatibility::warnings_for(spec, &containers));
    Ok(Some(Plan { patch: operations, hints, warnings, choice_warning: choice.warning }))
}

/// The mistake of a pod without a request that has the label of pods with GPUs: it would keep scale-up pods from its node.
fn label_mistake(pod: &Pod) -> Option<Mistake> {
    let value = pod.metadata.labels.as_ref()?.get(keys::POD_LABEL)?;
    let key = format!("metadata.labels[{}]", keys::POD_LABEL);
    Some(Mistake::new(key, value, "only on pods that request a GPU"))
}

/// The plan for a pod with KubeShare's labels but without a GPU: the scheduler that it names does not exist any more.
fn kubeshare_release_plan(spec: &PodSpec, from_kubeshare: bool) -> Option<Plan> {
    let waits = from_kubeshare && spec.scheduler_name.as_deref() == Some(kubeshare::SCHEDULER_NAME);
    let scheduler = patch::add("/spec/schedulerName".to_owned(), json!(DEFAULT_SCHEDULER));
    waits.then(|| Plan { patch: vec![scheduler], ..Plan::default() })
}

fn pod_operations(
    pod: &Pod,
    spec: &PodSpec,
    added: &BTreeMap<String, String>,
    settings: &Settings,
) -> Vec<Operation> {
    let mut operations = patch::annotations(pod.metadata.annotations.is_some(), added);
    if spec.scheduler_name.as_deref() != Some(keys::SCHEDULER_NAME) {
        operations.push(patch::add("/spec/schedulerName".to_owned(), json!(keys::SCHEDULER_NAME)));
    }
    if let (None, Some(class)) = (&spec.runtime_class_name, &settings.runtime_class) {
        operations.push(patch::add("/spec/runtimeClassName".to_owned(), json!(class)));
    }
    operations
}

/// `amounts`: of the GPU that the container gets, if it gets one.
fn container_operations(
    container: &PodContainer<'_>,
    amounts: Option<&BTreeMap<String, String>>,
) -> Vec<Operation> {
    let path = container.path();
    let mut operations =
        amounts.map_or_else(Vec::new, |amounts| patch::amounts(&path, container.spec, amounts));
    if container.visible().next().is_none() {
        let chosen = amounts.is_some();
        let variable = if chosen { containers::assigned_variable() } else { containers::void_variable() };
        operations.push(patch::variable(&path, container.spec.env.is_some(), variable));
    }
    operations
}
