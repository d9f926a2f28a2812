//! Pods whose annotations become a claim.

use serde_json::{Value, json};

use super::super::admission;
use super::super::plan::Settings;
use super::{Decision, apply, pod, request, single};
use crate::translated::{RECORD, template_name};

fn settings() -> Settings {
    Settings { claims_in: "other,team".into(), ..Settings::default() }
}

fn mutate(object: &Value) -> Decision {
    admission::mutate(&request("CREATE", object, &Value::Null), &settings())
}

fn translated(object: &Value) -> Value {
    let Decision::Admitted { patch, .. } = mutate(object) else { panic!("{:?}", mutate(object)) };
    let mut object = object.clone();
    apply(&mut object, &serde_json::to_value(patch).unwrap());
    object
}

#[test]
fn annotations_become_a_claim_of_the_chosen_container_and_a_second_pass_changes_nothing() {
    let mut spec = json!({"schedulerName": "sluice-scheduler", "containers": [
        {"name": "main", "image": "train", "resources": {"limits": {"cpu": "1"}}}, {"name": "side", "image": "log"}]});
    spec["resourceClaims"] = json!([{"name": "nic", "resourceClaimName": "nic"}]);
    let mut object = pod(&[("quota", "0.3"), ("memory", "8Gi"), ("container", "main")], &spec);
    object["metadata"]["annotations"]["example.com/kept"] = json!("yes");
    let found = translated(&object);
    let record = "{\"sluice.dev/memory\":\"8Gi\",\"sluice.dev/quota\":\"0.3\"}";
    assert_eq!(found["metadata"]["annotations"], json!({"example.com/kept": "yes", RECORD: record}));
    assert_eq!(found["metadata"]["labels"], json!({"gpu.sluice.dev/translated": "true"}));
    let claims = &found["spec"]["resourceClaims"];
    assert_eq!(claims[0]["name"], "nic");
    assert_eq!(claims[1], json!({"name": "sluice", "resourceClaimTemplateName": template_name(record)}));
    assert_eq!(found["spec"]["schedulerName"], "default-scheduler");
    let [main, side] = [&found["spec"]["containers"][0], &found["spec"]["containers"][1]];
    assert_eq!(main["resources"], json!({"limits": {"cpu": "1"}, "claims": [{"name": "sluice"}]}));
    assert_eq!(side["resources"], Value::Null);
    assert_eq!(side["env"], json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]));
    assert_eq!(mutate(&found), Decision::NotOurs);
}

#[test]
fn pods_of_other_namespaces_keep_their_annotations() {
    let object = pod(&[("quota", "0.3"), ("memory", "8Gi")], &single());
    let own = Settings { claims_in: "other".into(), ..Settings::default() };
    let decision = admission::mutate(&request("CREATE", &object, &Value::Null), &own);
    assert_eq!(decision, admission::mutate(&request("CREATE", &object, &Value::Null), &Settings::default()));
}

#[test]
fn what_no_claim_can_ask_for_is_refused_with_all_mistakes() {
    let mut object = pod(&[("quota", "0.3")], &single());
    object["spec"]["runtimeClassName"] = json!("gvisor");
    object["spec"]["containers"][0]["resources"] = json!({"limits": {"sluice.dev/gpu": "1"}});
    let Decision::Refused(message) = mutate(&object) else { panic!("{object}") };
    for part in [
        "sluice.dev/memory is missing: a claim states its memory",
        "spec.runtimeClassName",
        "spec.containers[main].resources[sluice.dev/gpu]",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn pod_that_passed_no_mutating_webhook_is_refused() {
    let object = pod(&[("quota", "0.3"), ("memory", "8Gi")], &single());
    let decision = admission::validate(&request("CREATE", &object, &Value::Null), &settings());
    assert!(
        matches!(decision, Decision::Refused(message) if message.contains("lacks what Sluice's mutating webhook adds"))
    );
}
