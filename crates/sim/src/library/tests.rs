use super::*;

#[test]
fn every_name_links_to_the_library_also_the_second_time() {
    let dir = tempfile::tempdir().unwrap();
    let built = dir.path().join("built.so");
    std::fs::write(&built, b"x").unwrap();
    for _ in 0..2 {
        let laid = lay_out(&dir.path().join("lib"), &built).unwrap();
        for name in NAMES {
            assert_eq!(std::fs::read(laid.join(name)).unwrap(), b"x");
        }
    }
}

#[test]
fn missing_library_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert!(lay_out(dir.path(), &dir.path().join("none")).is_err());
}
