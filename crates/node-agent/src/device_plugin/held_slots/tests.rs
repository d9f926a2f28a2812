//! Tests of `held_slots.rs`. Kubelet's own code wrote the checkpoints.

use super::*;

const THREE_PODS: &[u8] = include_bytes!("../../../tests/checkpoints/three_pods.json");

#[test]
fn slots_of_each_pod_are_read_and_devices_of_other_plugins_are_not() {
    let held = held_slots(THREE_PODS).unwrap();
    let expected = [(0, "b3f1d7c2-0e55-4b8a-8a57-6e0c9d1f4e22"), (2, "5d4c7a9e-6b1f-4c6e-9f10-0a8f3f0d2c11")];
    assert_eq!(held, expected.map(|(slot, pod)| (slot, pod.to_owned())).into());
    let none = held_slots(include_bytes!("../../../tests/checkpoints/no_pods.json")).unwrap();
    assert_eq!(none, HeldSlots::new());
}

#[test]
fn absent_checkpoint_means_that_no_slot_is_held_and_a_damaged_one_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(kubelet_checkpoint::FILE);
    assert_eq!(read(&file), Ok(HeldSlots::new()));
    fs::write(&file, &THREE_PODS[..THREE_PODS.len() / 2]).unwrap();
    assert!(read(&file).unwrap_err().contains("EOF"));
    let renamed = String::from_utf8_lossy(THREE_PODS).replace("DeviceIDs", "Devices");
    fs::write(&file, renamed).unwrap();
    assert!(read(&file).unwrap_err().contains("missing field `DeviceIDs`"));
}
