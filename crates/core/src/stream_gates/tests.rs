//! The stream gates in simulated time.

use super::*;
use proptest::prelude::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const BUSY: Activity = Activity { busy: true, since_ns: 0 };

fn idle_since(since_ns: u64) -> Activity {
    Activity { busy: false, since_ns }
}

#[test]
fn gates_are_closed_while_a_critical_process_is_busy_and_for_the_idle_time_after_that() {
    let mut gates = Gates::new(GatePolicy::default());
    assert_eq!((gates.update(S, None, [].into_iter()), gates.wake_at()), (GateState::Unwanted, None));
    assert_eq!(gates.update(S, None, [idle_since(0)].into_iter()), GateState::Open);
    assert_eq!(gates.update(S + MS, None, [idle_since(0), BUSY].into_iter()), GateState::Closed);
    let done = S + 2 * MS;
    assert_eq!(gates.update(done + 499 * US, None, [idle_since(done)].into_iter()), GateState::Closed);
    assert_eq!(gates.wake_at(), Some(done + 500 * US));
    assert_eq!(gates.update(done + 500 * US, None, [idle_since(done)].into_iter()), GateState::Open);
}

#[test]
fn gates_are_closed_for_announced_work_and_opened_if_it_does_not_come() {
    let mut gates = Gates::new(GatePolicy::default());
    let announced = Some(S + 2 * MS);
    assert_eq!(gates.update(S, announced, [].into_iter()), GateState::Unwanted, "without a process");
    assert_eq!(gates.update(S, announced, [idle_since(0)].into_iter()), GateState::Closed);
    assert!(gates.wake_at() <= Some(S + 2 * MS));
    assert_eq!(gates.update(S + 2 * MS, announced, [idle_since(0)].into_iter()), GateState::Open);
    // It comes: from then on it counts as any work does.
    assert_eq!(gates.update(S + 4 * MS, Some(S + 6 * MS), [idle_since(0)].into_iter()), GateState::Closed);
    let work = Activity { busy: true, since_ns: S + 5 * MS };
    assert_eq!(gates.update(S + 5 * MS, None, [work].into_iter()), GateState::Closed);
}

#[test]
fn endless_announcements_leave_the_others_the_least_share() {
    let mut gates = Gates::new(GatePolicy::default());
    let idle = |_| vec![idle_since(0)];
    let (open, closed, _) = run_announcing(&mut gates, S, 20 * S, Some(u64::MAX), idle);
    assert!((0.049..0.051).contains(&(open as f64 / (open + closed) as f64)), "{open} of {}", open + closed);
}

/// Serves a request whose work begins and ends at these times, and updates whenever the gates ask for it. Returns how long after its end
/// the gates were opened, and whether they were open while it worked.
fn serve(gates: &mut Gates, idle: u64, work: &[(u64, u64)]) -> (u64, bool) {
    let mut now = work[0].0;
    let mut idle = idle_since(idle);
    let mut found_open = false;
    for (index, (begin, end)) in work.iter().enumerate() {
        while now < *begin {
            gates.update(now, None, [idle].into_iter());
            now = gates.wake_at().unwrap_or(*begin).min(*begin);
        }
        found_open |= index > 0 && !gates.state().is_closed();
        now = *begin;
        while now < *end {
            gates.update(now, None, [Activity { busy: true, since_ns: *begin }].into_iter());
            now = gates.wake_at().unwrap_or(*end);
        }
        idle = idle_since(*end);
    }
    let end = work[work.len() - 1].1;
    while gates.update(now, None, [idle].into_iter()).is_closed() {
        now = gates.wake_at().unwrap_or(now + MS);
    }
    (now - end, found_open)
}

#[test]
fn short_pauses_inside_requests_leave_the_gates_closed() {
    let mut gates = Gates::new(GatePolicy::default());
    let mut opened = 0;
    for nth in 0..2000 {
        let begin = S + nth * 4 * MS;
        // One in fifty has a pause of 200 us.
        let work = [(begin, begin + 200 * US), (begin + 400 * US, begin + 600 * US)];
        let work = if nth % 50 == 0 { &work[..] } else { &work[..1] };
        opened += u32::from(serve(&mut gates, begin - MS, work).1);
    }
    assert!(opened <= 1, "{opened} of 40 found the gates open in their middle");
}

#[test]
fn death_of_the_only_busy_process_opens_the_gates() {
    let mut gates = Gates::new(GatePolicy::default());
    assert_eq!(gates.update(S, None, [BUSY, idle_since(0)].into_iter()), GateState::Closed);
    assert_eq!(gates.update(S, None, [idle_since(0)].into_iter()), GateState::Open);
    assert_eq!(gates.update(S, None, [BUSY].into_iter()), GateState::Closed);
    assert_eq!(gates.update(S, None, [].into_iter()), GateState::Unwanted);
}

/// Updates whenever the gates ask for it. Returns how long they were open and closed, and how often they were forced open.
fn run(gates: &mut Gates, from: u64, span: u64, activity: impl Fn(u64) -> Vec<Activity>) -> (u64, u64, u32) {
    run_announcing(gates, from, span, None, activity)
}

fn run_announcing(
    gates: &mut Gates,
    from: u64,
    span: u64,
    announced: Option<u64>,
    activity: impl Fn(u64) -> Vec<Activity>,
) -> (u64, u64, u32) {
    let (mut now, mut open, mut closed, mut forced) = (from, 0, 0, 0);
    while now < from + span {
        let before = gates.state();
        let state = gates.update(now, announced, activity(now).into_iter());
        forced += u32::from(state == GateState::Forced && before != GateState::Forced);
        let next = gates.wake_at().unwrap_or(from + span).min(from + span).max(now + 1);
        if state.is_closed() {
            closed += next - now;
        } else {
            open += next - now;
        }
        now = next;
    }
    (open, closed, forced)
}

#[test]
fn process_that_is_always_busy_leaves_the_others_the_least_share() {
    let mut gates = Gates::new(GatePolicy::default());
    let (open, closed, forced) = run(&mut gates, S, 20 * S, |_| vec![BUSY]);
    assert!((0.049..0.051).contains(&(open as f64 / (open + closed) as f64)), "{open} of {}", open + closed);
    assert!((19..=20).contains(&forced), "{forced}");
}

#[test]
fn idle_time_in_the_future_leaves_the_others_the_least_share() {
    for since_ns in [2 * S, 21 * S, u64::MAX] {
        let mut gates = Gates::new(GatePolicy::default());
        let (open, closed, _) = run(&mut gates, S, 20 * S, |_| vec![idle_since(since_ns)]);
        assert!(20 * open + 20 * MS >= open + closed, "{open} of {}, idle since {since_ns}", open + closed);
    }
}

#[test]
fn idle_time_beyond_a_period_leaves_the_others_the_least_share() {
    let mut gates = Gates::new(GatePolicy { idle_ns: 100 * S, ..GatePolicy::default() });
    let (open, closed, _) = run(&mut gates, S, 20 * S, |_| vec![idle_since(S)]);
    assert!((0.049..0.051).contains(&(open as f64 / (open + closed) as f64)), "{open} of {}", open + closed);
}

#[test]
fn gates_are_not_forced_open_while_critical_processes_are_idle_for_long_enough() {
    let mut gates = Gates::new(GatePolicy::default());
    // 5 ms of 10.
    let half = |now: u64| {
        vec![if now % (10 * MS) < 5 * MS { BUSY } else { idle_since(now - now % (10 * MS) + 5 * MS) }]
    };
    assert_eq!(run(&mut gates, S, 20 * S, half).2, 0);
}

#[test]
fn least_share_of_zero_never_opens_the_gates() {
    let policy = GatePolicy { least_open: Share::ZERO, ..GatePolicy::default() };
    assert_eq!(run(&mut Gates::new(policy), S, 20 * S, |_| vec![BUSY]).0, 0);
}

proptest! {
    /// After any update the gates are closed only if a process is or was just busy. Over any time from the beginning they are open for
    /// the least share of it, apart from what may be owed at most.
    #[test]
    fn gates_are_never_closed_without_a_busy_process_nor_for_too_long(
        spans in proptest::collection::vec((1..2000u64, 0..4u8), 1..60),
        percent in 1..50u32,
    ) {
        let least_open = Share::from_ppm(percent * 10_000).unwrap();
        let policy = GatePolicy { least_open, ..GatePolicy::default() };
        let mut gates = Gates::new(policy);
        let (mut now, mut open, mut closed) = (S, 0_u64, 0_u64);
        for (ms, kind) in spans {
            let (begun, end) = (now, now + ms * MS);
            while now < end {
                let critical = match kind {
                    0 => vec![],
                    1 => vec![idle_since(begun)],
                    2 => vec![BUSY],
                    _ => vec![idle_since(begun), Activity { busy: true, since_ns: begun }],
                };
                let state = gates.update(now, None, critical.clone().into_iter());
                let disturbed = critical.iter().any(|a| a.idle_for(now).is_none_or(|idle| idle < policy.idle_ns));
                prop_assert!(!state.is_closed() || disturbed);
                prop_assert_eq!(state.is_wanted(), !critical.is_empty());
                let next = gates.wake_at().unwrap_or(end).clamp(now + 1, end);
                if state.is_closed() { closed += next - now } else { open += next - now }
                now = next;
                let promised = least_open.of(open + closed);
                let owed = least_open.of(policy.period_ns) + policy.poll_ns;
                prop_assert!(open + owed >= promised, "open {open} of {}", open + closed);
            }
        }
    }
}

const IDLE: Activity = Activity { busy: false, since_ns: 0 };

#[test]
fn announcement_counts_until_work_comes_or_is_late() {
    let announced = Announced::at(S, 200 * US).unwrap();
    assert!(!announced.is_over(S + 699 * US, IDLE));
    assert!(announced.is_over(S + 700 * US, IDLE));
    assert!(announced.is_over(S, Activity { busy: true, since_ns: S }));
    // A whole request may have begun and ended between two readings.
    assert!(announced.is_over(S + 2, Activity { busy: false, since_ns: S + 1 }));
}

#[test]
fn announcement_counts_for_two_milliseconds_at_most_and_is_ignored_further_ahead() {
    assert_eq!(Announced::at(S, MAX_ANNOUNCED_NS + 1), None);
    assert_eq!(
        Announced::at(S, MAX_ANNOUNCED_NS).map(|announced| announced.until),
        Some(S + MAX_ANNOUNCED_NS)
    );
}

#[test]
fn page_that_is_read_after_the_work_was_due_is_ignored() {
    assert_eq!(Announced::on_page(S, S - LATE_NS), None);
    assert_eq!(Announced::on_page(S, S - 100 * US), Announced::at(S, 0));
    assert_eq!(Announced::on_page(S, S + MAX_ANNOUNCED_NS), Announced::at(S, MAX_ANNOUNCED_NS));
    assert_eq!(Announced::on_page(S, S + 2 * MAX_ANNOUNCED_NS), None);
}
