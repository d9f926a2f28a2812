use super::*;
use crate::gpus::fake;
use crate::lost_gpus::LostGpu;

#[test]
fn field_that_the_api_server_drops_is_named() {
    let inventory = NodeInventory::new(10, vec![fake::gpu(0)]);
    let wanted = slice("node-1", "uid".into(), devices(&inventory, &BTreeMap::new(), &LostSince::new()));
    assert_eq!(dropped(&wanted.spec, &wanted.spec), None);
    let mut stored = wanted.spec.clone();
    stored.devices.as_mut().unwrap()[0].allow_multiple_allocations = None;
    assert_eq!(dropped(&wanted.spec, &stored), Some("allowMultipleAllocations"));
    let mut sick = inventory.clone();
    sick.gpus[0].healthy = false;
    let wanted_taint = slice("node-1", "uid".into(), devices(&sick, &BTreeMap::new(), &LostSince::new()));
    assert_eq!(dropped(&wanted_taint.spec, &wanted.spec), Some("taints"));
}

#[test]
fn pcie_root_is_the_first_folder_below_devices() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = fake::gpu(0);
    std::os::unix::fs::symlink(
        format!("../../../devices/pci0000:17/0000:17:01.0/{}", gpu.pci),
        folder.path().join(&gpu.pci),
    )
    .unwrap();
    let inventory = NodeInventory::new(10, vec![gpu.clone(), fake::gpu(1)]);
    assert_eq!(pcie_roots(&inventory, folder.path()), BTreeMap::from([(gpu.uuid, "pci0000:17".to_owned())]));
}

#[test]
fn time_of_a_loss_stays_until_the_gpu_is_back() {
    let gpu = || fake::gpu(0).uuid;
    let lost = |is_overdue| LostGpus::from([(gpu(), LostGpu { is_overdue, ..LostGpu::default() })]);
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let mut since = LostSince::new();
    follow_losses(&mut since, &lost(false), at(1));
    assert!(since.is_empty(), "within the grace period");
    follow_losses(&mut since, &lost(true), at(2));
    follow_losses(&mut since, &lost(true), at(3));
    assert_eq!(since, LostSince::from([(gpu(), Time(at(2)))]));
    follow_losses(&mut since, &LostGpus::new(), at(4));
    assert!(since.is_empty());
}
