//! Pods that are created again with what Sluice wrote on them: restored by Velero, copied by `kubectl debug --copy-to`.

use serde_json::{Value, json};

use super::{Decision, mutate, patched, pod, refused, single, validate};

const REMOVED: &str =
    "sluice.dev/assigned-gpu was removed: only the scheduler writes it, when it binds the pod";

/// The pod as the API server has it after the bind.
fn bound(object: &Value) -> Value {
    let mut bound = patched(object);
    bound["metadata"]["annotations"]["sluice.dev/assigned-gpu"] = json!("GPU-1");
    bound["spec"]["nodeName"] = json!("node-1");
    bound["status"] = json!({"phase": "Running"});
    bound
}

/// What Velero restores, and what `kubectl debug --copy-to` creates if it keeps the annotations: neither keeps the node.
fn copied(object: &Value) -> Value {
    let mut copy = bound(object);
    copy["spec"].as_object_mut().unwrap().remove("nodeName");
    copy.as_object_mut().unwrap().remove("status");
    copy
}

/// Patch and warnings of an admitted pod.
fn admitted(object: &Value) -> (Value, Vec<String>) {
    match mutate(object) {
        Decision::Admitted { patch, warnings } => (serde_json::to_value(patch).unwrap(), warnings),
        other => panic!("{other:?}"),
    }
}

#[test]
fn copy_of_a_bound_pod_loses_its_assignment_with_a_warning() {
    let original = pod(&[("quota", "0.3"), ("memory", "1Gi")], &single());
    let copy = copied(&original);
    let (patch, warnings) = admitted(&copy);
    assert_eq!(patch, json!([{"op": "remove", "path": "/metadata/annotations/sluice.dev~1assigned-gpu"}]));
    assert_eq!(warnings, [REMOVED]);
    assert_eq!(patched(&copy), patched(&original));
    assert_eq!(validate(&patched(&copy)), Decision::Admitted { patch: Vec::new(), warnings: Vec::new() });
}

#[test]
fn copy_with_kubeshare_labels_is_admitted() {
    let mut original = pod(&[], &single());
    original["metadata"]["labels"] = json!({"sharedgpu/gpu_request": "0.3", "sharedgpu/gpu_limit": "0.8"});
    assert_eq!(patched(&copied(&original)), patched(&original));
}

#[test]
fn container_that_the_copy_adds_gets_no_gpu() {
    let void = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]);
    let mut copy = copied(&pod(&[("quota", "0.3")], &single()));
    copy["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "debugger", "image": "x"}));
    copy["spec"]["initContainers"] = json!([{"name": "restore-wait", "image": "velero"}]);
    let after = patched(&copy);
    assert_eq!(after["spec"]["containers"][1]["env"], void);
    assert_eq!(after["spec"]["initContainers"][0]["env"], void);
    // kubectl keeps no annotations with most profiles. The amounts stay, and are the request.
    copy["metadata"].as_object_mut().unwrap().remove("annotations");
    let after = patched(&copy);
    assert_eq!(
        after["metadata"]["annotations"],
        json!({"sluice.dev/container": "main", "sluice.dev/quota": "0.3"})
    );
    assert_eq!(after["spec"]["containers"][1]["env"], void);
}

#[test]
fn assignment_without_a_request_is_removed() {
    let (patch, warnings) = admitted(&pod(&[("assigned-gpu", "GPU-1")], &single()));
    assert_eq!(patch, json!([{"op": "remove", "path": "/metadata/annotations/sluice.dev~1assigned-gpu"}]));
    assert_eq!(warnings, [REMOVED]);
}

#[test]
fn assignment_that_is_still_there_after_all_webhooks_is_refused() {
    let Decision::Refused(message) = validate(&copied(&pod(&[("quota", "0.3")], &single()))) else {
        panic!("the pod was not refused")
    };
    assert_eq!(
        message,
        "sluice.dev/assigned-gpu: \"GPU-1\" is not allowed: only the scheduler writes it; leave it out"
    );
}

#[test]
fn copy_that_keeps_its_node_is_refused() {
    let mut copy = bound(&pod(&[("quota", "0.3")], &single()));
    // `kubectl debug --copy-to --same-node`.
    let Decision::Refused(message) = mutate(&copy) else { panic!("the pod was not refused") };
    assert!(message.starts_with("spec.nodeName: \"node-1\" is not allowed"), "{message}");
    copy["metadata"]["annotations"].as_object_mut().unwrap().remove("sluice.dev/assigned-gpu");
    assert_eq!(refused(&copy), message);
}
