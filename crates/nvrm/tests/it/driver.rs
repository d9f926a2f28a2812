//! Which driver versions have compared layouts.

use sluice_nvrm::DriverVersion;

fn of_version_file(text: &str) -> DriverVersion {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("version");
    std::fs::write(&file, text).expect("a file");
    DriverVersion::of_file(&file)
}

#[test]
fn compared_branches_are_recognised_at_any_patch_level() {
    assert_eq!(of_version_file("580.159.04\n"), DriverVersion::Compared("580.159.04".into()));
    assert_eq!(of_version_file("595.45.04\n"), DriverVersion::Compared("595.45.04".into()));
}

#[test]
fn other_branches_and_malformed_versions_are_unknown() {
    assert_eq!(of_version_file("610.43.02\n"), DriverVersion::Unknown("610.43.02".into()));
    assert_eq!(of_version_file("5800.1\n"), DriverVersion::Unknown("5800.1".into()));
    assert_eq!(of_version_file("\n"), DriverVersion::Unknown(String::new()));
}

#[test]
fn missing_version_file_means_unseen() {
    assert_eq!(DriverVersion::of_file(std::path::Path::new("/nowhere/version")), DriverVersion::NotVisible);
}
