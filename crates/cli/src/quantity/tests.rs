use super::*;

#[test]
fn units_are_those_of_kubernetes() {
    assert_eq!(parse_bytes("64Mi"), Ok(64 << 20));
    assert_eq!(parse_bytes("3"), Ok(3));
    assert_eq!(parse_bytes("2G"), Ok(2_000_000_000));
    assert_eq!(parse_bytes("1.5Gi"), Ok(3 << 29));
}

#[test]
fn a_text_that_is_no_amount_is_refused_and_quoted() {
    for text in ["", "Gi", "-1", "64m", "12 Gi", "99999999999Gi", "1KiB"] {
        assert!(parse_bytes(text).is_err(), "{text}");
    }
    assert!(parse_bytes("1KiB").unwrap_err().contains("KiB"));
}

#[test]
fn amounts_are_formatted_in_binary_units() {
    assert_eq!(
        (bytes(5), bytes(64 << 20), bytes(3 << 29)),
        ("5 B".into(), "64 MiB".into(), "1.50 GiB".into())
    );
}
