//! Tests of `view.rs`.

use super::*;
use serde_json::json;

fn view(pod: serde_json::Value) -> PodView {
    PodView::of(&serde_json::from_value(pod).unwrap()).unwrap()
}

#[test]
fn a_pod_is_read_with_its_binding_its_annotations_and_its_containers() {
    let pod = view(json!({
        "metadata": {
            "uid": "u1", "namespace": "ml", "name": "train", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"sluice.dev/quota": "0.3", "sluice.dev/assigned-gpu": "GPU-a", "other": "x"},
        },
        "spec": {
            "initContainers": [{"name": "prep"}],
            "containers": [
                {"name": "proxy"},
                {"name": "main", "resources": {"limits": {"sluice.dev/gpu": "1"}}},
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"},
            ],
            "initContainerStatuses": [
                {"name": "prep", "containerID": "containerd://aa", "image": "", "imageID": "", "ready": true, "restartCount": 0},
            ],
            "containerStatuses": [
                {"name": "proxy", "containerID": "", "image": "", "imageID": "", "ready": false, "restartCount": 0},
                {"name": "main", "containerID": "cri-o://cc", "image": "", "imageID": "", "ready": true, "restartCount": 1,
                 "lastState": {"terminated": {"exitCode": 1, "containerID": "cri-o://bb"}}},
            ],
        },
    }));
    assert_eq!(
        (pod.full_name().as_str(), pod.container.as_str(), pod.has_ended),
        ("ml/train", "main", false)
    );
    assert_eq!(pod.bound_at - pod.created_at, 5);
    assert_eq!(pod.annotations.len(), 2);
    let names: Vec<_> = pod.container_names.iter().map(|(id, name)| (id.as_str(), name.as_str())).collect();
    assert_eq!(names, [("aa", "prep"), ("bb", "main"), ("cc", "main")]);
}

#[test]
fn condition_of_the_suspension_is_read_among_the_others() {
    let suspended =
        |conditions| view(json!({"metadata": {"uid": "u"}, "status": {"conditions": conditions}})).suspended;
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    assert_eq!(suspended(json!([condition("Ready", "True")])), None);
    assert_eq!(
        suspended(json!([condition("Ready", "False"), condition("sluice.dev/Suspended", "True")])),
        Some(true)
    );
    assert_eq!(
        suspended(json!([condition("Ready", "True"), condition("sluice.dev/Suspended", "False")])),
        Some(false)
    );
}

#[test]
fn container_of_a_pod_whose_sidecar_has_the_gpu_is_the_sidecar() {
    let gpu = json!({"limits": {"sluice.dev/gpu": "1"}});
    let pod = view(json!({
        "metadata": {"uid": "u"},
        "spec": {
            "initContainers": [
                {"name": "prep", "resources": gpu},
                {"name": "side", "restartPolicy": "Always", "resources": gpu},
            ],
            "containers": [{"name": "app"}],
        },
    }));
    assert_eq!((pod.container.as_str(), pod.long_running), ("side", 1));
}

#[test]
fn containers_with_slots_that_run_as_long_as_the_pod_are_counted() {
    let slots = |count: &str| json!({"limits": {"sluice.dev/gpu": count}});
    let pod = view(json!({
        "metadata": {"uid": "u"},
        "spec": {
            "initContainers": [
                {"name": "prep", "resources": slots("1")},
                {"name": "side", "restartPolicy": "Always", "resources": slots("1")},
            ],
            "containers": [
                {"name": "none", "resources": slots("0")},
                {"name": "app", "resources": slots("1")},
                {"name": "proxy"},
            ],
        },
    }));
    assert_eq!((pod.container.as_str(), pod.long_running), ("app", 2));
}

#[test]
fn only_succeeded_and_failed_pods_have_ended() {
    for (phase, ended) in
        [("Pending", false), ("Running", false), ("Unknown", false), ("Succeeded", true), ("Failed", true)]
    {
        let pod = view(json!({"metadata": {"uid": "u"}, "status": {"phase": phase}}));
        assert_eq!(pod.has_ended, ended, "{phase}");
    }
}
