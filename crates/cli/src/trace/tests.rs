use super::*;

#[test]
fn socket_is_found_only_if_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let found = || only_socket(folder.path()).map_err(|why| why.to_string());
    assert!(found().unwrap_err().contains("there is no trace socket"));
    let [one, other] = ["GPU-1.trace", "GPU-2.trace"].map(|name| folder.path().join(name));
    std::fs::write(folder.path().join("GPU-1.sock"), "").unwrap();
    std::fs::write(&one, "").unwrap();
    assert_eq!(found(), Ok(one.clone()));
    std::fs::write(&other, "").unwrap();
    let why = found().unwrap_err();
    assert!(why.contains(&one.display().to_string()) && why.contains(&other.display().to_string()), "{why}");
}

#[test]
fn length_is_positive_and_bounded() {
    assert_eq!(parse_seconds("0.5"), Ok(0.5));
    for wrong in ["0", "-1", "601", "NaN", "five"] {
        assert!(parse_seconds(wrong).is_err(), "{wrong}");
    }
}
