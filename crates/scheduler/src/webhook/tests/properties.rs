//! Properties that hold for every pod.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::admission;
use super::super::plan::Settings;
use super::super::review::{Decision, Request};
use super::{apply, mutate, pod, review, validate};

/// Containers as users and other webhooks create them, some with what the webhook would add.
fn container(name: String) -> impl Strategy<Value = Value> {
    let env = prop::option::of(prop::sample::subsequence(
        vec![json!({"name": "A", "value": "b"}), json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})],
        0..=2,
    ));
    let resources = prop::option::of(prop::sample::select(vec![
        json!({}),
        json!({"limits": {"cpu": "1"}}),
        json!({"requests": {"memory": "1Gi"}}),
        json!({"limits": {"sluice.dev/gpu": "1"}}),
        json!({"limits": {"sluice.dev/gpu": "1"}, "requests": {"sluice.dev/gpu": "1"}}),
        json!({"limits": {"sluice.dev/gpu": "0"}}),
        json!({"limits": {"sluice.dev/gpu": "0"}, "requests": {"sluice.dev/gpu": "0"}}),
        json!({"requests": {"sluice.dev/gpu": "0"}}),
        json!({"limits": {"sluice.dev/milli": "300"}}),
        json!({"requests": {"sluice.dev/milli": "300", "sluice.dev/memory-mib": "1024"}}),
        json!({"limits": {"sluice.dev/milli": "400", "sluice.dev/gpu": "1"}}),
        json!({"limits": {"sluice.dev/milli": "600", "sluice.dev/memory-mib": "2048", "sluice.dev/gpu": "2"}}),
    ]));
    (env, resources, any::<bool>()).prop_map(move |(env, resources, always)| {
        let mut container = json!({"name": name, "image": "x"});
        if let Some(env) = env {
            container["env"] = json!(env);
        }
        if let Some(resources) = resources {
            container["resources"] = resources;
        }
        if always && name.starts_with('i') {
            container["restartPolicy"] = json!("Always");
        }
        container
    })
}

fn any_pod() -> impl Strategy<Value = Value> {
    let list = |prefix: &'static str, counts: std::ops::Range<usize>, first: &'static str| {
        (counts, any::<bool>()).prop_flat_map(move |(count, has_other_name)| {
            let name = |n| if n == 0 && has_other_name { first.to_owned() } else { format!("{prefix}{n}") };
            (0..count).map(|n| container(name(n))).collect::<Vec<_>>()
        })
    };
    let default = prop::option::of(prop::sample::select(vec!["c1", "istio-proxy", "absent"]));
    let annotations = prop::sample::subsequence(
        vec![
            ("gpus", "2"),
            ("quota", "0.3"),
            ("memory", "1Gi"),
            ("limit", "80%"),
            ("priority", "high"),
            ("container", "c0"),
            ("container", "c0,c1"),
            ("gang", "g"),
            ("gpu-model", "NVIDIA H100,NVIDIA-L4"),
        ],
        0..=7,
    );
    let labels = prop::option::of(prop::sample::select(vec![
        json!({"sharedgpu/gpu_request": "0.3", "sharedgpu/gpu_limit": "0.8"}),
        json!({"sharedgpu/gpu_limit": "0"}),
        json!({"app": "x"}),
    ]));
    (annotations, labels, list("i", 0..3, "prepare"), list("c", 1..4, "istio-proxy"), default).prop_map(
        |(annotations, labels, init, containers, default)| {
            let mut object = pod(&annotations, &json!({"containers": containers}));
            if !init.is_empty() {
                object["spec"]["initContainers"] = json!(init);
            }
            if let Some(labels) = labels {
                object["metadata"]["labels"] = labels;
            }
            if let Some(default) = default {
                object["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!(default);
            }
            object
        },
    )
}

/// Words that the webhook looks for, and values that it reads.
const WORDS: [&str; 26] = [
    "metadata",
    "annotations",
    "labels",
    "spec",
    "containers",
    "initContainers",
    "ephemeralContainers",
    "name",
    "image",
    "env",
    "value",
    "valueFrom",
    "resources",
    "limits",
    "requests",
    "schedulerName",
    "restartPolicy",
    "sluice.dev/quota",
    "sluice.dev/memory",
    "sluice.dev/container",
    "sluice.dev/gpu",
    "sharedgpu/gpu_request",
    "sharedgpu/gpu_limit",
    "NVIDIA_VISIBLE_DEVICES",
    "0.3",
    "1Gi",
];

fn any_json() -> impl Strategy<Value = Value> {
    let word = || prop_oneof![4 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned), 1 => ".{0,8}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(word(), inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

/// Any JSON, or a pod with up to two damaged places.
fn any_object() -> impl Strategy<Value = Value> {
    let containers = prop::sample::select(vec![
        "/metadata",
        "/metadata/annotations",
        "/metadata/annotations/sluice.dev~1quota",
        "/spec",
        "/spec/containers",
        "/spec/containers/0",
        "/spec/containers/0/name",
        "/spec/containers/0/env/0",
        "/spec/containers/0/resources",
        "/spec/containers/0/resources/limits",
        "/spec/initContainers",
        "/spec/ephemeralContainers",
        "/spec/ephemeralContainers/0/env",
    ]);
    let small = prop::sample::select(vec![
        json!(null),
        json!({}),
        json!([]),
        json!(""),
        json!("0"),
        json!([{"name": "c0"}]),
    ]);
    let damage = (containers, prop_oneof![3 => small, 1 => any_json()]);
    let damaged = (any_pod(), prop::collection::vec(damage, 0..3)).prop_map(|(mut object, damages)| {
        object["spec"]["ephemeralContainers"] = json!([{"name": "d", "env": []}]);
        for (place, json) in damages {
            if let Some(found) = object.pointer_mut(place) {
                *found = json;
            }
        }
        object
    });
    prop_oneof![1 => any_json(), 5 => damaged]
}

proptest! {
    #[test]
    fn no_object_causes_a_panic(
        new in any_object(),
        old in any_object(),
        (operation, sub_resource) in prop::sample::select(vec![
            ("CREATE", json!(null)),
            ("UPDATE", json!(null)),
            ("UPDATE", json!("ephemeralcontainers")),
            ("UPDATE", json!("status")),
            ("DELETE", json!(null)),
        ]),
    ) {
        let mut review = review(operation, &new, &old);
        review["request"]["subResource"] = sub_resource;
        let request = Request::parse(review.to_string().as_bytes()).unwrap();
        let settings = Settings { runtime_class: Some("nvidia".to_owned()), ..Settings::default() };
        for decision in [admission::mutate(&request, &settings), admission::validate(&request, &settings)] {
            // Every decision has an answer.
            let answer = decision.answer(&request.uid).unwrap();
            prop_assert_eq!(answer["response"]["allowed"] == json!(false), matches!(decision, Decision::Refused(_)));
        }
    }

    #[test]
    fn second_pass_changes_nothing_and_validation_agrees(object in any_pod()) {
        match mutate(&object) {
            Decision::Admitted { patch, .. } => {
                let mut once = object.clone();
                apply(&mut once, &serde_json::to_value(patch).unwrap());
                prop_assert_eq!(mutate(&once), Decision::Admitted { patch: Vec::new(), warnings: Vec::new() });
                let valid = matches!(validate(&once), Decision::Admitted { .. });
                prop_assert!(valid, "{:?}", validate(&once));
            }
            Decision::NotOurs => prop_assert_eq!(validate(&object), Decision::NotOurs),
            Decision::Refused(message) => prop_assert_eq!(validate(&object), Decision::Refused(message)),
        }
    }

    #[test]
    fn an_assignment_on_a_new_pod_changes_nothing_but_is_removed(object in any_pod()) {
        let mut copy = object.clone();
        copy["metadata"]["annotations"]["sluice.dev/assigned-gpu"] = json!("GPU-1");
        match (mutate(&copy), mutate(&object)) {
            (Decision::Admitted { patch, warnings }, expected) => {
                let mut once = copy.clone();
                apply(&mut once, &serde_json::to_value(patch).unwrap());
                prop_assert_eq!(warnings.len(), 1 + match &expected {
                    Decision::Admitted { warnings, .. } => warnings.len(),
                    _ => 0,
                });
                let mut plain = object.clone();
                if let Decision::Admitted { patch, .. } = expected {
                    apply(&mut plain, &serde_json::to_value(patch).unwrap());
                }
                prop_assert_eq!(once, plain);
            }
            (copied, plain) => prop_assert_eq!(copied, plain),
        }
        prop_assert!(matches!(validate(&copy), Decision::Refused(_)));
    }

    #[test]
    fn every_container_has_one_visible_devices_variable(object in any_pod()) {
        if let Decision::Admitted { patch, .. } = mutate(&object) {
            let mut once = object.clone();
            apply(&mut once, &serde_json::to_value(patch).unwrap());
            let (mut with_gpu, mut counted_by) = (0, 0);
            for container in ["initContainers", "containers"].iter().filter_map(|list| once["spec"][list].as_array()).flatten() {
                let env = container["env"].as_array().unwrap();
                let visible: Vec<_> = env.iter().filter(|variable| variable["name"] == "NVIDIA_VISIBLE_DEVICES").collect();
                prop_assert_eq!(visible.len(), 1);
                let gpu = visible[0].get("valueFrom").is_some();
                for name in ["limits", "requests"] {
                    let slots = container["resources"][name].get("sluice.dev/gpu").and_then(Value::as_str);
                    // No generated pod requests several whole GPUs.
                    let gpus = once["metadata"]["annotations"]["sluice.dev/gpus"].as_str().unwrap_or("1");
                    prop_assert_eq!(slots.unwrap_or("0"), if gpu { gpus } else { "0" });
                    let counted = container["resources"][name].get("sluice.dev/milli").is_some();
                    prop_assert!(gpu || !counted, "amounts on a container without a GPU: {}", container);
                    let ends = container["name"].as_str().unwrap().starts_with(['i', 'p']) && container["restartPolicy"].is_null();
                    counted_by += usize::from(counted && !ends && name == "requests");
                }
                with_gpu += usize::from(gpu);
            }
            prop_assert!(with_gpu >= 1);
            prop_assert!(counted_by <= 1, "Kubernetes would add up the time of {} containers", counted_by);
        }
    }

    #[test]
    fn no_body_causes_a_panic(body in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,100}") {
        prop_assert!(Request::parse(&body).is_err());
        prop_assert!(Request::parse(text.as_bytes()).is_err());
    }
}
