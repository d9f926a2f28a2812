//! The scale-up pod of a waiting pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, Pod, PodAffinityTerm, PodAntiAffinity, PodSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ObjectMeta;
use sluice_placement::annotations::keys;

use super::Home;

/// Label with the UID of the waiting pod. Its prefix differs from that of the keys which Sluice's webhook and policies read.
pub(super) const UID_LABEL: &str = "scale-up.sluice.dev/pod-uid";

/// Annotation with namespace and name of the waiting pod, for the reader of a list of pods.
const POD_ANNOTATION: &str = "scale-up.sluice.dev/pod";

/// No scheduler has this name.
const SCHEDULER_NAME: &str = "scale-up.sluice.dev";

/// The containers never start, and their images are not read.
const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// A pod that fits on the same nodes as the waiting pod, except those that have pods with GPUs. A node without them has all its GPUs free.
/// Constraints between pods and volumes are left out: they are about the pods' own namespace.
pub(super) fn scale_up_pod(waiting: &Pod, home: &Home) -> Pod {
    let uid = waiting.metadata.uid.clone().unwrap_or_default();
    let namespace = waiting.metadata.namespace.as_deref().unwrap_or_default();
    let name = waiting.metadata.name.as_deref().unwrap_or_default();
    let spec = waiting.spec.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("scale-up-{uid}")),
            namespace: Some(home.namespace.clone()),
            labels: Some(BTreeMap::from([(UID_LABEL.to_owned(), uid)])),
            annotations: Some(BTreeMap::from([(POD_ANNOTATION.to_owned(), format!("{namespace}/{name}"))])),
            owner_references: Some(vec![home.owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            scheduler_name: Some(SCHEDULER_NAME.to_owned()),
            priority_class_name: spec.priority_class_name,
            node_selector: spec.node_selector,
            tolerations: spec.tolerations,
            affinity: Some(Affinity {
                node_affinity: spec.affinity.and_then(|affinity| affinity.node_affinity),
                pod_anti_affinity: Some(without_gpu_pods()),
                pod_affinity: None,
            }),
            containers: spec.containers.into_iter().map(placeholder).collect(),
            init_containers: spec.init_containers.map(|all| all.into_iter().map(placeholder).collect()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(0),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// A container that requests the same, without claims of devices: the API server accepts them only with the claims of the pod.
fn placeholder(container: Container) -> Container {
    Container {
        name: container.name,
        image: Some(IMAGE.to_owned()),
        resources: container.resources.map(|stated| ResourceRequirements { claims: None, ..stated }),
        restart_policy: container.restart_policy,
        ..Container::default()
    }
}

/// Only nodes where no pod of any namespace has a GPU.
fn without_gpu_pods() -> PodAntiAffinity {
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(keys::POD_LABEL.to_owned(), "true".to_owned())])),
            ..LabelSelector::default()
        }),
        // All namespaces.
        namespace_selector: Some(LabelSelector::default()),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(vec![term]),
        ..PodAntiAffinity::default()
    }
}
