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
    let change = patch(&ObjectMeta::default(), &inventory).unwrap();
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
    assert_eq!(patch(&node, &inventory), None);
}

#[test]
fn only_changed_keys_are_written_and_foreign_keys_are_kept() {
    let inventory = inventory(1);
    let mut labels: BTreeMap<String, String> =
        inventory.labels().into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    labels.insert("zone".into(), "a".into());
    labels.insert("sluice.dev/gpu.count".into(), "7".into());
    let annotations = BTreeMap::from([("sluice.dev/gpus".to_owned(), inventory.to_annotation().unwrap())]);
    let node = ObjectMeta { annotations: Some(annotations), labels: Some(labels), ..ObjectMeta::default() };
    assert_eq!(
        patch(&node, &inventory),
        Some(json!({"metadata": {"labels": {"sluice.dev/gpu.count": "1"}}}))
    );
}

#[test]
fn labels_of_a_node_without_gpus_are_removed_except_gpu_present() {
    let labels = [("sluice.dev/gpu.present", "true"), ("sluice.dev/gpu.count", "2")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let node = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
    let change = patch(&node, &inventory(0)).unwrap();
    assert_eq!(change["metadata"]["labels"], json!({"sluice.dev/gpu.count": null}));
}
