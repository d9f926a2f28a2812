use super::*;

fn folders(files: &[(&str, &str)]) -> (tempfile::TempDir, CdiFolders) {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(root.path().join(name), text).unwrap();
    }
    let folders = CdiFolders(vec![root.path().join("absent"), root.path().to_owned()]);
    (root, folders)
}

#[test]
fn device_is_found_in_yaml_and_json_and_the_default_kind_comes_first() {
    let (_root, folders) = folders(&[
        (
            "a.yaml",
            "cdiVersion: 0.5.0\nkind: k8s.device-plugin.nvidia.com/gpu\ndevices: [{name: GPU-1}, {name: GPU-2}]\n",
        ),
        (
            "b.json",
            r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1", "containerEdits": {}}]}"#,
        ),
        ("other.yaml", "kind: nvidia.com/nic\ndevices: [{name: GPU-3}]\n"),
        ("broken.json", "{"),
        ("note.txt", "kind: nvidia.com/gpu\ndevices: [{name: GPU-3}]\n"),
    ]);
    let names = ["GPU-1".to_owned(), "GPU-2".to_owned()];
    let expected = ["nvidia.com/gpu=GPU-1", "k8s.device-plugin.nvidia.com/gpu=GPU-2"].map(str::to_owned);
    assert_eq!(folders.qualified(&names), Ok(expected.to_vec()));
    let why = folders.qualified(&["GPU-3".to_owned()]).unwrap_err();
    for part in
        ["GPU-3", "absent", "nvidia.com/gpu", "--device-name-strategy=uuid", "broken.json cannot be read: "]
    {
        assert!(why.contains(part), "{part} in {why}");
    }
}

#[test]
fn only_runtimes_that_apply_the_devices_are_accepted() {
    for runtime in ["containerd v2.1.0", "containerd v2.2.9", "containerd 2.3.0-rc.1", "containerd v3.0.0"] {
        assert_eq!(unsupported_reason(runtime), None);
    }
    for runtime in
        ["containerd v1.7.27", "containerd v2.0.7", "containerd v2", "containerd ", "cri-o 1.34.0", ""]
    {
        let why = unsupported_reason(runtime).unwrap();
        assert!(why.contains(runtime) && why.contains("containerd 2.1"), "{why}");
    }
}
