use super::*;
use proptest::prelude::*;

#[test]
fn invalid_fraction_is_refused_with_its_reason() {
    assert_eq!(Share::from_fraction(f64::NAN), Err(ShareError::NotANumber));
    assert_eq!(Share::from_fraction(f64::INFINITY), Err(ShareError::NotANumber));
    assert_eq!(Share::from_fraction(-0.1), Err(ShareError::Negative));
    assert_eq!(Share::from_fraction(1.000_001), Err(ShareError::AboveOne));
    assert_eq!(Share::from_fraction(1e-9), Err(ShareError::TooSmall));
    assert_eq!(Share::from_fraction(0.0), Ok(Share::ZERO));
    assert_eq!(Share::from_fraction(0.3).map(Share::ppm), Ok(300_000));
}

proptest! {
    #[test]
    fn share_of_a_span_is_at_most_the_span(ppm in 0..=WHOLE_PPM, ns: u64) {
        let share = Share::from_ppm(ppm).unwrap();
        prop_assert!(share.of(ns) <= ns);
        prop_assert_eq!(Share::ONE.of(ns), ns);
    }
}

#[test]
fn quantities_are_exact_bytes() {
    for (text, bytes) in [
        ("0", 0),
        ("1", 1),
        ("+5", 5),
        ("8Gi", 8 << 30),
        ("1.5Gi", 3 << 29),
        (".5Ki", 512),
        ("5.", 5),
        ("500M", 500_000_000),
        ("1E", 1_000_000_000_000_000_000),
        ("1Ei", 1 << 60),
        ("15.5Ei", 31 << 59),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", 2),
        ("1.2e+3", 1200),
        ("1m", 1),
        ("1500m", 2),
        ("1n", 1),
        ("2000000u", 2),
        ("0.1Ki", 103),
        ("18446744073709551615", u64::MAX),
        ("000000000000000000000000000000000000000000000001", 1),
        ("1000000000000000000000000000000e-30", 1),
        ("1e-999999", 1),
        ("0e999999", 0),
        ("-0", 0),
    ] {
        assert_eq!(parse_quantity(text), Some(bytes), "{text}");
    }
    for text in
        ["", "+", "-", ".", "1..2", "1.2.3", "1ki", "1KiB", "1e", "1e+", "1e1.5", "--1", "1 ", "é", "1e1Ki"]
    {
        assert_eq!(parse_quantity(text), None, "{text}");
    }
    // The largest that fit, and numbers that do not.
    for (text, bytes) in
        [("18446744073709551615", u64::MAX), ("15Ei", 15 << 60), ("18E", 18_000_000_000_000_000_000)]
    {
        assert_eq!(parse_quantity(text), Some(bytes), "{text}");
    }
    for text in ["18446744073709551616", "16Ei", "1e20", "99999E", "1e999999"] {
        assert_eq!(parse_quantity(text), None, "{text}");
    }
}

#[test]
fn durations_are_go_durations() {
    for (text, ns) in [
        ("5ms", 5_000_000),
        ("1.5s", 1_500_000_000),
        ("1h2m3s", 3_723_000_000_000),
        ("100us", 100_000),
        ("100µs", 100_000),
        ("7ns", 7),
        (".5s", 500_000_000),
        ("0", 0),
    ] {
        assert_eq!(parse_duration(text), Some(ns), "{text}");
    }
    for text in ["", "5", "ms", "-5ms", "5 ms", "5d", "1.2.3s", ".s", "99999999h", "5ms5"] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}
