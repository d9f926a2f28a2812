use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// A due time.
const DUE: u64 = 1_000 * MS;
/// How long a thread polls before and after a due time.
const BEFORE: u64 = AROUND_NS;
const AFTER: u64 = 200 * US;

/// A thread that sleeps as it is told and wakes late by `late_ns`, and whose look for the event takes 1 µs. Returns for how long it polled,
/// and whether it polled at `comes_ns`, when the event comes.
fn wait(
    polling: &mut DeadlinePolling,
    (mut now, due, comes_ns): (u64, u64, u64),
    late_ns: u64,
) -> (u64, bool) {
    let mut polled = 0;
    loop {
        match polling.next(due, now) {
            _ if now >= comes_ns => {
                polling.stop(now);
                return (polled, true);
            }
            Step::Poll => {
                polled += US;
                now += US;
            }
            Step::SleepUntil(at) if at < comes_ns => now = at + late_ns,
            Step::SleepUntil(_) | Step::Sleep => return (polled, false),
        }
    }
}

#[test]
fn thread_shortens_its_sleep_and_then_polls_around_the_time() {
    let mut polling = DeadlinePolling::new(AROUND_NS);
    let begin = DUE - BEFORE;
    assert_eq!(polling.next(DUE, DUE - 50 * MS), Step::SleepUntil(begin - MS));
    assert_eq!(polling.next(DUE, begin - MS + 400 * US), Step::SleepUntil(begin - 200 * US));
    assert_eq!(polling.next(DUE, begin - 200 * US + 150 * US), Step::SleepUntil(begin));
    assert_eq!(polling.next(DUE, begin - 1), Step::SleepUntil(begin));
    assert_eq!(polling.next(DUE, begin + 20 * US), Step::Poll);
    assert_eq!(polling.next(DUE, DUE + AFTER - 1), Step::Poll);
    assert_eq!(polling.next(DUE, DUE + AFTER), Step::Sleep);
}

#[test]
fn thread_never_polls_for_more_than_200_us_before_the_time() {
    let mut polling = DeadlinePolling::new(AROUND_NS);
    assert!(
        (1..50 * MS)
            .step_by(7_919)
            .all(|before| before <= 200 * US || polling.next(DUE, DUE - before) != Step::Poll)
    );
}

#[test]
fn polling_takes_at_most_half_a_percent_of_a_core_whatever_the_length_of_grants() {
    for grant in [MS, 5 * MS, 20 * MS, 50 * MS, 100 * MS] {
        let mut polling = DeadlinePolling::new(AROUND_NS);
        let times = 1_000 * MS / grant;
        // The event comes after the polling has ended: the most expensive case.
        let mut each = |n| {
            wait(&mut polling, (DUE + n * grant, DUE + (n + 1) * grant, DUE + (n + 1) * grant + MS / 2), 0)
        };
        let polled: u64 = (0..times).map(|n| each(n).0).sum();
        assert!(polled <= 5 * MS + BEFORE + AFTER, "{polled} ns of a second with grants of {grant} ns");
    }
}

#[test]
fn every_hand_off_of_50_ms_is_polled_for() {
    let mut polling = DeadlinePolling::new(AROUND_NS);
    for n in 0..100 {
        let due = DUE + n * 50 * MS;
        let (polled, found) = wait(&mut polling, (due - 49 * MS, due, due + 100 * US), 30 * US);
        assert!(found && polled <= BEFORE + AFTER, "hand-off {n}: {polled} ns");
    }
}

#[test]
fn spent_budget_skips_whole_hand_offs() {
    let mut polling = DeadlinePolling::new(AROUND_NS);
    let polled: Vec<u64> = (1..=4)
        .map(|n| wait(&mut polling, (DUE + 5 * n * MS - MS, DUE + 5 * n * MS, u64::MAX), 0).0)
        .collect();
    assert_eq!(polled, [BEFORE + AFTER, 0, 0, 0]);
}

#[test]
fn event_that_comes_early_costs_what_was_polled() {
    let mut polling = DeadlinePolling::new(AROUND_NS);
    assert_eq!(polling.next(DUE, DUE - BEFORE), Step::Poll);
    polling.stop(DUE - BEFORE + 10 * US);
    // Of 325 µs 315 are left, and 200 suffice.
    assert_eq!(polling.next(DUE + MS, DUE + MS - BEFORE), Step::Poll);
    polling.stop(DUE + MS + AFTER);
    assert_eq!(polling.next(DUE + 3 * MS, DUE + 3 * MS - BEFORE), Step::Sleep);
}

#[test]
fn time_in_which_the_thread_was_stopped_does_not_count_as_polling() {
    let mut polling = DeadlinePolling::new(AROUND_NS);
    assert_eq!(polling.next(DUE, DUE), Step::Poll);
    polling.stop(DUE + 10_000 * MS);
    assert_eq!(polling.next(DUE + 10_050 * MS, DUE + 10_050 * MS), Step::Poll);
}

#[test]
fn looks_for_an_unknown_time_become_rarer() {
    let mut polling = DeadlinePolling::new(AROUND_NS);
    let mut now = DUE;
    let looks: Vec<u64> = (0..5)
        .map(|_| match polling.look(DUE, now) {
            Step::SleepUntil(at) => {
                now = at;
                (at - DUE) / MS
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(looks, [2, 4, 8, 16, 32]);
}

#[test]
fn machine_with_few_processors_never_polls() {
    let mut polling = DeadlinePolling::new(around_ns(LEAST_CPUS - 1));
    assert_eq!(polling.next(DUE, DUE - 50 * MS), Step::Sleep);
    assert_eq!(polling.next(DUE, DUE), Step::Sleep);
    assert_eq!(polling.look(DUE, DUE), Step::Sleep);
    assert_eq!(DeadlinePolling::new(around_ns(LEAST_CPUS)).next(DUE, DUE), Step::Poll);
}
