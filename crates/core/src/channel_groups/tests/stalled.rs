//! Processes that are frozen while they report work.

use super::simulation::{MS, S, Simulation, Work};
use crate::ProcessId;
use crate::channel_groups::{Activity, Progress, StallDetector};

const BUSY: Activity = Activity { busy: true, since_ns: 7 };

fn progress(cpu_ns: u64) -> Progress {
    Progress { cpu_ns, gpu_ns: 0, activity: BUSY }
}

/// Observes a process each 50 ms from `from` on, `times` times.
fn observe(detector: &mut StallDetector, from: u64, times: u64, may_run: bool, cpu_ns: fn(u64) -> u64) {
    for step in 0..times {
        let now = from + step * 50 * MS;
        assert!(detector.is_due(now));
        detector.set_running(may_run, now);
        detector.observe(progress(cpu_ns(step)), || false, now);
        assert!(!detector.is_due(now + 49 * MS));
    }
}

#[test]
fn process_that_is_still_for_two_quanta_is_stalled_until_it_moves() {
    let mut detector = StallDetector::default();
    observe(&mut detector, S, 2, true, |_| 5);
    assert_eq!((detector.stalled_since(), detector.activity(BUSY)), (None, BUSY));
    observe(&mut detector, S + 100 * MS, 3, true, |_| 5);
    assert_eq!(detector.activity(BUSY), Activity { busy: false, since_ns: S + 100 * MS });
    let later = Activity { busy: true, since_ns: 8 };
    assert_eq!(detector.activity(later), later, "its page has changed");
    detector.observe(progress(6), || true, 2 * S);
    assert_eq!(detector.activity(BUSY), BUSY);
}

/// The quanta lie between the observations.
#[test]
fn time_counts_in_which_the_process_may_run() {
    let mut detector = StallDetector::default();
    for step in 0..100 {
        let now = S + step * 50 * MS;
        detector.set_running(false, now);
        detector.observe(progress(5), || false, now);
        let expected = step >= 10;
        assert_eq!(detector.stalled_since().is_some(), expected, "{step}");
        detector.set_running(true, now + 20 * MS);
        detector.set_running(false, now + 30 * MS);
    }
    let mut detector = StallDetector::default();
    observe(&mut detector, S, 1000, false, |_| 5);
    assert_eq!(detector.stalled_since(), None, "it waits");
}

#[test]
fn process_that_the_kernel_reports_as_stopped_is_stalled_at_the_second_observation() {
    let mut detector = StallDetector::default();
    detector.observe(progress(5), || true, S);
    assert_eq!(detector.stalled_since(), None);
    detector.observe(progress(5), || true, S + 50 * MS);
    assert_eq!(detector.stalled_since(), Some(S + 50 * MS));
}

/// The hook's tracker uses CPU time while the kernel runs.
#[test]
fn process_with_one_long_kernel_is_not_stalled() {
    let mut detector = StallDetector::default();
    observe(&mut detector, S, 1000, true, |step| step);
    assert_eq!(detector.stalled_since(), None);
}

#[test]
fn four_frozen_clients_cost_the_fifth_at_most_a_quantum_a_second() {
    let mut sim = Simulation::new();
    for id in 1..=5 {
        sim.best_effort(id, 20, Work::Always);
    }
    sim.run(S);
    sim.frozen.extend((2..=5).map(ProcessId));
    sim.run(S);
    sim.reset_counts();
    sim.run(10 * S);
    let fifth = sim.gpu_time[&ProcessId(1)];
    assert!(fifth >= 9_500 * MS, "{} ms of 10 s", fifth / MS);
    // They continue and get their shares back.
    sim.frozen.clear();
    sim.run(S);
    sim.reset_counts();
    sim.run(10 * S);
    assert!(sim.shares().iter().all(|share| (share - 20.0).abs() < 1.0), "{:?}", sim.shares());
}
