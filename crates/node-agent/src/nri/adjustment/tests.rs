use super::*;
use crate::library::Library;

fn provision() -> (tempfile::TempDir, Provision) {
    let root = tempfile::tempdir().unwrap();
    let source = root.path().join("libsluice.so");
    std::fs::write(&source, b"\x7fELF and more").unwrap();
    let library = Library::new(root.path().join("lib")).install(&source).unwrap();
    let provision = Provision::of(&library, "/run/sluice").on_manager_loss("closed");
    (root, provision)
}

fn destinations(adjustment: &ContainerAdjustment) -> Vec<&str> {
    adjustment.mounts.iter().map(|mount| mount.destination.as_str()).collect()
}

fn variables(adjustment: &ContainerAdjustment) -> Vec<String> {
    adjustment.env.iter().map(|one| format!("{}={}", one.key, one.value)).collect()
}

#[test]
fn container_gets_device_mounts_and_environment_and_nothing_twice() {
    let (root, provision) = provision();
    let given = adjustment(&Container::default(), &provision, vec!["nvidia.com/gpu=GPU-1".into()]);
    assert_eq!(given.cdi_devices, [CdiDevice { name: "nvidia.com/gpu=GPU-1".into() }]);
    assert_eq!(destinations(&given).len(), 3);
    assert!(given.mounts.iter().all(|mount| mount.options.contains(&"ro".to_owned())));
    assert_eq!(variables(&given), ["SLUICE_ON_MANAGER_LOSS=closed", "NVIDIA_VISIBLE_DEVICES=void"]);

    // As after kubelet's Allocate. The variable of the webhook is replaced.
    let env = ["SLUICE_ON_MANAGER_LOSS=closed", "NVIDIA_VISIBLE_DEVICES=GPU-2"].map(str::to_owned).to_vec();
    let complete = Container { mounts: given.mounts.clone(), env, ..Container::default() };
    let rest = adjustment(&complete, &provision, vec!["nvidia.com/gpu=GPU-1".into()]);
    assert_eq!(
        (destinations(&rest), variables(&rest)),
        (vec![], vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()])
    );
    assert!(has_library(&complete, &root.path().join("lib")));
    assert!(!was_given_devices(&complete));
}

#[test]
fn preload_file_of_the_pod_is_replaced() {
    let (root, provision) = provision();
    let own = Mount {
        destination: LOADER_FILE.into(),
        source: "/var/lib/kubelet/pods/x".into(),
        ..Mount::default()
    };
    let container = Container { mounts: vec![own], ..Container::default() };
    assert!(!has_library(&container, &root.path().join("lib")));
    assert!(destinations(&adjustment(&container, &provision, Vec::new())).contains(&LOADER_FILE));
}
