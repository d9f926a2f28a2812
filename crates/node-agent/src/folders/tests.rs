use super::*;

#[test]
fn existing_control_folder_gets_a_private_mode() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("control");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    folder(&path, 0o700).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}
