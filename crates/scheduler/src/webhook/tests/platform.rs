//! Pods for other operating systems and processors, and pods with claims.

use serde_json::{Value, json};

use super::{Decision, mutate, pod, refused, single, warnings};

fn with(field: &str, value: Value) -> Value {
    let mut spec = single();
    spec[field] = value;
    pod(&[("quota", "0.3")], &spec)
}

/// A pod whose required node affinity has these alternatives, each with one expression.
fn with_affinity(alternatives: &[(&str, &str, &[&str])]) -> Value {
    let terms: Vec<Value> = alternatives
        .iter()
        .map(|(key, operator, values)| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        .collect();
    let required = json!({"nodeSelectorTerms": terms});
    with("affinity", json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}))
}

fn is_admitted(object: &Value) -> bool {
    matches!(mutate(object), Decision::Admitted { .. })
}

#[test]
fn windows_pods_are_refused() {
    let allowed = "is not allowed: linux or nothing: Sluice shares GPUs on Linux nodes only";
    assert_eq!(
        refused(&with("os", json!({"name": "windows"}))),
        format!("spec.os.name: \"windows\" {allowed}")
    );
    assert_eq!(
        refused(&with("nodeSelector", json!({"kubernetes.io/os": "windows"}))),
        format!("spec.nodeSelector[kubernetes.io/os]: \"windows\" {allowed}")
    );
    assert!(is_admitted(&with("os", json!({"name": "linux"}))));
    assert!(is_admitted(&with("nodeSelector", json!({"kubernetes.io/os": "linux"}))));
}

#[test]
fn pods_for_other_processors_are_refused() {
    let allowed = "is not allowed: amd64 or nothing: Sluice's library is built for x86-64 only";
    for key in ["kubernetes.io/arch", "beta.kubernetes.io/arch"] {
        assert_eq!(
            refused(&with("nodeSelector", json!({key: "arm64"}))),
            format!("spec.nodeSelector[{key}]: \"arm64\" {allowed}")
        );
        assert!(is_admitted(&with("nodeSelector", json!({key: "amd64", "zone": "arm64"}))));
    }
    assert_eq!(
        refused(&with_affinity(&[("kubernetes.io/arch", "In", &["arm64", "s390x"])])),
        format!("spec.affinity.nodeAffinity: \"kubernetes.io/arch In arm64, s390x\" {allowed}")
    );
    assert_eq!(
        refused(&with_affinity(&[("kubernetes.io/arch", "NotIn", &["amd64"])])),
        format!("spec.affinity.nodeAffinity: \"kubernetes.io/arch NotIn amd64\" {allowed}")
    );
}

#[test]
fn affinity_is_refused_only_if_each_alternative_excludes_the_processor() {
    let arm: (&str, &str, &[&str]) = ("kubernetes.io/arch", "In", &["arm64"]);
    assert!(!is_admitted(&with_affinity(&[arm, arm])));
    // No node matches either alternative, each for its own reason.
    assert!(!is_admitted(&with_affinity(&[("kubernetes.io/os", "In", &["windows"]), arm])));
    for admitted in [
        &[arm, ("zone", "In", &["a"])][..],
        &[("kubernetes.io/arch", "In", &["arm64", "amd64"])],
        &[("kubernetes.io/arch", "NotIn", &["arm64"])],
        &[("kubernetes.io/arch", "Exists", &[])],
        &[("zone", "In", &["arm64"])],
        &[],
    ] {
        assert!(is_admitted(&with_affinity(admitted)), "{admitted:?}");
    }
    let preference =
        json!({"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]});
    let preferred = json!([{"weight": 1, "preference": preference}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    assert!(is_admitted(&with("affinity", affinity)));
}

#[test]
fn pod_without_a_request_may_run_anywhere() {
    let mut object = with("os", json!({"name": "windows"}));
    object["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(mutate(&object), Decision::NotOurs);
}

#[test]
fn user_is_warned_of_claims_of_dynamic_resource_allocation() {
    let claims = json!([
        {"name": "gpu", "resourceClaimTemplateName": "single-gpu"},
        {"name": "nic", "resourceClaimName": "rdma"},
    ]);
    assert_eq!(
        warnings(&with("resourceClaims", claims)),
        ["gpu", "nic"].map(|name| format!(
            "spec.resourceClaims[{name}]: a GPU of this claim is used outside of the pod's share; claim other devices only"
        ))
    );
}
