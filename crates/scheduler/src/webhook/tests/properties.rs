//! What holds of every pod.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::review::{Request, Verdict};
use super::{apply, mutate, pod, validate};

/// Containers as users and other webhooks make them, some with what we would add.
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
    let list = |prefix: &'static str, counts: std::ops::Range<usize>| {
        counts.prop_flat_map(move |count| {
            (0..count).map(|n| container(format!("{prefix}{n}"))).collect::<Vec<_>>()
        })
    };
    let annotations = prop::sample::subsequence(
        vec![
            ("quota", "0.3"),
            ("memory", "1Gi"),
            ("limit", "80%"),
            ("priority", "high"),
            ("container", "c0"),
            ("gang", "g"),
        ],
        0..=5,
    );
    let labels = prop::option::of(prop::sample::select(vec![
        json!({"sharedgpu/gpu_request": "0.3", "sharedgpu/gpu_limit": "0.8"}),
        json!({"sharedgpu/gpu_limit": "0"}),
        json!({"app": "x"}),
    ]));
    (annotations, labels, list("i", 0..3), list("c", 1..4)).prop_map(
        |(annotations, labels, init, containers)| {
            let mut object = pod(&annotations, &json!({"containers": containers}));
            if !init.is_empty() {
                object["spec"]["initContainers"] = json!(init);
            }
            if let Some(labels) = labels {
                object["metadata"]["labels"] = labels;
            }
            object
        },
    )
}

proptest! {
    #[test]
    fn a_second_pass_changes_nothing_and_validation_agrees(object in any_pod()) {
        match mutate(&object) {
            Verdict::Admitted { patch, .. } => {
                let mut once = object.clone();
                apply(&mut once, &serde_json::to_value(patch).unwrap());
                prop_assert_eq!(mutate(&once), Verdict::Admitted { patch: Vec::new(), warnings: Vec::new() });
                let valid = matches!(validate(&once), Verdict::Admitted { .. });
                prop_assert!(valid, "{:?}", validate(&once));
            }
            Verdict::NotOurs => prop_assert_eq!(validate(&object), Verdict::NotOurs),
            Verdict::Refused(message) => prop_assert_eq!(validate(&object), Verdict::Refused(message)),
        }
    }

    #[test]
    fn every_container_of_ours_knows_which_gpu_it_sees(object in any_pod()) {
        if let Verdict::Admitted { patch, .. } = mutate(&object) {
            let mut once = object.clone();
            apply(&mut once, &serde_json::to_value(patch).unwrap());
            let mut with_gpu = 0;
            for container in ["initContainers", "containers"].iter().filter_map(|list| once["spec"][list].as_array()).flatten() {
                let env = container["env"].as_array().unwrap();
                let visible: Vec<_> = env.iter().filter(|variable| variable["name"] == "NVIDIA_VISIBLE_DEVICES").collect();
                prop_assert_eq!(visible.len(), 1);
                let seat = container["resources"]["limits"].get("sluice.dev/gpu").is_some();
                prop_assert_eq!(seat, visible[0].get("valueFrom").is_some());
                with_gpu += usize::from(seat);
            }
            prop_assert!(with_gpu >= 1);
        }
    }

    #[test]
    fn no_body_makes_it_panic(body in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,100}") {
        prop_assert!(Request::parse(&body).is_err());
        prop_assert!(Request::parse(text.as_bytes()).is_err());
    }
}
