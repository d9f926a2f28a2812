use super::*;

const S: u64 = 1_000_000_000;

/// Intervals of the processes 1 and 2 one after the other: (pid, tenths of a second).
fn timeline(parts: &[(i32, u64)]) -> Vec<Interval> {
    let mut now = 0;
    let interval = |(pid, tenths): &(i32, u64)| {
        let start_ns = now;
        now += tenths * S / 10;
        Interval { start_ns, end_ns: now, pid: *pid, busy_ns: now - start_ns }
    };
    parts.iter().map(interval).collect()
}

fn clients() -> BTreeMap<i32, usize> {
    BTreeMap::from([(1, 0), (2, 1)])
}

#[test]
fn an_interval_counts_for_the_part_of_it_that_is_in_the_window() {
    let mut timeline = timeline(&[(1, 10), (2, 10)]);
    timeline[1].busy_ns /= 2;
    let of = |from, to| shares(&timeline, &clients(), 2, Span { from, to });
    assert_eq!(of(0, 2 * S), [0.5, 0.25]);
    assert_eq!(of(S / 2, 3 * S / 2), [0.5, 0.25]);
    assert_eq!(of(S, 2 * S), [0.0, 0.5]);
}

#[test]
fn a_process_of_no_client_counts_for_none() {
    assert_eq!(shares(&timeline(&[(3, 10)]), &clients(), 2, Span { from: 0, to: S }), [0.0, 0.0]);
}

#[test]
fn clients_that_alternate_by_seconds_are_fifty_points_off() {
    let alternating = timeline(&[(1, 10), (2, 10), (1, 10), (2, 10)]);
    let span = Span { from: 0, to: 4 * S };
    let worst = worst(&alternating, &clients(), &[0.5, 0.5], span).unwrap();
    assert_eq!((worst.off_points, worst.client, worst.at_s), (50.0, 0, 0.0));
    let seconds = by_second(&alternating, &clients(), 2, span);
    assert_eq!(seconds, [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]);
}

#[test]
fn one_bad_second_is_found_wherever_it_begins() {
    // Fair in tenths of a second, except for seven tenths of the first client from 1.6 s on.
    let mut parts: Vec<(i32, u64)> = (0..40).map(|part| (1 + part % 2, 1)).collect();
    parts.splice(16..23, [(1, 7)]);
    let span = Span { from: 0, to: 4 * S };
    let worst = worst(&timeline(&parts), &clients(), &[0.5, 0.5], span).unwrap();
    assert!((worst.off_points - 30.0).abs() < 1e-6, "{worst:?}");
    assert!((1.2..=1.61).contains(&worst.at_s), "{worst:?}");
}

#[test]
fn fair_quanta_are_within_half_a_quantum_of_the_entitled_share() {
    let parts: Vec<(i32, u64)> = (0..40).map(|part| (1 + part % 2, 1)).collect();
    let worst = worst(&timeline(&parts), &clients(), &[0.5, 0.5], Span { from: 0, to: 4 * S }).unwrap();
    assert!(worst.off_points < 1e-6, "{worst:?}");
}

#[test]
fn a_span_shorter_than_a_window_is_one_window() {
    let span = Span { from: 0, to: S / 2 };
    assert_eq!(sliding(span, S).collect::<Vec<_>>(), [span]);
    assert_eq!(sliding(Span { from: 0, to: 2 * S }, S).count(), 11);
}
