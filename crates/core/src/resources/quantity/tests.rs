use super::parse_bytes;

#[test]
fn quantities_are_exact() {
    assert_eq!(parse_bytes("10737418240"), Some(10_737_418_240));
    assert_eq!(parse_bytes("8Gi"), Some(8 << 30));
    assert_eq!(parse_bytes("1.5Gi"), Some(3 << 29));
    assert_eq!(parse_bytes("500M"), Some(500_000_000));
    assert_eq!(parse_bytes("0.0001Ki"), Some(1));
    assert_eq!(parse_bytes("18446744073709551615"), Some(u64::MAX));
    assert_eq!(parse_bytes("0"), Some(0));
}

#[test]
fn invalid_amount_of_memory_is_refused() {
    for text in [
        "",
        "Gi",
        "-1",
        "-8Gi",
        "8GiB",
        "8 Gi",
        "1.",
        ".5",
        "abc",
        "NaN",
        "1e3",
        "18446744073709551616",
        "16Ei",
    ] {
        assert_eq!(parse_bytes(text), None, "{text:?}");
    }
}
