//! The message of each kind of refused pod.

use serde_json::{Value, json};

use super::{patched, pod, refused, single, warnings};

const QUOTA: &[(&str, &str)] = &[("quota", "0.3")];

fn with(containers: Value) -> Value {
    pod(QUOTA, &json!({"containers": containers}))
}

#[test]
fn invalid_annotations_are_refused_with_every_reason() {
    assert_eq!(
        refused(&pod(&[("quota", "1.5"), ("qouta", "1")], &single())),
        "sluice.dev/qouta: \"1\" is not allowed: no such key; did you mean sluice.dev/quota?; sluice.dev/quota: \"1.5\" is \
         not allowed: a share of one GPU above 0 and at most 1 in thousandths (0.3, 0.125) or percent (30%, 12.5%), or 2 \
         to 64 whole GPUs (2)"
    );
    let mut labelled = pod(&[], &single());
    labelled["metadata"]["labels"] = json!({"sluice.dev/quota": "0.3"});
    assert_eq!(refused(&labelled), "sluice.dev/quota: \"0.3\" is not allowed: an annotation, not a label");
}

#[test]
fn contradicting_labels_and_annotations_are_refused() {
    let mut object = pod(&[("quota", "0.4")], &single());
    object["metadata"]["labels"] = json!({"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "1"});
    assert_eq!(
        refused(&object),
        "sluice.dev/quota: \"0.4\" is not allowed: the pod's sharedgpu/ labels say \"0.5\"; keep one of the two"
    );
}

#[test]
fn pod_that_bypasses_the_scheduler_is_refused() {
    let mut object = pod(QUOTA, &single());
    object["spec"]["schedulerName"] = json!("volcano");
    object["spec"]["nodeName"] = json!("node-1");
    assert_eq!(
        refused(&object),
        "spec.schedulerName: \"volcano\" is not allowed: sluice-scheduler or nothing: no other scheduler knows which GPU \
         is free; spec.nodeName: \"node-1\" is not allowed: nothing: a pod that is created with a node bypasses the \
         scheduler and gets no GPU; use spec.nodeSelector or affinity"
    );
    let mut object = pod(QUOTA, &single());
    object["spec"]["schedulerName"] = json!("kubeshare-scheduler");
    assert!(refused(&object).starts_with("spec.schedulerName: \"kubeshare-scheduler\""));
}

#[test]
fn named_containers_must_exist_and_several_long_running_ones_must_be_named() {
    let two = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
    assert_eq!(
        refused(&pod(&[("quota", "0.3"), ("container", "c")], &json!({"containers": two}))),
        "sluice.dev/container: \"c\" is not allowed: the pod's containers are a, b"
    );
    let slot = json!({"limits": {"sluice.dev/gpu": "1"}});
    let both = json!([{"name": "a", "image": "x", "resources": slot}, {"name": "b", "image": "x", "resources": slot}]);
    assert_eq!(
        refused(&pod(&[("quota", "0.3")], &json!({"containers": both}))),
        "sluice.dev/container is missing: a, b request resources of Sluice: name them all if they share the pod's GPU"
    );
}

#[test]
fn time_and_memory_are_stated_by_one_of_several_containers() {
    let stating = |name: &str| json!({"name": name, "image": "x", "resources": {"limits": {"sluice.dev/milli": "300"}}});
    assert_eq!(
        refused(&pod(&[("container", "a,b")], &json!({"containers": [stating("a"), stating("b")]}))),
        "spec.containers[b].resources.limits[sluice.dev/milli]: \"300\" is not allowed: nothing: container a states it for \
         the pod, and Kubernetes adds up what both request"
    );
}

#[test]
fn init_container_that_would_double_the_amounts_of_a_sidecar_is_refused() {
    let side = json!({"name": "side", "image": "x", "restartPolicy": "Always"});
    let prepare = json!({"name": "prepare", "image": "x"});
    let of = |init: [&Value; 2]| {
        let spec = json!({"containers": [{"name": "main", "image": "x"}], "initContainers": init});
        pod(&[("quota", "0.6"), ("container", "side,prepare")], &spec)
    };
    assert_eq!(
        refused(&of([&side, &prepare])),
        "sluice.dev/container: \"side,prepare\" is not allowed: init container prepare starts while side runs, and Kubernetes \
         adds up what both request: put prepare before side in spec.initContainers, or give the GPU to only one"
    );
    assert!(warnings(&of([&prepare, &side])).is_empty());
}

#[test]
fn slots_that_contradict_the_annotations_are_refused() {
    let slot = |name: &str, slots: &str| json!({"name": name, "image": "x", "resources": {"limits": {"sluice.dev/gpu": slots}}});
    assert_eq!(
        refused(&with(json!([slot("main", "2")]))),
        "spec.containers[main].resources[sluice.dev/gpu]: \"2\" is not allowed: 1 is what the pod's annotations come to"
    );
    assert_eq!(
        refused(&pod(
            &[("container", "a"), ("quota", "0.3")],
            &json!({"containers": [{"name": "a", "image": "x"}, slot("b", "1")]})
        )),
        "sluice.dev/container: \"a\" is not allowed: container b names the resource sluice.dev/gpu as well: name it too"
    );
    assert!(refused(&pod(&[], &json!({"containers": [slot("a", "1"), slot("b", "2")]}))).contains(
        "spec.containers[b].resources[sluice.dev/gpu]: \"2\" is not allowed: 1, as in spec.containers[a]"
    ));
    assert!(
        refused(&pod(&[], &json!({"containers": [slot("a", "99")]}))).starts_with("sluice.dev/quota: \"99\"")
    );
}

#[test]
fn container_with_gpu_and_zero_slots_is_refused() {
    let stating = |resources: Value| with(json!([{"name": "main", "image": "x", "resources": resources}]));
    let (none, one) = (json!({"sluice.dev/gpu": "0"}), json!({"sluice.dev/gpu": "1"}));
    let message = |name: &str| {
        format!(
            "spec.containers[main].resources.{name}[sluice.dev/gpu]: \"0\" is not allowed: 1 or nothing: the container gets \
             the pod's GPU"
        )
    };
    assert_eq!(refused(&stating(json!({"limits": none}))), message("limits"));
    assert_eq!(refused(&stating(json!({"requests": none}))), message("requests"));
    assert_eq!(refused(&stating(json!({"limits": one, "requests": none}))), message("requests"));
    let both = format!("{}; {}", message("limits"), message("requests"));
    assert_eq!(refused(&stating(json!({"limits": none, "requests": none}))), both);
    let garbage = refused(&stating(json!({"limits": one, "requests": {"sluice.dev/gpu": "x"}})));
    assert!(garbage.contains("requests[sluice.dev/gpu]: \"x\" is not allowed: 1 or nothing"), "{garbage}");
}

#[test]
fn own_visible_devices_are_refused() {
    let env = |name: &str, value: &str| json!({"name": name, "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]});
    assert_eq!(
        refused(&with(json!([env("main", "all")]))),
        "spec.containers[main].env[NVIDIA_VISIBLE_DEVICES]: \"all\" is not allowed: leave it out: the scheduler sets it to the \
         assigned GPU"
    );
    let beside = json!({"containers": [{"name": "main", "image": "x"}, env("side", "0")]});
    assert_eq!(
        refused(&pod(&[("quota", "0.3"), ("container", "main")], &beside)),
        "spec.containers[side].env[NVIDIA_VISIBLE_DEVICES]: \"0\" is not allowed: void or nothing: sluice.dev/container does \
         not name this container"
    );
    let from = json!({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}});
    assert!(
        refused(&with(json!([{"name": "main", "image": "x", "env": [from]}])))
            .contains("\"valueFrom\" is not allowed")
    );
}

#[test]
fn whole_gpus_of_another_plugin_are_refused() {
    let resources = json!({"limits": {"nvidia.com/gpu": "1"}});
    assert_eq!(
        refused(&with(json!([{"name": "main", "image": "x", "resources": resources}]))),
        "spec.containers[main].resources.limits[nvidia.com/gpu]: \"1\" is not allowed: not together with GPUs of Sluice in \
         one pod"
    );
    let fraction = json!({"limits": {"nvidia.com/gpu.shared": "1", "nvidia.com/gpu": "0"}});
    assert!(
        refused(&with(json!([{"name": "main", "image": "x", "resources": fraction}]))).starts_with(
            "spec.containers[main].resources.limits[nvidia.com/gpu.shared]: \"1\" is not allowed"
        )
    );
}

#[test]
fn zero_gpus_of_another_plugin_ask_for_nothing() {
    let zero = json!({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "0"});
    let resources = json!({"limits": zero, "requests": zero});
    let object = with(json!([{"name": "main", "image": "x", "resources": resources}]));
    assert_eq!(patched(&object)["spec"]["containers"][0]["resources"]["limits"]["sluice.dev/gpu"], "1");
}

#[test]
fn object_that_is_no_pod_is_refused() {
    let mut object = pod(QUOTA, &single());
    object["spec"]["containers"] = json!("none");
    assert!(refused(&object).starts_with("the object is no pod: "));
}

#[test]
fn label_of_pods_with_gpus_is_refused_on_a_pod_without_a_request() {
    let mut labelled = pod(&[], &single());
    labelled["metadata"]["labels"] = json!({"sluice.dev/gpu-pod": "true"});
    assert_eq!(
        refused(&labelled),
        "metadata.labels[sluice.dev/gpu-pod]: \"true\" is not allowed: only on pods that request a GPU"
    );
}
