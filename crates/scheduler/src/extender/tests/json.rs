//! The JSON of a kube-scheduler, as recorded and as random input.

use proptest::prelude::{any, prop, prop_assert, proptest};
use proptest::strategy::Strategy;
use serde_json::{Value, json};

use crate::extender::filter::demand_of;
use crate::extender::wire::{ExtenderArgs, ExtenderBindingArgs, ExtenderFilterResult};

/// Bodies that kube-scheduler 1.34.4 sent, recorded unchanged.
const FILTER: &str = include_str!("recorded/filter.json");
const BIND: &str = include_str!("recorded/bind.json");

#[test]
fn recorded_requests_are_parsed() {
    let args: ExtenderArgs<'_> = serde_json::from_str(FILTER).unwrap();
    let names: Vec<&str> = args.node_names.iter().flatten().map(|name| &*name.0).collect();
    assert_eq!(names, ["sluice-test"]);
    assert!(args.pod.spec().has_soft_preferences());
    assert_eq!(args.pod.uid().unwrap().len(), 36);
    let demand = demand_of(&args.pod).unwrap();
    assert_eq!((demand.share.ppm(), demand.memory_bytes), (300_000, Some(4 << 30)));
    let bind: ExtenderBindingArgs = serde_json::from_str(BIND).unwrap();
    assert_eq!(
        (bind.pod_name.as_str(), bind.node.as_str(), bind.pod_uid.len()),
        ("recorded", "sluice-test", 36)
    );
}

#[test]
fn answers_have_the_keys_of_the_go_types() {
    let answer = ExtenderFilterResult {
        node_names: Some(vec!["a".into()]),
        failed_nodes: [("b".to_owned(), "x".to_owned())].into(),
        failed_and_unresolvable_nodes: [("c".to_owned(), "y".to_owned())].into(),
        error: "z".into(),
    };
    let expected = json!({"NodeNames": ["a"], "FailedNodes": {"b": "x"}, "FailedAndUnresolvableNodes": {"c": "y"}, "Error": "z"});
    assert_eq!(serde_json::to_value(&answer).unwrap(), expected);
}

/// Any JSON, sometimes with keys that the extender reads.
fn any_json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "Pod",
        "Nodes",
        "NodeNames",
        "metadata",
        "annotations",
        "uid",
        "spec",
        "affinity",
        "nodeAffinity",
        "sluice.dev/quota",
        "preferredDuringSchedulingIgnoredDuringExecution",
        "topologySpreadConstraints",
        "whenUnsatisfiable",
    ]);
    let leaf = proptest::prop_oneof![
        proptest::prelude::Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let keys = key.clone().prop_map(str::to_owned);
        proptest::prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_parsed_or_refused(value in any_json()) {
        let text = value.to_string();
        if let Ok(args) = serde_json::from_str::<ExtenderArgs<'_>>(&text) {
            let _ = (args.pod.spec().has_soft_preferences(), demand_of(&args.pod));
        }
        let _ = serde_json::from_str::<ExtenderBindingArgs>(&text);
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(cut in 0..FILTER.len(), at in 0..FILTER.len(), byte: u8) {
        let mut bytes = FILTER.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = serde_json::from_slice::<ExtenderArgs<'_>>(&bytes);
        prop_assert!(serde_json::from_slice::<ExtenderArgs<'_>>(&bytes[..cut]).is_err());
    }

    #[test]
    fn names_and_annotations_keep_any_characters(name in ".{1,20}", value in ".{0,20}") {
        let body = json!({"Pod": {"metadata": {"uid": "u", "annotations": {"sluice.dev/x": value}}}, "NodeNames": [name]}).to_string();
        let args: ExtenderArgs<'_> = serde_json::from_str(&body).unwrap();
        prop_assert!(args.node_names.unwrap()[0].0 == name.as_str());
        prop_assert!(args.pod.annotations().unwrap()["sluice.dev/x"] == value);
    }
}
