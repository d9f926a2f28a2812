use super::*;

#[test]
fn the_trimmed_mean_ignores_an_interrupt() {
    assert_eq!(trimmed_mean(&[3, 3, 4, 4, 3, 3, 4, 4, 3, 90_000]), 31.0 / 9.0);
    assert_eq!(trimmed_mean(&[]), 0.0);
}
