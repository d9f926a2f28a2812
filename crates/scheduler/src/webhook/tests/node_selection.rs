//! Tolerations and node affinities that follow from a pod's request.

use serde_json::{Value, json};

use super::{Decision, patched, pod, single, validate};

fn toleration(key: &str, effect: Option<&str>) -> Value {
    let mut toleration = json!({"key": key, "operator": "Exists"});
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    toleration
}

/// The pod's tolerations after the webhook.
fn tolerations(stated: Value) -> Value {
    let mut object = pod(&[("quota", "0.3")], &single());
    object["spec"]["tolerations"] = stated;
    admitted(&object)["spec"]["tolerations"].clone()
}

/// The required node affinity after the webhook, of a pod that selects these models.
fn terms(models: &str, affinity: Value) -> Value {
    let mut object = pod(&[("quota", "0.3"), ("gpu-model", models)], &single());
    object["spec"]["affinity"] = affinity;
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    admitted(&object)["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"].clone()
}

/// The pod after the webhook. A second pass changes nothing.
fn admitted(object: &Value) -> Value {
    let object = patched(object);
    let fine = Decision::Admitted { patch: Vec::new(), warnings: Vec::new() };
    assert_eq!(validate(&object), fine);
    object
}

fn label(model: &str) -> Value {
    json!({"key": format!("sluice.dev/gpu.model.{model}"), "operator": "In", "values": ["true"]})
}

fn zone(zone: &str) -> Value {
    json!({"key": "zone", "operator": "In", "values": [zone]})
}

fn required(terms: Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[test]
fn pod_tolerates_the_taints_of_gpu_nodes_beside_its_own_tolerations() {
    let added =
        [toleration("nvidia.com/gpu", Some("NoSchedule")), toleration("sluice.dev/gpu", Some("NoSchedule"))];
    assert_eq!(tolerations(Value::Null), json!(added));
    let own = json!({"key": "team", "operator": "Equal", "value": "a"});
    assert_eq!(tolerations(json!([own])), json!([own, added[0], added[1]]));
    // These cover one value or another effect only.
    let narrow = json!({"key": "nvidia.com/gpu", "operator": "Equal", "value": "absent"});
    let evicted = toleration("sluice.dev/gpu", Some("NoExecute"));
    assert_eq!(tolerations(json!([narrow, evicted])), json!([narrow, evicted, added[0], added[1]]));
}

#[test]
fn toleration_that_the_pod_has_is_not_added_again() {
    let every_effect = toleration("nvidia.com/gpu", None);
    let added = toleration("sluice.dev/gpu", Some("NoSchedule"));
    assert_eq!(tolerations(json!([every_effect, added])), json!([every_effect, added]));
    let every_taint = json!({"operator": "Exists"});
    assert_eq!(tolerations(json!([every_taint])), json!([every_taint]));
}

#[test]
fn model_becomes_a_node_affinity_by_the_label_of_the_nodes() {
    for model in ["NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"] {
        let expected = json!([{"matchExpressions": [label("NVIDIA-H100-80GB-HBM3")]}]);
        assert_eq!(terms(model, Value::Null), expected, "{model}");
    }
    let both =
        json!([{"matchExpressions": [label("NVIDIA-H100")]}, {"matchExpressions": [label("NVIDIA-L4")]}]);
    assert_eq!(terms("NVIDIA L4, NVIDIA-H100", json!({})), both);
    assert_eq!(terms("NVIDIA L4, NVIDIA-H100", json!({"nodeAffinity": {}})), both);
    assert_eq!(patched(&pod(&[("quota", "0.3")], &single()))["spec"].get("affinity"), None);
}

#[test]
fn each_alternative_of_the_pod_is_kept_for_each_model() {
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    let own = json!([{"matchExpressions": [zone("a")]}, {"matchFields": [field]}]);
    let expected = json!([
        {"matchExpressions": [zone("a"), label("NVIDIA-H100")]},
        {"matchExpressions": [zone("a"), label("NVIDIA-L4")]},
        {"matchExpressions": [label("NVIDIA-H100")], "matchFields": [field]},
        {"matchExpressions": [label("NVIDIA-L4")], "matchFields": [field]},
    ]);
    assert_eq!(terms("NVIDIA-H100,NVIDIA-L4", required(own)), expected);
}

#[test]
fn alternative_that_selects_the_model_or_no_node_stays_as_it_is() {
    let exists = json!({"key": "sluice.dev/gpu.model.NVIDIA-H100", "operator": "Exists"});
    let own = json!([{"matchExpressions": [exists, zone("a")]}, {}]);
    assert_eq!(terms("NVIDIA-H100,NVIDIA-L4", required(own.clone())), own);
}

#[test]
fn alternatives_stay_as_they_are_if_their_product_with_the_models_is_large() {
    let own = |count: usize| json!(vec![json!({"matchExpressions": [zone("a")]}); count]);
    assert_eq!(terms("NVIDIA-H100,NVIDIA-L4", required(own(128))).as_array().unwrap().len(), 256);
    assert_eq!(terms("NVIDIA-H100,NVIDIA-L4", required(own(129))), own(129));
}

/// Another version of the webhook may have completed the pod, or a policy may have removed something.
#[test]
fn label_tolerations_and_affinity_may_be_absent() {
    let fine = Decision::Admitted { patch: Vec::new(), warnings: Vec::new() };
    let mut object = admitted(&pod(&[("quota", "0.3"), ("gpu-model", "NVIDIA-L4")], &single()));
    for (parent, field) in [("metadata", "labels"), ("spec", "tolerations"), ("spec", "affinity")] {
        assert!(object[parent].as_object_mut().unwrap().remove(field).is_some(), "{field}");
        assert_eq!(validate(&object), fine, "{field}");
    }
}

#[test]
fn preferences_among_nodes_stay() {
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [zone("a")]}}]);
    let mut object = pod(&[("quota", "0.3"), ("gpu-model", "NVIDIA-L4")], &single());
    object["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}, "podAffinity": {}});
    let affinity = admitted(&object)["spec"]["affinity"].clone();
    assert_eq!(affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"], preferred);
    assert_eq!(affinity["podAffinity"], json!({}));
    assert!(affinity["nodeAffinity"].get("requiredDuringSchedulingIgnoredDuringExecution").is_some());
}

/// A test in Go asks kube-scheduler's filters about the completed pod: tests/cluster/modules/kubernetes-1.34/autoscaler.
#[test]
fn recorded_pod_is_completed_as_the_autoscalers_test_expects() {
    let recorded: Value =
        serde_json::from_str(include_str!("../../extender/tests/recorded/scale_up.json")).unwrap();
    assert_eq!(admitted(&recorded["user"]), recorded["waiting"]);
}
