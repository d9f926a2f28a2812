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
