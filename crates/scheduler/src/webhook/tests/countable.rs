//! Amounts that the cluster counts: added to each pod, and accepted as its request.

use serde_json::{Value, json};

use super::{Decision, mutate, patched, pod, refused, validate};

/// A pod whose only container has these resources.
fn with(annotations: &[(&str, &str)], resources: Value) -> Value {
    pod(annotations, &json!({"containers": [{"name": "main", "image": "train", "resources": resources}]}))
}

/// The resources of the first container after the patch.
fn resources(object: &Value) -> Value {
    let object = patched(object);
    assert!(matches!(validate(&object), Decision::Admitted { .. }), "{:?}", validate(&object));
    object["spec"]["containers"][0]["resources"].clone()
}

fn annotation(object: &Value, key: &str) -> Value {
    patched(object)["metadata"]["annotations"][format!("sluice.dev/{key}")].clone()
}

#[test]
fn annotations_become_resources() {
    let amounts = json!({"sluice.dev/gpu": "1", "sluice.dev/memory-mib": "8192", "sluice.dev/milli": "300"});
    let object = with(&[("quota", "0.3"), ("memory", "8Gi")], json!({"limits": {"cpu": "1"}}));
    let mut limits = amounts.clone();
    limits["cpu"] = json!("1");
    assert_eq!(resources(&object), json!({"limits": limits, "requests": amounts}));
}

#[test]
fn memory_is_rounded_up_and_without_a_quota_no_time_is_counted() {
    let amounts = json!({"sluice.dev/gpu": "1", "sluice.dev/memory-mib": "477"});
    let object = with(&[("memory", "500M")], json!({}));
    assert_eq!(resources(&object), json!({"limits": amounts, "requests": amounts}));
}

#[test]
fn resources_alone_are_the_request_as_limits_or_as_requests() {
    let stated = json!({"sluice.dev/milli": "300", "sluice.dev/memory-mib": "8192"});
    let amounts = json!({"sluice.dev/gpu": "1", "sluice.dev/memory-mib": "8192", "sluice.dev/milli": "300"});
    for resources_stated in [
        json!({"limits": stated}),
        json!({"requests": stated}),
        json!({"limits": stated, "requests": stated}),
    ] {
        let mut object = with(&[], resources_stated.clone());
        object["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(resources(&object), json!({"limits": amounts, "requests": amounts}), "{resources_stated}");
        assert_eq!(annotation(&object, "quota"), "0.3");
        assert_eq!(annotation(&object, "memory"), "8192Mi");
        assert_eq!(annotation(&object, "container"), "main");
    }
}

#[test]
fn milli_is_a_share_or_whole_gpus() {
    for (milli, quota, gpus) in
        [("1", "0.001", "1"), ("1000", "1", "1"), ("1k", "1", "1"), ("3000", "3", "3")]
    {
        let object = with(&[], json!({"limits": {"sluice.dev/milli": milli}}));
        assert_eq!(annotation(&object, "quota"), quota, "{milli}");
        assert_eq!(resources(&object)["requests"]["sluice.dev/gpu"], gpus, "{milli}");
    }
    for milli in ["1500", "65000", "-1", "x"] {
        let message = refused(&with(&[], json!({"limits": {"sluice.dev/milli": milli}})));
        let start =
            format!("spec.containers[main].resources.limits[sluice.dev/milli]: \"{milli}\" is not allowed: ");
        assert!(message.starts_with(&start), "{message}");
    }
}

#[test]
fn resources_stand_beside_annotations_that_say_the_same() {
    let stated = json!({"sluice.dev/milli": "300", "sluice.dev/memory-mib": "1024"});
    let object = with(&[("quota", "30%"), ("memory", "1Gi"), ("limit", "0.5")], json!({"limits": stated}));
    assert_eq!(resources(&object)["requests"]["sluice.dev/milli"], "300");
    assert_eq!(annotation(&object, "quota"), "30%");
    let object = with(&[("priority", "high")], json!({"limits": stated}));
    assert_eq!(annotation(&object, "quota"), "0.3");
}

#[test]
fn conflict_with_an_annotation_names_both_values() {
    let message = refused(&with(
        &[("quota", "0.3"), ("memory", "1Gi")],
        json!({"limits": {"sluice.dev/milli": "400", "sluice.dev/memory-mib": "2048"}}),
    ));
    assert_eq!(
        message,
        "spec.containers[main].resources.limits[sluice.dev/milli]: \"400\" is not allowed: 300, as sluice.dev/quota \"0.3\" \
         says; keep one of the two; spec.containers[main].resources.limits[sluice.dev/memory-mib]: \"2048\" is not \
         allowed: 1024, as sluice.dev/memory \"1Gi\" says; keep one of the two"
    );
}

#[test]
fn slots_and_sums_over_several_gpus_are_the_request_of_each() {
    let stated = json!({"sluice.dev/gpu": "2", "sluice.dev/milli": "600", "sluice.dev/memory-mib": "20480"});
    let object = with(&[("priority", "high")], json!({"limits": stated}));
    assert_eq!(resources(&object), json!({"limits": stated, "requests": stated}));
    for (key, value) in [("gpus", "2"), ("quota", "0.3"), ("memory", "10240Mi")] {
        assert_eq!(annotation(&object, key), value);
    }
    // The annotation names the GPUs in place of the slots, or beside them.
    for annotations in
        [&[("gpus", "2")][..], &[("gpus", "2"), ("quota", "0.3")], &[("gpus", "2"), ("memory", "10Gi")]]
    {
        let sums = json!({"sluice.dev/milli": "600", "sluice.dev/memory-mib": "20480"});
        assert_eq!(
            resources(&with(annotations, json!({"limits": sums}))),
            json!({"limits": stated, "requests": stated})
        );
    }
    let memory_only = json!({"limits": {"sluice.dev/gpu": "2", "sluice.dev/memory-mib": "2048"}});
    let object = with(&[], memory_only);
    assert_eq!((annotation(&object, "gpus"), annotation(&object, "memory")), (json!("2"), json!("1024Mi")));
    assert_eq!(annotation(&object, "quota"), Value::Null);
    let all_time =
        json!({"sluice.dev/gpu": "2", "sluice.dev/milli": "2000", "sluice.dev/memory-mib": "2048"});
    assert_eq!(annotation(&with(&[], json!({"limits": all_time})), "quota"), "1");
}

#[test]
fn slots_with_all_time_and_without_memory_are_whole_gpus() {
    let stated = json!({"sluice.dev/gpu": "2", "sluice.dev/milli": "2000"});
    let object = with(&[], json!({"limits": stated}));
    assert_eq!((annotation(&object, "quota"), annotation(&object, "gpus")), (json!("2"), Value::Null));
}

#[test]
fn sums_that_no_equal_parts_add_up_to_are_refused() {
    for (resource, amount, allowed) in [
        ("milli", "601", "thousandths of all 3 GPUs: a multiple of 3, at most 3000"),
        ("milli", "3003", "thousandths of all 3 GPUs: a multiple of 3, at most 3000"),
        ("memory-mib", "1000", "MiB of all 3 GPUs: a multiple of 3"),
    ] {
        let mut stated = json!({"sluice.dev/gpu": "3", "sluice.dev/milli": "600"});
        stated[format!("sluice.dev/{resource}")] = json!(amount);
        let message = refused(&with(&[], json!({"limits": stated})));
        let path = format!("spec.containers[main].resources.limits[sluice.dev/{resource}]");
        assert!(message.starts_with(&format!("{path}: \"{amount}\" is not allowed: {allowed}")), "{message}");
    }
}

#[test]
fn sum_that_contradicts_the_annotations_of_several_gpus_is_refused() {
    let object = with(
        &[("gpus", "2"), ("quota", "0.3"), ("memory", "1Gi")],
        json!({"limits": {"sluice.dev/milli": "300", "sluice.dev/gpu": "1"}}),
    );
    assert_eq!(
        refused(&object),
        "spec.containers[main].resources.limits[sluice.dev/milli]: \"300\" is not allowed: 600, as sluice.dev/quota \"0.3\" \
         with sluice.dev/gpus \"2\" says; keep one of the two; spec.containers[main].resources[sluice.dev/gpu]: \"1\" is not \
         allowed: 2 is what the pod's annotations come to"
    );
}

#[test]
fn requests_and_limits_that_differ_are_refused() {
    let message = refused(&with(
        &[],
        json!({"limits": {"sluice.dev/milli": "400"}, "requests": {"sluice.dev/milli": "300"}}),
    ));
    assert_eq!(
        message,
        "spec.containers[main].resources.requests[sluice.dev/milli]: \"300\" is not allowed: 400, as in \
         spec.containers[main].resources.limits[sluice.dev/milli]"
    );
}

#[test]
fn memory_beside_whole_gpus_is_refused_at_the_place_where_it_stands() {
    let stated = json!({"sluice.dev/milli": "2000", "sluice.dev/memory-mib": "1024"});
    assert_eq!(
        refused(&with(&[], json!({"limits": stated}))),
        "spec.containers[main].resources.limits[sluice.dev/memory-mib]: \"1024\" is not allowed: not beside 2 whole GPUs, \
         which come with all time and memory"
    );
}

#[test]
fn container_that_states_amounts_is_the_one_with_the_gpu() {
    let stating = json!({"name": "main", "image": "x", "resources": {"limits": {"sluice.dev/milli": "300"}}});
    let object = pod(&[], &json!({"containers": [{"name": "web", "image": "x"}, stating]}));
    assert_eq!(annotation(&object, "container"), "main");
    let object =
        pod(&[("container", "web")], &json!({"containers": [{"name": "web", "image": "x"}, stating]}));
    assert_eq!(
        refused(&object),
        "sluice.dev/container: \"web\" is not allowed: container main names the resource sluice.dev/milli as well: name it \
         too"
    );
}

#[test]
fn unknown_resource_is_refused() {
    assert_eq!(
        refused(&with(&[("quota", "0.3")], json!({"limits": {"sluice.dev/mili": "300"}}))),
        "spec.containers[main].resources.limits[sluice.dev/mili]: \"300\" is not allowed: no such resource; there are \
         sluice.dev/gpu, sluice.dev/milli, sluice.dev/memory-mib"
    );
}

#[test]
fn zero_amounts_request_nothing() {
    let object = with(&[], json!({"limits": {"sluice.dev/milli": "0"}}));
    assert_eq!(mutate(&object), Decision::NotOurs);
    let message = refused(&with(&[("quota", "0.3")], json!({"limits": {"sluice.dev/milli": "0"}})));
    assert!(message.contains("\"0\" is not allowed: 300"), "{message}");
}
