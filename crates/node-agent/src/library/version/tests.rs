use super::*;

#[test]
fn the_name_is_what_sha256sum_prints() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(Version::of(b"").to_string(), empty);
    assert_eq!(Version::parse(empty), Some(Version::of(b"")));
}

#[test]
fn only_complete_lower_case_digests_are_versions() {
    let name = Version::of(b"x").to_string();
    for wrong in ["", &name[1..], &name.to_uppercase(), &format!("{name}0"), &name.replace(&name[..1], "g")] {
        assert_eq!(Version::parse(wrong), None, "{wrong}");
    }
    let path = format!("/var/lib/{name}/sub/ld.so.preload");
    assert_eq!(Version::all_in(Path::new(&path)).collect::<Vec<_>>(), [Version::of(b"x")]);
}
