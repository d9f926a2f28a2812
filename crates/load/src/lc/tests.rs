use super::*;

#[test]
fn without_jitter_arrivals_are_exactly_periodic() {
    let mut jitter = ArrivalJitter::new(0.0);
    assert!((0..100).all(|_| jitter.next() == 0.0));
}

#[test]
fn jitter_covers_its_part_of_the_period_and_stays_below_it() {
    let mut jitter = ArrivalJitter::new(0.5);
    let all: Vec<f64> = (0..1000).map(|_| jitter.next()).collect();
    assert!(all.iter().all(|delay| (0.0..0.5).contains(delay)));
    assert!(all.iter().any(|delay| *delay > 0.45) && all.iter().any(|delay| *delay < 0.05));
}
