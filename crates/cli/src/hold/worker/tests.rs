use super::*;

/// The part of the time of each process after 600 quanta, each of which overruns by this much; and the shortest quantum.
fn run(shares: &[u32], overrun: Duration) -> (Vec<f64>, Duration) {
    let mut schedule = QuantumSchedule::new(shares);
    let mut shortest = Duration::MAX;
    for _ in 0..600 {
        let (index, quantum) = schedule.next();
        shortest = shortest.min(quantum);
        schedule.add(index, quantum + overrun);
    }
    let sum: Duration = schedule.times().sum();
    (schedule.times().map(|time| time.as_secs_f64() / sum.as_secs_f64()).collect(), shortest)
}

#[test]
fn times_are_in_proportion_to_shares_whatever_quanta_overrun() {
    for overrun in [0, 1, 9].map(Duration::from_millis) {
        for shares in [vec![30, 70], vec![1, 1], vec![10, 20, 30, 40], vec![5, 95]] {
            let (found, shortest) = run(&shares, overrun);
            let sum: u32 = shares.iter().sum();
            for (found, share) in found.iter().zip(&shares) {
                let expected = f64::from(*share) / f64::from(sum);
                assert!(
                    (found - expected).abs() < 0.01,
                    "{shares:?} {overrun:?}: {found} instead of {expected}"
                );
            }
            assert!(shortest >= MIN_QUANTUM);
        }
    }
}

#[test]
fn no_process_waits_longer_than_three_cycles() {
    let mut schedule = QuantumSchedule::new(&[10, 20, 70]);
    let mut waited = [Duration::ZERO; 3];
    for _ in 0..300 {
        let (index, quantum) = schedule.next();
        schedule.add(index, quantum);
        waited.iter_mut().for_each(|waited| *waited += quantum);
        waited[index] = Duration::ZERO;
        assert!(waited.iter().all(|waited| *waited <= 3 * CYCLE), "{waited:?}");
    }
}
