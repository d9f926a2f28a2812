//! The exact patch for each kind of pod.

use serde_json::{Value, json};

use super::{Decision, Settings, mutate, mutate_with, patch, patched, pod, single, validate, warnings};

fn assigned() -> Value {
    json!({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {
        "apiVersion": "v1", "fieldPath": "metadata.annotations['sluice.dev/assigned-gpu']"}}})
}

fn void() -> Value {
    json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
}

/// Resources with this many slots and thousandths of a GPU.
fn amounts(slots: u32, milli: u32) -> Value {
    let amounts = json!({"sluice.dev/gpu": slots.to_string(), "sluice.dev/milli": milli.to_string()});
    json!({"limits": amounts, "requests": amounts})
}

fn add(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "add", "path": path, "value": value.into()})
}

/// The label that every pod with GPUs gets, if it has no labels.
fn gpu_label() -> Value {
    add("/metadata/labels", json!({"sluice.dev/gpu-pod": "true"}))
}

/// The tolerations that every pod with GPUs gets, if it has none.
fn tolerations() -> Value {
    let of = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
    add("/spec/tolerations", json!([of("nvidia.com/gpu"), of("sluice.dev/gpu")]))
}

/// The operations that every pod gets whose first container is `main`.
fn common() -> Vec<Value> {
    vec![
        gpu_label(),
        tolerations(),
        add("/metadata/annotations/sluice.dev~1container", "main"),
        add("/spec/schedulerName", "sluice-scheduler"),
    ]
}

#[test]
fn single_container_gets_slot_variable_and_scheduler() {
    for quota in ["0.3", "30%"] {
        let mut expected = common();
        expected.push(add("/spec/containers/0/resources", amounts(1, 300)));
        expected.push(add("/spec/containers/0/env", json!([assigned()])));
        assert_eq!(patch(&pod(&[("quota", quota)], &single())), json!(expected), "{quota}");
    }
}

#[test]
fn named_container_gets_the_gpu_and_the_other_is_void() {
    let spec = json!({"containers": [
        {"name": "web", "image": "web", "env": [{"name": "A", "value": "b"}]},
        {"name": "main", "image": "train", "resources": {"limits": {"cpu": "1"}}, "env": [{"name": "C", "value": "d"}]},
    ]});
    let expected = json!([
        gpu_label(),
        tolerations(),
        add("/spec/schedulerName", "sluice-scheduler"),
        add("/spec/containers/0/env/-", void()),
        add("/spec/containers/1/resources/limits/sluice.dev~1gpu", "1"),
        add("/spec/containers/1/resources/limits/sluice.dev~1milli", "300"),
        add(
            "/spec/containers/1/resources/requests",
            json!({"sluice.dev/gpu": "1", "sluice.dev/milli": "300"})
        ),
        add("/spec/containers/1/env/-", assigned()),
    ]);
    assert_eq!(patch(&pod(&[("quota", "0.3"), ("container", "main")], &spec)), expected);
}

#[test]
fn init_containers_and_sidecars_are_void_unless_named() {
    let spec = json!({
        "initContainers": [
            {"name": "prepare", "image": "x"},
            {"name": "proxy", "image": "x", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "main", "image": "train"}],
    });
    let mut expected = common();
    expected.push(add("/spec/initContainers/0/env", json!([void()])));
    expected.push(add("/spec/initContainers/1/env", json!([void()])));
    expected.push(add("/spec/containers/0/resources", amounts(1, 300)));
    expected.push(add("/spec/containers/0/env", json!([assigned()])));
    assert_eq!(patch(&pod(&[("quota", "0.3")], &spec)), json!(expected));

    let expected = json!([
        gpu_label(),
        tolerations(),
        add("/spec/schedulerName", "sluice-scheduler"),
        add("/spec/initContainers/0/resources", amounts(1, 300)),
        add("/spec/initContainers/0/env", json!([assigned()])),
        add("/spec/initContainers/1/env", json!([void()])),
        add("/spec/containers/0/resources", amounts(1, 300)),
        add("/spec/containers/0/env", json!([assigned()])),
    ]);
    assert_eq!(patch(&pod(&[("quota", "0.3"), ("container", "prepare,main")], &spec)), expected);

    let expected = json!([
        gpu_label(),
        tolerations(),
        add("/spec/schedulerName", "sluice-scheduler"),
        add("/spec/initContainers/0/env", json!([void()])),
        add("/spec/initContainers/1/resources", amounts(1, 300)),
        add("/spec/initContainers/1/env", json!([assigned()])),
        add("/spec/containers/0/env", json!([void()])),
    ]);
    assert_eq!(patch(&pod(&[("quota", "0.3"), ("container", "proxy")], &spec)), expected);
}

#[test]
fn sidecar_inserted_later_does_not_change_the_choice() {
    let mut object = patched(&pod(&[("quota", "0.3")], &single()));
    let proxy = json!({"name": "istio-proxy", "image": "proxy"});
    object["spec"]["containers"].as_array_mut().unwrap().insert(0, proxy);
    assert_eq!(patch(&object), json!([add("/spec/containers/0/env", json!([void()]))]));
    let Decision::Refused(message) = validate(&object) else { panic!("a container without void passed") };
    assert!(message.contains("another webhook took it away"), "{message}");
}

#[test]
fn default_container_annotation_names_one_of_several() {
    let spec = json!({"containers": [{"name": "web", "image": "x"}, {"name": "main", "image": "train"}]});
    let mut object = pod(&[("quota", "0.3")], &spec);
    object["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!("main");
    let mut expected = common();
    expected.push(add("/spec/containers/0/env", json!([void()])));
    expected.push(add("/spec/containers/1/resources", amounts(1, 300)));
    expected.push(add("/spec/containers/1/env", json!([assigned()])));
    assert_eq!(patch(&object), json!(expected));
}

#[test]
fn init_container_cannot_be_the_default_container() {
    let mut object = pod(&[("quota", "0.3")], &single());
    object["spec"]["initContainers"] = json!([{"name": "prepare", "image": "x"}]);
    object["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!("prepare");
    let patch = patch(&object);
    let main = add("/metadata/annotations/sluice.dev~1container", "main");
    assert!(patch.as_array().unwrap().contains(&main), "{patch}");
}

#[test]
fn kubeshare_pods_without_gpu_go_to_the_default_scheduler() {
    for labels in [
        json!({"sharedgpu/gpu_request": "0", "sharedgpu/gpu_limit": "0"}),
        json!({"sharedgpu/gpu_limit": "0"}),
        json!({"sharedgpu/priority": "10"}),
    ] {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels}, "spec": single()});
        object["spec"]["schedulerName"] = json!("kubeshare-scheduler");
        assert_eq!(patch(&object), json!([add("/spec/schedulerName", "default-scheduler")]));
        let Decision::Refused(_) = validate(&object) else { panic!("a pod without a scheduler passed") };
        let object = patched(&object);
        assert_eq!((mutate(&object), validate(&object)), (Decision::NotOurs, Decision::NotOurs));
    }
}

#[test]
fn kubeshares_labels_become_annotations() {
    let mut object = pod(&[], &single());
    object["metadata"] = json!({"name": "p", "labels": {
        "sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "1.0", "sharedgpu/gpu_mem": "1073741824"}});
    object["spec"]["schedulerName"] = json!("kubeshare-scheduler");
    let amounts = json!({"sluice.dev/gpu": "1", "sluice.dev/memory-mib": "1024", "sluice.dev/milli": "500"});
    let annotations = json!({"sluice.dev/container": "main", "sluice.dev/limit": "1",
        "sluice.dev/memory": "1073741824", "sluice.dev/quota": "0.5"});
    let expected = json!([
        add("/metadata/labels/sluice.dev~1gpu-pod", "true"),
        tolerations(),
        add("/metadata/annotations", annotations),
        add("/spec/schedulerName", "sluice-scheduler"),
        add("/spec/containers/0/resources", json!({"limits": amounts, "requests": amounts})),
        add("/spec/containers/0/env", json!([assigned()])),
    ]);
    assert_eq!(patch(&object), expected);
}

#[test]
fn bare_resource_requests_whole_gpus() {
    let resources = json!({"limits": {"sluice.dev/gpu": "2"}});
    let spec = json!({"containers": [
        {"name": "web", "image": "x"}, {"name": "main", "image": "train", "resources": resources}]});
    let mut object = pod(&[], &spec);
    object["metadata"].as_object_mut().unwrap().remove("annotations");
    let expected = json!([
        gpu_label(),
        tolerations(),
        add("/metadata/annotations", json!({"sluice.dev/container": "main", "sluice.dev/quota": "2"})),
        add("/spec/schedulerName", "sluice-scheduler"),
        add("/spec/containers/0/env", json!([void()])),
        add("/spec/containers/1/resources/limits/sluice.dev~1milli", "2000"),
        add(
            "/spec/containers/1/resources/requests",
            json!({"sluice.dev/gpu": "2", "sluice.dev/milli": "2000"})
        ),
        add("/spec/containers/1/env", json!([assigned()])),
    ]);
    assert_eq!(patch(&object), expected);
}

#[test]
fn each_whole_gpu_takes_one_slot() {
    let object = patched(&pod(&[("quota", "4")], &single()));
    assert_eq!(object["spec"]["containers"][0]["resources"], amounts(4, 4000));
}

#[test]
fn share_of_several_gpus_takes_a_slot_and_its_amounts_of_each() {
    let amounts = json!({"sluice.dev/gpu": "2", "sluice.dev/memory-mib": "20480", "sluice.dev/milli": "600"});
    let mut expected = common();
    expected.push(add("/spec/containers/0/resources", json!({"limits": amounts, "requests": amounts})));
    expected.push(add("/spec/containers/0/env", json!([assigned()])));
    let object = pod(&[("gpus", "2"), ("quota", "0.3"), ("memory", "10Gi")], &single());
    assert_eq!(patch(&object), json!(expected));
    assert_eq!(warnings(&object), Vec::<String>::new());
}

#[test]
fn several_named_containers_get_the_gpu_and_one_of_them_states_time_and_memory() {
    let spec = json!({"containers": [
        {"name": "web", "image": "x"}, {"name": "a", "image": "x"}, {"name": "b", "image": "x"}]});
    let slots =
        |count: &str| json!({"limits": {"sluice.dev/gpu": count}, "requests": {"sluice.dev/gpu": count}});
    let expected = json!([
        gpu_label(),
        tolerations(),
        add("/spec/schedulerName", "sluice-scheduler"),
        add("/spec/containers/0/env", json!([void()])),
        add("/spec/containers/1/resources", amounts(1, 300)),
        add("/spec/containers/1/env", json!([assigned()])),
        add("/spec/containers/2/resources", slots("1")),
        add("/spec/containers/2/env", json!([assigned()])),
    ]);
    let object = pod(&[("quota", "0.3"), ("container", "b,a")], &spec);
    assert_eq!(patch(&object), expected);
    assert_eq!(warnings(&object), Vec::<String>::new());
    // The container that states an amount already is the one, and each has a slot of each GPU.
    let mut object = pod(&[("gpus", "2"), ("container", "a,b")], &spec);
    object["spec"]["containers"][2]["resources"] = json!({"limits": {"sluice.dev/milli": "600"}});
    let object = patched(&object);
    assert_eq!(object["spec"]["containers"][1]["resources"], slots("2"));
    assert_eq!(object["spec"]["containers"][2]["resources"], amounts(2, 600));
    let fine = Decision::Admitted { patch: Vec::new(), warnings: Vec::new() };
    assert_eq!(validate(&object), fine);
}

#[test]
fn sidecar_and_app_container_share_and_an_init_container_before_them_states_everything() {
    let spec = json!({
        "initContainers": [{"name": "prepare", "image": "x"}, {"name": "side", "image": "x", "restartPolicy": "Always"}],
        "containers": [{"name": "main", "image": "x"}],
    });
    let object = patched(&pod(&[("quota", "0.3"), ("container", "prepare,side,main")], &spec));
    assert_eq!(object["spec"]["initContainers"][0]["resources"], amounts(1, 300));
    assert_eq!(object["spec"]["initContainers"][1]["resources"], amounts(1, 300));
    assert_eq!(object["spec"]["containers"][0]["resources"]["requests"], json!({"sluice.dev/gpu": "1"}));
}

#[test]
fn runtime_class_is_set_only_if_configured_and_absent() {
    let settings = Settings { runtime_class: Some("nvidia".to_owned()), ..Settings::default() };
    let class = |object: &Value| match mutate_with(object, &settings) {
        Decision::Admitted { patch, .. } => {
            let patch = serde_json::to_value(patch).unwrap();
            let found =
                patch.as_array().unwrap().iter().find(|op| op["path"] == "/spec/runtimeClassName").cloned();
            found.map(|operation| operation["value"].clone())
        }
        other => panic!("{other:?}"),
    };
    let mut object = pod(&[("quota", "0.3")], &single());
    assert_eq!(class(&object), Some(json!("nvidia")));
    object["spec"]["runtimeClassName"] = json!("nvidia-cdi");
    assert_eq!(class(&object), None);
}

#[test]
fn pods_without_request_are_ignored() {
    let plain = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": single()});
    let mut labelled = plain.clone();
    labelled["metadata"]["labels"] = json!({"sharedgpu/gpu_request": "0", "sharedgpu/gpu_limit": "0"});
    for object in [plain, labelled] {
        assert_eq!(mutate(&object), Decision::NotOurs);
        assert_eq!(validate(&object), Decision::NotOurs);
    }
}

#[test]
fn user_gets_warnings() {
    for priority in ["latency-critical", "high", "normal", "best-effort"] {
        let object = pod(&[("quota", "0.3"), ("priority", priority)], &single());
        assert_eq!(warnings(&object), Vec::<String>::new(), "{priority}");
    }
    let spec = json!({"hostPID": true, "containers": [
        {"name": "main", "image": "x", "securityContext": {"privileged": true}}]});
    assert_eq!(
        warnings(&pod(&[("quota", "0.3"), ("priority", "2")], &spec)),
        [
            "spec.containers[main] is privileged: it can reach every GPU of the node, past its quota",
            "spec.hostPID: the pod can reach processes of other GPU users on its node",
        ]
    );
}

#[test]
fn variable_overrides_env_from() {
    let spec = json!({"containers": [
        {"name": "main", "image": "x", "envFrom": [{"configMapRef": {"name": "settings"}}]}]});
    let object = patched(&pod(&[("quota", "0.3")], &spec));
    assert_eq!(object["spec"]["containers"][0]["env"], json!([assigned()]));
}
