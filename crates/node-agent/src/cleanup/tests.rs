use super::*;
use k8s_openapi::api::core::v1::PodStatus;

#[test]
fn ended_pod_does_not_block_the_cleanup() {
    let in_phase = |phase: &str| {
        let status = PodStatus { phase: Some(phase.into()), ..PodStatus::default() };
        Pod { status: Some(status), ..Pod::default() }
    };
    assert!(has_not_ended(&Pod::default()));
    assert!(["Pending", "Running", "Unknown"].into_iter().all(|phase| has_not_ended(&in_phase(phase))));
    assert!(!["Succeeded", "Failed"].into_iter().any(|phase| has_not_ended(&in_phase(phase))));
}

#[test]
fn absent_library_folder_has_no_versions_and_unreadable_one_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    assert!(Library::new(root.path().join("lib")).versions().unwrap().is_empty());
    let no_folder = root.path().join("file");
    fs::write(&no_folder, "x").unwrap();
    assert!(Library::new(no_folder).versions().is_err(), "an unreadable folder does not count as empty");
}

#[test]
fn folder_is_removed_with_its_content_and_absent_folder_is_no_error() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sluice");
    fs::create_dir_all(folder.join("lib/abc")).unwrap();
    fs::write(folder.join("lib/abc/libsluice.so"), "x").unwrap();
    std::os::unix::fs::symlink("/etc", folder.join("link")).unwrap();
    remove(&folder).unwrap();
    assert!(!folder.exists() && Path::new("/etc").exists());
    remove(&folder).unwrap();
}
