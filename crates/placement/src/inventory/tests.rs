use super::*;
use proptest::prelude::*;

fn gpu(index: u32) -> Gpu {
    Gpu {
        uuid: format!("GPU-0000000{index}-0000-0000-0000-000000000000"),
        index,
        model: "NVIDIA H200".into(),
        memory_bytes: 150_754_820_096,
        memory_total_bytes: None,
        host_memory_bytes: 0,
        numa: Some(0),
        pci: "0000:18:00.0".into(),
        nvlink: Vec::new(),
        mig: None,
        healthy: true,
        unhealthy_reason: None,
    }
}

#[test]
fn annotation_has_this_text_and_reads_back() {
    let mut unhealthy = gpu(1);
    unhealthy.healthy = false;
    unhealthy.numa = None;
    unhealthy.nvlink = vec![gpu(0).uuid];
    unhealthy.unhealthy_reason = Some("Xid 79: GPU has fallen off the bus".into());
    let inventory = NodeInventory::new(10, vec![gpu(0), unhealthy]);
    let text = inventory.to_annotation().unwrap();
    let expected = concat!(
        r#"{"version":1,"seats_per_gpu":10,"gpus":["#,
        r#"{"uuid":"GPU-00000000-0000-0000-0000-000000000000","index":0,"model":"NVIDIA H200","#,
        r#""memory_bytes":150754820096,"numa":0,"pci":"0000:18:00.0","nvlink":[],"healthy":true},"#,
        r#"{"uuid":"GPU-00000001-0000-0000-0000-000000000000","index":1,"model":"NVIDIA H200","#,
        r#""memory_bytes":150754820096,"pci":"0000:18:00.0","nvlink":["GPU-00000000-0000-0000-0000-000000000000"],"#,
        r#""healthy":false,"unhealthy_reason":"Xid 79: GPU has fallen off the bus"}]}"#,
    );
    assert_eq!(text, expected);
    assert_eq!(NodeInventory::from_annotation(&text).unwrap(), inventory);
    assert_eq!((inventory.device_slots(), inventory.gpu(&gpu(1).uuid).map(|gpu| gpu.index)), (10, Some(1)));
}

#[test]
fn fields_of_a_newer_agent_are_ignored_and_absent_ones_have_their_defaults() {
    let text = r#"{"version":1,"seats_per_gpu":4,"power":"much","gpus":[
            {"uuid":"GPU-a","index":0,"model":"X","memory_bytes":1,"pci":"0000:01:00.0","healthy":true,"colour":"green"}]}"#;
    let gpus = NodeInventory::from_annotation(text).unwrap().gpus;
    assert_eq!((gpus[0].numa, gpus[0].nvlink.len(), gpus[0].unhealthy_reason.as_deref()), (None, 0, None));
    assert_eq!(gpus[0].host_memory_bytes, 0);
}

#[test]
fn gpu_without_memory_is_refused_with_the_name_of_the_field() {
    let text = r#"{"version":1,"seats_per_gpu":4,"gpus":[{"uuid":"GPU-a","index":0,"model":"X","pci":"","healthy":true}]}"#;
    let error = NodeInventory::from_annotation(text).unwrap_err().to_string();
    assert!(error.contains("memory_bytes"), "{error}");
}

#[test]
fn labels_follow_and_disappear_with_the_last_gpu() {
    let labels = NodeInventory::new(10, vec![gpu(0), gpu(1)]).labels();
    let expected = [
        (LABEL_COUNT, "2"),
        (LABEL_MODEL, "NVIDIA-H200"),
        ("sluice.dev/gpu.model.NVIDIA-H200", "true"),
        (LABEL_PRESENT, "true"),
    ];
    assert_eq!(labels, expected.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).into());
    let without = NodeInventory::new(10, Vec::new()).labels();
    assert_eq!(without, [LABEL_COUNT, LABEL_MODEL].map(|key| (key.to_owned(), None)).into());
}

#[test]
fn models_become_label_values() {
    assert_eq!(label_value("NVIDIA H100 80GB HBM3").as_deref(), Some("NVIDIA-H100-80GB-HBM3"));
    assert_eq!(label_value(" Tesla (V100) / PCIe ").as_deref(), Some("Tesla-V100-PCIe"));
    assert_eq!(label_value("é").as_deref(), None);
    assert_eq!(label_value(&"x".repeat(80)).map(|value| value.len()), Some(63));
}

proptest! {
    #[test]
    fn every_label_value_is_valid_in_kubernetes(text in ".{0,200}") {
        if let Some(value) = label_value(&text) {
            let ends = [value.chars().next(), value.chars().last()];
            prop_assert!(value.len() <= LABEL_VALUE_MAX);
            prop_assert!(ends.iter().flatten().all(char::is_ascii_alphanumeric));
            prop_assert!(value.chars().all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one)));
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in ".{0,400}") {
        let _ = NodeInventory::from_annotation(&text);
    }

    #[test]
    fn every_inventory_reads_back(
        memory_bytes: u64, host_memory_bytes: u64, index: u32, numa: Option<u32>, model in ".{0,40}", reason: Option<String>,
    ) {
        let one = Gpu { memory_bytes, host_memory_bytes, index, numa, model, unhealthy_reason: reason, ..gpu(0) };
        let inventory = NodeInventory::new(index, vec![one]);
        let text = inventory.to_annotation().unwrap();
        prop_assert_eq!(NodeInventory::from_annotation(&text).unwrap(), inventory);
    }
}
