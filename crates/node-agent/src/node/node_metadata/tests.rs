//! Tests of `node_metadata.rs`.

use super::*;
use crate::gpus::fake;

fn inventory(gpus: usize) -> NodeInventory {
    let gpu = |index: u32| inventory::Gpu { model: "NVIDIA H200".into(), ..fake::gpu(index) };
    NodeInventory::new(4, (0..).map(gpu).take(gpus).collect())
}

#[test]
fn bare_node_gets_all_metadata_once() {
    let inventory = inventory(2);
    let change = patch(&ObjectMeta::default(), &inventory, true, None).unwrap();
    let read = |field: &str| -> BTreeMap<String, String> {
        serde_json::from_value(change["metadata"][field].clone()).unwrap()
    };
    assert_eq!(read("labels")["sluice.dev/gpu.count"], "2");
    assert_eq!(read("labels")["sluice.dev/gpu.model"], "NVIDIA-H200");
    assert_eq!(NodeInventory::from_annotation(&read("annotations")["sluice.dev/gpus"]).unwrap(), inventory);
    let node = ObjectMeta {
        annotations: Some(read("annotations")),
        labels: Some(read("labels")),
        ..ObjectMeta::default()
    };
    assert_eq!(patch(&node, &inventory, true, None), None);
}

#[test]
fn only_changed_keys_are_written_and_foreign_keys_are_kept() {
    let inventory = inventory(1);
    let change = patch(&ObjectMeta::default(), &inventory, true, None).unwrap();
    let mut labels: BTreeMap<String, String> =
        serde_json::from_value(change["metadata"]["labels"].clone()).unwrap();
    labels.insert("zone".into(), "a".into());
    labels.insert("sluice.dev/gpu.count".into(), "7".into());
    let annotations = BTreeMap::from([("sluice.dev/gpus".to_owned(), inventory.to_annotation().unwrap())]);
    let node = ObjectMeta { annotations: Some(annotations), labels: Some(labels), ..ObjectMeta::default() };
    assert_eq!(
        patch(&node, &inventory, true, None),
        Some(json!({"metadata": {"labels": {"sluice.dev/gpu.count": "1"}}}))
    );
}

#[test]
fn labels_of_a_node_without_gpus_are_removed_except_gpu_present() {
    let labels = [
        ("sluice.dev/gpu.present", "true"),
        ("sluice.dev/gpu.count", "2"),
        ("sluice.dev/gpu.model.NVIDIA-H200", "true"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let node = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
    let change = patch(&node, &inventory(0), true, None).unwrap();
    let gone = json!({"sluice.dev/gpu.count": null, "sluice.dev/gpu.model.NVIDIA-H200": null});
    assert_eq!(change["metadata"]["labels"], gone);
}

#[test]
fn each_model_of_a_node_has_a_label_and_a_node_with_several_is_mixed() {
    let mut inventory = inventory(3);
    inventory.gpus[1].model = "NVIDIA L4".into();
    let labels = [("sluice.dev/gpu.count", "3"), ("sluice.dev/gpu.present", "true"), ("zone", "a")];
    let stale = ("sluice.dev/gpu.model.Tesla-T4", "true");
    let there = labels.into_iter().chain([stale]).map(|(key, value)| (key.to_owned(), value.to_owned()));
    let node = ObjectMeta { labels: Some(there.collect()), ..ObjectMeta::default() };
    let expected = json!({
        "sluice.dev/gpu.model": "mixed",
        "sluice.dev/gpu.model.NVIDIA-H200": "true",
        "sluice.dev/gpu.model.NVIDIA-L4": "true",
        "sluice.dev/gpu.model.Tesla-T4": null,
    });
    assert_eq!(patch(&node, &inventory, true, None).unwrap()["metadata"]["labels"], expected);
}

#[test]
fn label_of_a_long_model_has_a_valid_name() {
    let mut inventory = inventory(1);
    inventory.gpus[0].model = format!("{} {}", "x".repeat(52), "y".repeat(20));
    let change = patch(&ObjectMeta::default(), &inventory, true, None).unwrap();
    let label = format!("sluice.dev/gpu.model.{}", "x".repeat(52));
    assert_eq!(change["metadata"]["labels"][label], "true");
}

#[test]
fn removal_names_the_labels_of_all_models() {
    let labels = [("sluice.dev/gpu.model.NVIDIA-L4", "true"), ("zone", "a")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let gone: BTreeMap<String, Value> =
        serde_json::from_value(removal(Some(&labels))["metadata"]["labels"].clone()).unwrap();
    assert!(gone.values().all(Value::is_null) && !gone.contains_key("zone"));
    assert!(gone.contains_key("sluice.dev/gpu.model.NVIDIA-L4") && gone.contains_key("sluice.dev/gpu.count"));
}
