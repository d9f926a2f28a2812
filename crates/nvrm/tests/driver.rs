//! Only drivers whose layouts were compared are controlled.

use sluice_nvrm::Driver;

fn named(text: &str) -> Driver {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("version");
    std::fs::write(&file, text).expect("a file");
    Driver::of_file(&file)
}

#[test]
fn the_branches_that_were_compared_are_known_whatever_their_patch_level() {
    assert_eq!(named("580.159.04\n"), Driver::Compared("580.159.04".into()));
    assert_eq!(named("595.45.04\n"), Driver::Compared("595.45.04".into()));
}

#[test]
fn others_are_not_trusted_and_neither_is_what_nobody_understands() {
    assert_eq!(named("610.43.02\n"), Driver::Unknown("610.43.02".into()));
    assert_eq!(named("5800.1\n"), Driver::Unknown("5800.1".into()));
    assert_eq!(named("\n"), Driver::Unknown(String::new()));
}

#[test]
fn without_the_module_there_is_nothing_to_say() {
    assert_eq!(Driver::of_file(std::path::Path::new("/nowhere/version")), Driver::Unseen);
}
